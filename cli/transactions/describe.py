"""`klamm transactions describe`: states of transactional ids, with the columns of `kafka-transactions describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from klamm.cli.tools.commands import fail_together, json_option, print_json, print_table, with_client
from klamm.cli.transactions.verb import CLIENT_ID

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient

HEAD = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "PRODUCER-EPOCH", "STATE", "TIMEOUT-MS", "START-MS", "PARTITIONS")


@click.command("describe", short_help="Show states and partitions of transactional ids.")
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID…")
@with_client(CLIENT_ID)
@json_option
async def command(client: AsyncAdminClient, transactional_ids: tuple[str, ...], as_json: bool) -> None:
    """Show the state of transactional ids: coordinator, producer, state, time-out, start of the last transaction, open partitions.

    If one of them does not exist, the others are printed, and the exit code is 1.

    \b
    klamm transactions describe copier-1 --bootstrap-server localhost:9092
    """
    described = await client.describe_transactions(transactional_ids)
    rows = [
        (
            each.transactional_id, each.coordinator, each.producer_id, each.producer_epoch, each.state, each.timeout_ms, each.start_ms,
            ",".join(map(str, sorted(each.partitions))) or None,
        )
        for each in described.found.values()
    ]
    if as_json:
        print_json("transactions", HEAD, rows)
    else:
        print_table(HEAD, rows)
    fail_together([f"Transactional id '{each}': {error}" for each, error in described.errors.items()])
