"""`klamm transactions producers`: producers of partitions, with the columns of `kafka-transactions describe-producers`."""

from __future__ import annotations

import click

from klamm.cli.tools.chosen_topics import TOPIC, ChosenTopic, partitions_of
from klamm.cli.tools.commands import Client, fail_together, json_option, show, with_client
from klamm.cli.transactions.verb import CLIENT_ID

HEAD = (
    "TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH", "LAST-SEQUENCE", "LAST-TIMESTAMP",
    "TRANSACTION-START-OFFSET",
)


@click.command("producers", short_help="Show producers of partitions and their open transactions.")
@click.argument("topics", type=TOPIC, nargs=-1, required=True, metavar="NAME[:PARTITION,…]…")
@with_client(CLIENT_ID)
@json_option
async def command(client: Client, topics: tuple[ChosenTopic, ...], as_json: bool) -> None:
    """Show the producers that partitions know. A producer with a start offset has an open transaction.

    \b
    klamm transactions producers orders:0,1 refunds --bootstrap-server localhost:9092
    """
    described = await client.describe_producers(await partitions_of(client, topics))
    rows = [
        (
            *partition, each.producer_id, each.producer_epoch, each.coordinator_epoch, each.last_sequence, each.last_timestamp,
            each.transaction_start_offset,
        )
        for partition, active in described.found.items()
        for each in sorted(active)
    ]
    show("producers", HEAD, rows, as_json)
    fail_together([f"{partition}: {error}" for partition, error in described.errors.items()])
