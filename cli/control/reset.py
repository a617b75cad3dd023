"""`klamm control reset`: ends what steers the cluster."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, print_line
from klamm.cli.shell.output import counted, say


@click.command("reset", short_help="Remove faults and holds, end pauses, let the clock run.")
@control_command()
def command(api: ControlApi) -> None:
    """Remove all faults and holds, end pauses, and let the clock run."""
    response = api.post("reset")
    if api.as_json:
        print_line(response)
    else:
        say(f"removed {counted(response['faults'], 'fault')} and {counted(response['holds'], 'hold')}")
