"""`klamm control controller`: the active controller, and how another broker becomes it."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command
from klamm.cli.control.tables import pairs, show

HEAD = ("CONTROLLER", "EPOCH", "QUEUE", "EVENT", "HELD-AT")


@click.group("controller", invoke_without_command=True, short_help="Show or move the active controller.")
@control_command()
def command(api: ControlApi) -> None:
    """Show the active controller: its epoch, the length of its queue, the event that it processes, and where it is held.

    \b
    klamm control controller
    klamm control controller move 2
    klamm control controller resign
    """
    _show(api, api.get("controller"))


@command.command("move", short_help="Make a broker the controller.")
@click.argument("number", type=int, metavar="[ID]", required=False)
@control_command()
def move(api: ControlApi, number: int | None) -> None:
    """Make the broker ID the controller. Without ID it is any broker that is not the controller now."""
    _show(api, api.post("controller", "move", body={"to": number}))


@command.command("resign", short_help="Let another broker become controller.")
@control_command()
def resign(api: ControlApi) -> None:
    """Let the controller resign; another broker is elected."""
    _show(api, api.post("controller", "resign"))


def _show(api: ControlApi, response: dict[str, object]) -> None:
    held = response["held"]
    at = [pairs(hold["at"]) for hold in held] if isinstance(held, list) else []
    row = (response["id"], response["epoch"], response["queue"], response["event"], "; ".join(filter(None, at)) or None)
    show(api, response, HEAD, [row])
