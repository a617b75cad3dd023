"""`klamm control clock`: the time of the brokers."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, verb_command
from klamm.cli.control.tables import show
from klamm.control.json_object import JsonObject

HEAD = ("NOW-MS", "FROZEN", "OFFSET-MS", "FIRED")


def _show(api: ControlApi, response: JsonObject) -> None:
    frozen = "yes" if response["frozen"] else "no"
    show(api, response, HEAD, [(response["now_ms"], frozen, response["offset_ms"], response.get("fired"))])


@click.group("clock", invoke_without_command=True, short_help="Show, advance, freeze or resume the clock of the brokers.", commands={
    "advance": verb_command(
        "advance_clock", _show, click.Argument(["ms"], type=int, metavar="MS"),
        click.Option(["--step-ms"], type=int, metavar="MS", help="Let it pass in steps of this time, and wait for heartbeats after each."),
        text="""Let MS milliseconds pass at once, with all timers of brokers, controllers and coordinators.

        Clients live in real time, so sessions that are shorter end, although their members are alive. With --step-ms those who are alive
        are waited for after each step.""",
    ),
    "freeze": verb_command("freeze_clock", _show, text="Let time pass only by `advance`."),
    "resume": verb_command("resume_clock", _show),
})
@control_command()
def command(api: ControlApi) -> None:
    """Show the time of all brokers, whether it is frozen, and how far it is from real time.

    \b
    klamm control clock
    klamm control clock freeze
    klamm control clock advance 60000
    """
    _show(api, api.call("clock_state"))
