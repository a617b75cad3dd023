"""DescribeProducers: what a log knows of its producers."""

from __future__ import annotations

from typing import Any

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import computed_crc, read_header, write_header
from klamm.server.security.authorizer import Operation
from klamm.tests.server.logged_broker import GOOD, Logged, asked_for
from klamm.tests.services import Denying, respond


def described(*partitions: tuple[str, int]) -> Any:
    asked = messages.DescribeProducersRequest
    return asked(topics=[asked.TopicRequest(name=topic, partition_indexes=(index,)) for topic, index in partitions])


def batch_of(producer_id: int, epoch: int, sequence: int, count: int = 1) -> bytes:
    """A batch of an idempotent producer."""
    plain = record_batch(b"v", count)
    header = read_header(plain)._replace(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    unsealed = write_header(header) + plain[61:]
    return write_header(header._replace(crc=computed_crc(unsealed, 0, len(unsealed)))) + plain[61:]


async def test_the_last_batch_of_each_producer_is_described() -> None:
    logged = Logged()
    for batch in (batch_of(7, 0, 0, 2), batch_of(7, 0, 2, 3), batch_of(9, 4, 0), GOOD):
        assert [row.error_code for row in await logged.rows(asked_for(("t", 0, batch)))] == [0]
    response = await respond(logged.services, described(("t", 0)), 0)
    rows = response.topics[0].partitions[0].active_producers
    assert [(row.producer_id, row.producer_epoch, row.last_sequence, row.current_txn_start_offset) for row in rows] == [
        (7, 0, 4, -1),
        (9, 4, 0, -1),
    ]
    assert all(row.last_timestamp > 0 for row in rows)


async def test_every_partition_has_its_own_code() -> None:
    response = await respond(Logged().services, described(("t", 1), ("t", 2), ("t", 3), ("t", 9), ("unknown", 0)), 0)
    rows = [row for topic in response.topics for row in topic.partitions]
    assert [(row.error_code, row.active_producers) for row in rows] == [
        (ErrorCode.NONE, []),
        (ErrorCode.NONE, []),
        (ErrorCode.KAFKA_STORAGE_ERROR, []),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


async def test_producers_need_read_on_the_topic() -> None:
    response = await respond(Logged(Denying((Operation.READ, "t"))).services, described(("t", 0)), 0)
    assert response.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
