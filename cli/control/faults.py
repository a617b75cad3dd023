"""`klamm control faults` and `klamm control unfault`: the faults that were added, and their end."""

from __future__ import annotations

import click

from klamm.cli.control.client import WAIT_MS, ControlApi, control_command, says
from klamm.cli.control.tables import FAULT, fault, show
from klamm.cli.shell.output import counted, say
from klamm.cli.tools.commands import print_table


@click.command("faults", short_help="List faults and their hits.")
@click.argument("number", type=int, required=False, metavar="[ID]")
@click.option("--hits", type=int, metavar="N", help="Wait until the fault has hit N requests.")
@click.option("--timeout-ms", type=int, default=WAIT_MS, show_default=True, help="With --hits: for at most this time.")
@control_command()
def faults(api: ControlApi, number: int | None, hits: int | None, timeout_ms: int) -> None:
    """List all faults, or show the fault ID and the requests that it hit last.

    \b
    klamm control faults
    klamm control faults 1 --hits 2
    """
    if number is None:
        if hits is not None:
            raise click.UsageError("--hits needs ID")
        response = api.call("faults")
        show(api, response, FAULT, map(fault, response["faults"]))
        return
    waiting: dict[str, int] = {} if hits is None else {"hits": hits, "timeout_ms": timeout_ms}
    response = api.call("fault", number=number, **waiting)
    show(api, response, FAULT, [fault(response)])
    if response["last"] and not api.as_json:
        say("")
        is_disk = "slow_disk_ms" in response["effect"]
        names = ("at", "broker", *(("disk", "topic", "partition") if is_disk else ("client_id", "api", "version", "correlation_id")))
        head = [name.upper().replace("_", "-") for name in ("time", *names[1:])]
        print_table(head, [tuple(hit[name] for name in names) for hit in response["last"]])


@click.command("unfault", short_help="Remove faults.")
@click.argument("number", type=int, required=False, metavar="[ID]")
@click.option("--all", "all_faults", is_flag=True, help="All faults.")
@control_command()
def unfault(api: ControlApi, number: int | None, all_faults: bool) -> None:
    """Remove the fault ID, or all faults, and print how many there were."""
    if (number is None) is not all_faults:
        raise click.UsageError("exactly one of ID and --all is needed")
    response = api.call("delete_faults") if number is None else api.call("delete_fault", number=number)
    says(f"removed {counted(response['deleted'], 'fault')}")(api, response)
