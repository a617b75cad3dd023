"""`klamm control holds`, and the commands that let go on, or fail, what a hold holds."""

from __future__ import annotations

import click

from klamm.cli.control.client import WAIT_MS, ControlApi, control_command, says, verb_command
from klamm.cli.control.tables import HOLD, hold, show
from klamm.cli.shell.output import counted
from klamm.cli.shell.value_completion import complete_errors
from klamm.control.json_object import JsonObject


@click.command("holds", short_help="List holds.")
@click.argument("number", type=int, required=False, metavar="[ID]")
@click.option("--wait", is_flag=True, help="Wait until the hold holds something.")
@click.option("--timeout-ms", type=int, default=WAIT_MS, show_default=True, help="With --wait: the longest wait.")
@control_command()
def holds(api: ControlApi, number: int | None, wait: bool, timeout_ms: int) -> None:
    """List all holds, or show the hold ID. A hold is armed, reached while it holds something, or released.

    \b
    klamm control holds 1 --wait
    """
    if number is None:
        if wait:
            raise click.UsageError("--wait needs ID")
        response = api.call("holds")
        show(api, response, HOLD, map(hold, response["holds"]))
        return
    _show(api, waited(api, number, timeout_ms) if wait else api.call("hold_state", number=number))


def waited(api: ControlApi, number: int, timeout_ms: int) -> JsonObject:
    """A hold, when it holds something. Raises ControlFailed if it does not in this time."""
    return api.call("hold_state", number=number, wait="reached", timeout_ms=timeout_ms)


def _show(api: ControlApi, response: JsonObject) -> None:
    show(api, response, HOLD, [hold(response)])


_ID = click.Argument(["number"], type=int, metavar="ID")
_ERROR = click.Option(
    ["--error"], metavar="NAME", shell_complete=complete_errors, help="Error with which it fails.  [default: UNKNOWN_SERVER_ERROR]"
)

release = verb_command("release", _show, _ID, text="End the hold ID. What it holds goes on.")
step = verb_command("step", _show, _ID, text="Let the first go on that the hold ID holds. The hold stays.")
fail = verb_command(
    "fail", _show, _ID, _ERROR, click.Option(["--message"], metavar="TEXT", help="Text of the error."),
    text="Let the first fail that the hold ID holds. `klamm control phases NAME` has the kind of a phase: only some can fail.",
)
crash = verb_command(
    "crash", says("broker {broker} is killed"), _ID,
    text="Kill the broker on which the hold ID holds something, as kill -9 does, and end its ZooKeeper session.",
)


@click.command("unhold", short_help="End holds and forget them.")
@click.argument("number", type=int, required=False, metavar="[ID]")
@click.option("--all", "all_holds", is_flag=True, help="All holds.")
@control_command()
def unhold(api: ControlApi, number: int | None, all_holds: bool) -> None:
    """End the hold ID, or all holds, and remove them from the list. What they hold goes on."""
    if (number is None) is not all_holds:
        raise click.UsageError("exactly one of ID and --all is needed")
    response = api.call("delete_holds") if number is None else api.call("delete_hold", number=number)
    says(f"removed {counted(response['deleted'], 'hold')}")(api, response)
