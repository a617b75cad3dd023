"""`klamm transactions describe`: states of transactional ids, with the columns of `kafka-transactions describe`."""

from __future__ import annotations

import click

from klamm.cli.tools.commands import Client, fail_together, json_option, show, with_client
from klamm.cli.transactions.verb import CLIENT_ID

HEAD = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "PRODUCER-EPOCH", "STATE", "TIMEOUT-MS", "START-MS", "PARTITIONS")


@click.command("describe", short_help="Show states and partitions of transactional ids.")
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID…")
@with_client(CLIENT_ID)
@json_option
async def command(client: Client, transactional_ids: tuple[str, ...], as_json: bool) -> None:
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
    show("transactions", HEAD, rows, as_json)
    fail_together([f"Transactional id '{each}': {error}" for each, error in described.errors.items()])
