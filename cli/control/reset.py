"""`klamm control reset`: the cluster is as it was at its start, as far as that can be undone; and `wait-for-configs`."""

from __future__ import annotations

import click

from klamm.cli.control.client import WAIT_MS, ControlApi, control_command, print_line, verb_command
from klamm.cli.shell.output import counted, say


@click.command("reset", short_help="Undo what steers the cluster, start all brokers, wait until all is whole.")
@control_command()
def command(api: ControlApi) -> None:
    """Remove all faults and holds, let the clock run, start all brokers, and store dynamic configs of brokers, users, quotas and ACLs as
    they were at the start. Returns when all brokers are registered, all ISRs are full and preferred replicas lead.

    Topics, groups, added brokers, and the time by which the clock was advanced, stay.
    """
    response = api.call("reset")
    if api.as_json:
        print_line(response)
        return
    say(f"removed {counted(response['faults'], 'fault')} and {counted(response['holds'], 'hold')}")
    for name, what in (("started", "started brokers"), ("undone", "undid changes of"), ("added", "added brokers stay:")):
        if response[name]:
            say(f"{what} {', '.join(map(str, response[name]))}")


wait_for_configs = verb_command(
    "configs_processed", lambda api, response: print_line(response) if api.as_json else None,
    click.Option(["--timeout-ms"], type=int, metavar="MS", default=WAIT_MS, show_default=True, help="How long to wait."),
    text="""Wait until all running brokers have processed the last changes of dynamic configs, users, quotas and ACLs. A request that
    changes them gets its response before.""",
)
