"""`klamm groups list`: the groups of all brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.groups.options import CLIENT_ID
from klamm.cli.tools.commands import Place, connection_options, fail_together, json_option, print_json, print_table, run

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient

STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
TYPES = ("classic", "consumer")
HEAD = ("GROUP", "STATE", "TYPE", "PROTOCOL-TYPE", "COORDINATOR")


@click.command("list", short_help="List groups.")
@connection_options
@click.option(
    "--state", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only groups in this state. Repeatable."
)
@click.option(
    "--type", "types", type=click.Choice(TYPES, case_sensitive=False), multiple=True, help="Only groups of this type. Repeatable."
)
@json_option
def command(bootstrap_server: str, command_config: Path | None, states: tuple[str, ...], types: tuple[str, ...], as_json: bool) -> None:
    """List the groups of all brokers, each with its state, type, protocol type and coordinator.

    If a broker cannot be reached, the groups of the others are printed, and the exit code is 1.

    \b
    klamm groups list --bootstrap-server localhost:9092 --state Empty
    """

    async def work(client: AsyncAdminClient) -> None:
        listed = await client.list_groups(states or None, types or None)
        rows = [(g.group_id, g.state, g.type, g.protocol_type or None, g.coordinator) for g in listed.found.values()]
        if as_json:
            print_json("groups", HEAD, rows)
        else:
            print_table(HEAD, rows, "group")
        fail_together([f"broker {broker}: {error}" for broker, error in listed.errors.items()])

    run(Place(bootstrap_server, command_config), CLIENT_ID, work)
