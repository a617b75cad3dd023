"""`klamm control clock`: the time of the brokers."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command
from klamm.cli.control.tables import show

HEAD = ("NOW-MS", "FROZEN", "OFFSET-MS", "FIRED")


@click.group("clock", invoke_without_command=True, short_help="Show, advance, freeze or resume the clock of the brokers.")
@control_command()
def command(api: ControlApi) -> None:
    """Show the time of all brokers, whether it is frozen, and how far it is from real time.

    \b
    klamm control clock
    klamm control clock freeze
    klamm control clock advance 60000
    """
    _show(api, api.get("clock"))


@command.command("advance", short_help="Let time pass at once.")
@click.argument("ms", type=int, metavar="MS")
@click.option("--step-ms", type=int, metavar="MS", help="Let it pass in steps of this time, and wait for heartbeats after each.")
@control_command()
def advance(api: ControlApi, ms: int, step_ms: int | None) -> None:
    """Let MS milliseconds pass at once, with all timers of brokers, controllers and coordinators.

    Clients live in real time, so sessions that are shorter end, although their members are alive. With --step-ms those who are alive are
    waited for after each step.
    """
    _show(api, api.post("clock", "advance", body={"ms": ms, "step_ms": step_ms}))


@command.command("freeze", short_help="Let time pass only by advance.")
@control_command()
def freeze(api: ControlApi) -> None:
    """Let time pass only by `advance`."""
    _show(api, api.post("clock", "freeze"))


@command.command("resume", short_help="Let real time pass again.")
@control_command()
def resume(api: ControlApi) -> None:
    """Let real time pass again."""
    _show(api, api.post("clock", "resume"))


def _show(api: ControlApi, response: dict[str, object]) -> None:
    frozen = "yes" if response["frozen"] else "no"
    show(api, response, HEAD, [(response["now_ms"], frozen, response["offset_ms"], response.get("fired"))])
