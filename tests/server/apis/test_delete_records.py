"""DeleteRecords: the log start offset moves, and the response waits for the live followers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.apis import delete_records
from klamm.server.security.authorizer import Operation
from klamm.tests.broker import update_metadata
from klamm.tests.server.logged_broker import Logged, asked_for
from klamm.tests.services import Denying, make_context, respond

DELETE_RECORDS = 21
VERSIONS = range(messages.APIS[DELETE_RECORDS].min_version, messages.APIS[DELETE_RECORDS].max_version + 1)
OUT_OF_RANGE, TIMED_OUT = ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REQUEST_TIMED_OUT


def deleted(*partitions: tuple[str, int, int], timeout_ms: int = 30_000) -> Any:
    asked = messages.DeleteRecordsRequest
    topics = [
        asked.DeleteRecordsTopic(name=topic, partitions=[asked.DeleteRecordsPartition(partition_index=index, offset=offset)])
        for topic, index, offset in partitions
    ]
    return asked(topics=topics, timeout_ms=timeout_ms)


async def rows(logged: Logged, asked: Any, version: int = 2) -> list[tuple[int, int, int]]:
    """(partition, error code, low watermark) each."""
    response = await respond(logged.services, asked, version)
    return [(row.partition_index, row.error_code, row.low_watermark) for topic in response.topics for row in topic.partitions]


async def with_records(index: int = 0, count: int = 5, **properties: object) -> Logged:
    logged = Logged(None, **properties)
    await logged.rows(asked_for(("t", index, record_batch(b"v", count))))
    return logged


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_before_the_offset_are_gone(version: int) -> None:
    logged = await with_records()
    assert await rows(logged, deleted(("t", 0, 3)), version) == [(0, 0, 3)]
    assert (logged.partition(0).log_start_offset, logged.partition(0).log_end_offset) == (3, 5)
    assert await rows(logged, deleted(("t", 0, 1)), version) == [(0, 0, 3)]
    assert await rows(logged, deleted(("t", 0, -1)), version) == [(0, 0, 5)]


async def test_every_partition_has_its_own_result_and_the_last_entry_of_one_counts() -> None:
    logged = await with_records()
    asked = [("t", 0, 6), ("t", 2, 0), ("t", 3, 0), ("t", 9, 0), ("u", 0, 0), ("__consumer_offsets", 0, 0), ("t", 4, -2), ("t", 0, 2)]
    assert await rows(logged, deleted(*asked)) == [
        (0, ErrorCode.NONE, 2),
        (2, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (3, ErrorCode.KAFKA_STORAGE_ERROR, -1),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (4, OUT_OF_RANGE, -1),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
    ]


async def test_offsets_above_the_high_watermark_are_out_of_range() -> None:
    logged = await with_records()
    assert await rows(logged, deleted(("t", 0, 6))) == [(0, OUT_OF_RANGE, -1)]
    logged = await with_records(1)
    assert await rows(logged, deleted(("t", 1, 1))) == [(1, OUT_OF_RANGE, -1)], "the follower has nothing yet"


async def test_a_compacted_topic_keeps_its_records() -> None:
    logged = await with_records(log_cleanup_policy="compact", count=0)
    assert await rows(logged, deleted(("t", 0, 0))) == [(0, ErrorCode.POLICY_VIOLATION, -1)]


async def test_deletion_needs_delete_on_the_topic() -> None:
    logged = Logged(Denying((Operation.DELETE, "t")))
    assert await rows(logged, deleted(("t", 0, 0))) == [(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)]


def fetched(logged: Logged, offset: int, log_start_offset: int) -> None:
    logged.services.replicas.follower_requested(2)
    logged.services.replicas.follower_fetched(logged.partition(1), 2, -1, offset, log_start_offset)


async def test_the_response_waits_until_the_live_followers_have_deleted_the_records_too() -> None:
    logged = await with_records(1)
    fetched(logged, 5, 0)
    pending = delete_records.handle(make_context(logged.services, DELETE_RECORDS, 2), deleted(("t", 1, 4)))
    task = asyncio.ensure_future(pending)
    for start in (0, 3):
        fetched(logged, 5, start)
        await asyncio.sleep(0)
        assert not task.done()
    fetched(logged, 5, 4)
    row = (await task).topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (0, 4)
    assert logged.partition(1).waiters == ()


async def test_offset_minus_1_is_the_high_watermark_and_not_the_end_of_the_log() -> None:
    logged = await with_records(1)
    fetched(logged, 3, 0)
    pending = delete_records.handle(make_context(logged.services, DELETE_RECORDS, 2), deleted(("t", 1, -1)))
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    assert (logged.partition(1).log_start_offset, logged.partition(1).log_end_offset) == (3, 5)
    fetched(logged, 3, 3)
    row = (await task).topics[0].partitions[0]
    assert (row.error_code, row.low_watermark) == (0, 3)


async def waiting(logged: Logged, offset: int = 3) -> asyncio.Task[Any]:
    fetched(logged, offset, 0)
    pending = delete_records.handle(make_context(logged.services, DELETE_RECORDS, 2), deleted(("t", 1, offset), timeout_ms=3_600_000))
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    assert not task.done()
    return task


def follow(logged: Logged) -> None:
    """Broker 2 leads t-1 now."""
    lead = messages.LeaderAndIsrRequest
    state = lead.LeaderAndIsrPartitionState(
        partition_index=1, leader=2, leader_epoch=20, isr=(1, 2), replicas=(1, 2), controller_epoch=1
    )
    topic = lead.LeaderAndIsrTopicState(topic_name="t", topic_id=(1).to_bytes(16, "big"), partition_states=[state])
    request = lead(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[topic])
    replicas = logged.services.replicas
    replicas.apply(replicas.handle_leader_and_isr(request, 7, 1).effects)


async def test_a_broker_that_follows_now_does_not_say_that_all_have_deleted_the_records() -> None:
    logged = await with_records(1)
    task = await waiting(logged)
    follow(logged)
    log = logged.partition(1).log
    assert log is not None
    log.follow_high_watermark(5)
    logged.partition(1).changed()
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


async def test_the_death_of_a_follower_is_no_reason_to_look_again_as_with_kafka() -> None:
    logged = await with_records(1)
    task = await waiting(logged)
    logged.services.metadata.update(update_metadata.update(brokers=[update_metadata.broker(1)]))
    assert logged.services.replicas.low_watermark(logged.partition(1)) == 3
    logged.partition(1).changed()
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


async def test_a_leadership_that_is_lost_while_the_log_is_opened_deletes_nothing() -> None:
    logged = Logged()
    task = asyncio.ensure_future(delete_records.handle(make_context(logged.services, DELETE_RECORDS, 2), deleted(("t", 1, 0))))
    await asyncio.sleep(0)
    assert logged.partition(1).log is None
    follow(logged)
    assert (await task).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_after_the_time_out_the_low_watermark_is_that_of_the_beginning() -> None:
    logged = await with_records(1)
    fetched(logged, 5, 0)
    assert await rows(logged, deleted(("t", 1, 4), timeout_ms=0)) == [(1, TIMED_OUT, 0)]
    assert logged.partition(1).waiters == ()
    assert logged.partition(1).log_start_offset == 4


def test_a_refused_request_names_its_partitions() -> None:
    response = delete_records.refuse(deleted(("t", 0, 1), ("u", 3, 1)), 2, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [(t.name, p.partition_index, p.error_code, p.low_watermark) for t in response.topics for p in t.partitions] == [
        ("t", 0, -1, -1),
        ("u", 3, -1, -1),
    ]
