"""`klamm control holds`, and the commands that let go on, or fail, what a hold holds."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, print_line
from klamm.cli.control.tables import HOLD, hold, show
from klamm.cli.shell.output import counted, say
from klamm.cli.shell.value_completion import complete_errors


@click.command("holds", short_help="List holds.")
@click.argument("number", type=int, required=False, metavar="[ID]")
@click.option("--wait", is_flag=True, help="Wait until the hold holds something.")
@click.option("--timeout-ms", type=int, default=30_000, show_default=True, help="With --wait: the longest wait.")
@control_command()
def holds(api: ControlApi, number: int | None, wait: bool, timeout_ms: int) -> None:
    """List all holds, or show the hold ID. A hold is armed, reached while it holds something, or released.

    \b
    klamm control holds 1 --wait
    """
    if number is None:
        if wait:
            raise click.UsageError("--wait needs ID")
        response = api.get("holds")
        show(api, response, HOLD, map(hold, response["holds"]))
        return
    waiting = {"wait": "reached", "timeout_ms": timeout_ms, "wait_ms": timeout_ms} if wait else {}
    response = api.get("holds", number, **waiting)  # type: ignore[arg-type]
    show(api, response, HOLD, [hold(response)])


@click.command("release", short_help="End a hold; what it holds goes on.")
@click.argument("number", type=int, metavar="ID")
@control_command()
def release(api: ControlApi, number: int) -> None:
    """End the hold ID. What it holds goes on."""
    _show(api, api.post("holds", number, "release"))


@click.command("step", short_help="Let the first that is held go on.")
@click.argument("number", type=int, metavar="ID")
@control_command()
def step(api: ControlApi, number: int) -> None:
    """Let the first go on that the hold ID holds. The hold stays."""
    _show(api, api.post("holds", number, "step"))


@click.command("fail", short_help="Let the first that is held fail.")
@click.argument("number", type=int, metavar="ID")
@click.option("--error", metavar="NAME", shell_complete=complete_errors, help="Error with which it fails.  [default: UNKNOWN_SERVER_ERROR]")
@click.option("--message", metavar="TEXT", help="Text of the error.")
@control_command()
def fail(api: ControlApi, number: int, error: str | None, message: str | None) -> None:
    """Let the first fail that the hold ID holds. `klamm control phases NAME` has the kind of a phase: only some can fail."""
    _show(api, api.post("holds", number, "fail", body={"error": error, "message": message}))


@click.command("crash", short_help="Kill the broker that is held first.")
@click.argument("number", type=int, metavar="ID")
@control_command()
def crash(api: ControlApi, number: int) -> None:
    """Kill the broker on which the hold ID holds something, as kill -9 does, and end its ZooKeeper session."""
    response = api.post("holds", number, "crash")
    if api.as_json:
        print_line(response)
    else:
        say(f"broker {response['broker']} is killed")


@click.command("unhold", short_help="End holds and forget them.")
@click.argument("number", type=int, required=False, metavar="[ID]")
@click.option("--all", "all_holds", is_flag=True, help="All holds.")
@control_command()
def unhold(api: ControlApi, number: int | None, all_holds: bool) -> None:
    """End the hold ID, or all holds, and remove them from the list. What they hold goes on."""
    if (number is None) is not all_holds:
        raise click.UsageError("exactly one of ID and --all is needed")
    response = api.delete("holds") if number is None else api.delete("holds", number)
    if api.as_json:
        print_line(response)
    else:
        say(f"removed {counted(response['deleted'], 'hold')}")


def _show(api: ControlApi, response: dict[str, object]) -> None:
    show(api, response, HOLD, [hold(response)])
