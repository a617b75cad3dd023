"""`klamm control wait-for-configs`: waits for changes of configs and ACLs that brokers have not processed yet."""

from __future__ import annotations

import click

from klamm.cli.control.client import ControlApi, control_command, print_line


@click.command("wait-for-configs", short_help="Wait until all brokers have processed the last changes of configs and ACLs.")
@click.option("--timeout-ms", type=int, metavar="MS", default=30_000, show_default=True, help="How long to wait.")
@control_command()
def command(api: ControlApi, timeout_ms: int) -> None:
    """Wait until all running brokers have processed the last changes of dynamic configs, users, quotas and ACLs. A request that changes
    them gets its response before.
    """
    response = api.get("configs", "processed", timeout_ms=timeout_ms)
    if api.as_json:
        print_line(response)
