"""`klamm groups list`: the groups of all brokers."""

from __future__ import annotations

import click

from klamm.cli.groups.options import CLIENT_ID
from klamm.cli.tools.commands import Client, fail_together, json_option, show, with_client

STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
TYPES = ("classic", "consumer")
HEAD = ("GROUP", "STATE", "TYPE", "PROTOCOL-TYPE", "COORDINATOR")


@click.command("list", short_help="List groups.")
@with_client(CLIENT_ID)
@click.option(
    "--state", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only groups in this state. Repeatable."
)
@click.option(
    "--type", "types", type=click.Choice(TYPES, case_sensitive=False), multiple=True, help="Only groups of this type. Repeatable."
)
@json_option
async def command(client: Client, states: tuple[str, ...], types: tuple[str, ...], as_json: bool) -> None:
    """List the groups of all brokers, each with its state, type, protocol type and coordinator.

    If a broker cannot be reached, the groups of the others are printed, and the exit code is 1.

    \b
    klamm groups list --bootstrap-server localhost:9092 --state Empty
    """
    listed = await client.list_groups(states or None, types or None)
    rows = [(g.group_id, g.state, g.type, g.protocol_type or None, g.coordinator) for g in listed.found.values()]
    show("groups", HEAD, rows, as_json, "group")
    fail_together([f"broker {broker}: {error}" for broker, error in listed.errors.items()])
