"""`klamm control controller`: the active controller, and how another broker becomes it."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, verb_command
from klamm.cli.control.tables import pairs, show
from klamm.control.json_object import JsonObject

HEAD = ("CONTROLLER", "EPOCH", "QUEUE", "EVENT", "HELD-AT")


def _show(api: ControlApi, response: JsonObject) -> None:
    at = [pairs(hold["at"]) for hold in response["held"]]
    row = (response["id"], response["epoch"], response["queue"], response["event"], "; ".join(filter(None, at)) or None)
    show(api, response, HEAD, [row])


@click.group("controller", invoke_without_command=True, short_help="Show or move the active controller.", commands={
    "move": verb_command(
        "move_controller", _show, click.Argument(["to"], type=int, metavar="[ID]", required=False),
        text="Make the broker ID the controller. Without ID it is any broker that is not the controller now.",
    ),
    "resign": verb_command("resign_controller", _show, text="Let the controller resign; another broker is elected."),
})
@control_command()
def command(api: ControlApi) -> None:
    """Show the active controller: its epoch, the length of its queue, the event that it processes, and where it is held.

    \b
    klamm control controller
    klamm control controller move 2
    klamm control controller resign
    """
    _show(api, api.call("controller"))
