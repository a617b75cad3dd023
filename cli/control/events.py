"""`klamm control events`: what happens to the cluster, as it happens."""

from __future__ import annotations

import json

import click

from klamm.cli.control.client import ControlApi, control_command, print_line, until_interrupted
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say


@click.command("events", short_help="Show events as they happen.")
@click.option("--after", type=int, default=0, metavar="NUMBER", help="Only events with a higher number. Default: all that are remembered.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N events. Default: go on until Ctrl-C.")
@control_command(json_help="Print each event as one line of JSON.")
def command(api: ControlApi, after: int, count: int | None) -> None:
    """Show what happens: holds and faults that are added, brokers that start and end, controllers, requests.

    \b
    klamm control events --count 1
    """
    with until_interrupted():
        for seen, event in enumerate(api.events(after), 1):
            if api.as_json:
                print_line(event)
            else:
                say(printable(f"{event['number']}  {event['kind']}  {json.dumps(event['data'])}"))
            if seen == count:
                return
