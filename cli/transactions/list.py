"""`klamm transactions list`: the transactional ids of all brokers, with the columns of `kafka-transactions list`."""

from __future__ import annotations

import click

from klamm.cli.shell.parameters import Whole
from klamm.cli.tools.commands import Client, fail_together, json_option, show, with_client
from klamm.cli.transactions.verb import CLIENT_ID

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
HEAD = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE")


@click.command("list", short_help="List transactional ids.")
@with_client(CLIENT_ID)
@click.option("--state", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only this state. Repeatable.")
@click.option("--producer-id", "producer_ids", type=Whole(0), multiple=True, metavar="ID", help="Only this producer id. Repeatable.")
@click.option("--open-for-ms", type=Whole(0), metavar="MS", help="Only transactions that have been open for longer.")
@json_option
async def command(
    client: Client, states: tuple[str, ...], producer_ids: tuple[int, ...], open_for_ms: int | None, as_json: bool
) -> None:
    """List the transactional ids of all brokers, each with its coordinator, producer id and state.

    If a broker cannot be reached, the transactional ids of the others are printed, and the exit code is 1.

    \b
    klamm transactions list --bootstrap-server localhost:9092 --state Ongoing --open-for-ms 60000
    """
    listed = await client.list_transactions(states or None, producer_ids or None, min_duration_ms=open_for_ms)
    rows = [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in listed.found.values()]
    show("transactions", HEAD, rows, as_json, "transactional id")
    fail_together([f"broker {broker}: {error}" for broker, error in listed.errors.items()])
