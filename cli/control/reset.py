"""`klamm control reset`: the cluster is as it was at its start, as far as that can be undone."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, print_line
from klamm.cli.shell.output import counted, say


@click.command("reset", short_help="Undo what steers the cluster, start all brokers, wait until all is whole.")
@control_command()
def command(api: ControlApi) -> None:
    """Remove all faults and holds, let the clock run, start all brokers, and store dynamic configs of brokers, users, quotas and ACLs as
    they were at the start. Returns when all brokers are registered, all ISRs are full and preferred replicas lead.

    Topics, groups, added brokers, and the time by which the clock was advanced, stay.
    """
    response = api.post("reset")
    if api.as_json:
        print_line(response)
        return
    say(f"removed {counted(response['faults'], 'fault')} and {counted(response['holds'], 'hold')}")
    for name, what in (("started", "started brokers"), ("undone", "undid changes of"), ("added", "added brokers stay:")):
        if response[name]:
            say(f"{what} {', '.join(map(str, response[name]))}")
