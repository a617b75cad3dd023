"""`klamm transactions find-hanging`: transactions that their coordinators have forgotten, as `kafka-transactions find-hanging`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.shell.parameters import Whole
from klamm.cli.tools.chosen_topics import TOPIC, ChosenTopic, partitions_of
from klamm.cli.tools.commands import Place, connection_options, fail_together, json_option, run, show
from klamm.cli.transactions.verb import CLIENT_ID

if TYPE_CHECKING:
    from klamm.admin import ActiveProducer, AsyncAdminClient, TransactionDescription
    from klamm.protocol.nouns import TopicPartition

HEAD = ("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH", "START-OFFSET", "LAST-TIMESTAMP", "DURATION-MIN")
MINUTE_MS = 60_000
DEFAULT_MINUTES = 15
"""The default of `transaction.max.timeout.ms`."""


@click.command("find-hanging", short_help="Find transactions that their coordinators have forgotten.")
@click.argument("topics", type=TOPIC, nargs=-1, metavar="[NAME[:PARTITION,…]]…")
@click.option("--broker-id", type=Whole(0, 2**31 - 1), metavar="ID", help="Search the replicas of this broker, not the leaders.")
@click.option(
    "--max-transaction-timeout", "minutes", type=Whole(0), default=DEFAULT_MINUTES, show_default=True, metavar="MINUTES",
    help="Longest time-out of transactions in the cluster.",
)
@connection_options
@json_option
def command(
    topics: tuple[ChosenTopic, ...], broker_id: int | None, minutes: int, bootstrap_server: str, command_config: Path | None, as_json: bool
) -> None:
    """Find hanging transactions in partitions of these topics, or of all topics if only a broker is given.

    A transaction hangs if its last record is older than the longest time-out, and its coordinator does not know that the partition is in an
    open transaction of the producer. `klamm transactions abort` ends it.

    \b
    klamm transactions find-hanging orders --bootstrap-server localhost:9092
    klamm transactions find-hanging --broker-id 1 --bootstrap-server localhost:9092
    """
    if not topics and broker_id is None:
        raise click.UsageError("Give topics, or --broker-id.")

    async def work(client: AsyncAdminClient) -> None:
        partitions = await _partitions(client, topics, broker_id)
        described = await client.describe_producers(partitions, broker_id=broker_id)
        now_ms = time.time_ns() // 1_000_000
        old = [
            (partition, producer)
            for partition, producers in described.found.items()
            for producer in sorted(producers)
            if producer.transaction_start_offset is not None and now_ms - producer.last_timestamp > minutes * MINUTE_MS
        ]
        known = await _transactions(client, {producer.producer_id for _, producer in old})
        rows = [
            (
                *partition, each.producer_id, each.producer_epoch, each.coordinator_epoch, each.transaction_start_offset,
                each.last_timestamp, (now_ms - each.last_timestamp) // MINUTE_MS,
            )
            for partition, each in hanging(old, known)
        ]
        show("transactions", HEAD, rows, as_json)
        fail_together([f"{partition}: {error}" for partition, error in described.errors.items()])

    run(Place(bootstrap_server, command_config), CLIENT_ID, work)


async def _partitions(client: AsyncAdminClient, topics: tuple[ChosenTopic, ...], broker_id: int | None) -> list[TopicPartition]:
    """The partitions to search: numbers that the user gave are searched as they are, of whole topics those with a replica on the broker."""
    from klamm.cli.tools.client import all_found
    from klamm.protocol.nouns import TopicPartition

    if broker_id is None:
        return await partitions_of(client, topics)
    whole = [topic.name for topic in topics if topic.partitions is None]
    described = all_found(await client.describe_topics(whole or None)) if whole or not topics else {}
    on_broker = {
        TopicPartition(name, one.partition) for name, topic in described.items() for one in topic.partitions if broker_id in one.replicas
    }
    return sorted(on_broker | {TopicPartition(topic.name, number) for topic in topics for number in topic.partitions or ()})


async def _transactions(client: AsyncAdminClient, producer_ids: set[int]) -> dict[int, TransactionDescription]:
    """What coordinators know of these producer ids. Raises the AdminError of a broker that cannot list its transactional ids.

    Raises ToolFailed if an id is listed but cannot be described: its open transactions would look as if they were hanging.
    """
    from klamm.cli.tools.client import failure_of
    from klamm.protocol.errors import ErrorCode

    if not producer_ids:
        return {}
    listed = (await client.list_transactions(producer_ids=producer_ids)).all()
    described = await client.describe_transactions([each.transactional_id for each in listed.values()])
    for transactional_id, error in described.errors.items():
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # otherwise it expired since it was listed
            raise failure_of(error, f"{transactional_id}: ") from error
    return {each.producer_id: each for each in described.found.values()}


def hanging(
    old: Iterable[tuple[TopicPartition, ActiveProducer]], known: Mapping[int, TransactionDescription]
) -> list[tuple[TopicPartition, ActiveProducer]]:
    """Those of the open transactions whose partition is in no transaction that a coordinator knows, by producer id."""
    of_producer = {producer_id: frozenset(each.partitions) for producer_id, each in known.items()}
    return [(partition, each) for partition, each in old if partition not in of_producer.get(each.producer_id, ())]
