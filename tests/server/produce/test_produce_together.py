"""Produce requests of one connection that came together and differ in their records only are appended together."""

from __future__ import annotations

import asyncio

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import TRANSACTIONAL, crc_is_right, each_header
from klamm.protocol.records.record import Record, encode_batch
from klamm.server.security.authorizer import Operation
from klamm.tests.server.logged_broker import GOOD, asked_for, fetched_by_2
from klamm.tests.server.produce.produce_connection import Connection, Queue, payload, rows_of, together
from klamm.tests.services import Denying

VERSIONS = range(3, APIS[ApiKey.PRODUCE].max_version + 1)
RECORDS = [Record(0, 1, None, b"v")]
PRODUCER = encode_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0)
TRANSACTION = encode_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
NOBODYS_TRANSACTION = encode_batch(RECORDS, attributes=TRANSACTIONAL)
BAD_CRC = GOOD[:-1] + b"\1"


@pytest.mark.parametrize("version", VERSIONS)
async def test_requests_that_came_together_are_appended_together_and_answered_one_by_one(version: int) -> None:
    connection = await Connection.made()
    batches = [record_batch(b"v" * size, count) for size, count in ((5, 1), (9, 3), (0, 2))]
    response, queue = await together(
        connection, *[payload(asked_for(("t", 0, batch)), version, number) for number, batch in enumerate(batches)]
    )
    assert rows_of(response, version) == [(0, 0, 0), (1, 0, 1), (2, 0, 4)]
    assert queue.left == []
    log = connection.logged.partition(0).log
    assert log is not None
    assert [len(segment.chunks) for segment in log.segments] == [1]
    stored = log.read(0, 1 << 20, 6, True)
    assert isinstance(stored, bytes)
    assert [(h.base_offset, h.record_count, h.leader_epoch) for _, h in each_header(stored)] == [(0, 1, 5), (1, 3, 5), (4, 2, 5)]
    assert all(crc_is_right(stored, header, position) for position, header in each_header(stored))
    second = log.read(2, 1 << 20, 6, True)
    assert isinstance(second, bytes) and second == stored[len(batches[0]) :]


@pytest.mark.parametrize(
    "other",
    [
        payload(asked_for(("t", 1, GOOD))),
        payload(asked_for(("t", 0, GOOD)), version=8),
        payload(asked_for(("t", 0, GOOD)), client_id="other"),
        payload(asked_for(("t", 0, GOOD), timeout_ms=1)),
        payload(asked_for(("t", 0, GOOD), acks=-1)),
        payload(asked_for(("t", 0, GOOD), transactional_id="tx")),
        payload(asked_for(("t", 0, None))),
        payload(asked_for(("t", 0, b""))),
        payload(asked_for(("t", 0, BAD_CRC))),
        payload(asked_for(("t", 0, PRODUCER))),
        payload(asked_for(("t", 0, TRANSACTION))),
        payload(asked_for(("t", 0, NOBODYS_TRANSACTION))),
        payload(asked_for(("t", 0, record_batch(bytes(40_000))))),
    ],
    ids=["partition", "version", "client id", "time-out", "acks", "transactional id", "null", "empty", "crc", "producer", "transactional",
         "transactional without a producer", "long"],
)
async def test_what_is_not_like_the_first_request_or_must_be_judged_stays(other: bytes) -> None:
    connection = await Connection.made()
    first = payload(asked_for(("t", 0, GOOD)))
    response, queue = await together(connection, first, first, other, first)
    assert rows_of(response) == [(77, 0, 0), (77, 0, 1)]
    assert queue.left == [other, first]


@pytest.mark.parametrize("properties", [{"compression_type": "zstd"}, {"log_message_timestamp_type": "LogAppendTime"}])
async def test_records_that_the_topic_changes_are_appended_one_by_one(properties: dict[str, object]) -> None:
    connection = await Connection.made(None, **properties)
    first = payload(asked_for(("t", 0, GOOD)))
    response, queue = await together(connection, first, first)
    assert rows_of(response) == [(77, 0, 0)]
    assert queue.left == [first]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_requests_of_old_versions_are_appended_one_by_one(version: int) -> None:
    connection = await Connection.made()
    first = payload(asked_for(("t", 0, GOOD)), version)
    response, queue = await together(connection, first, first)
    assert rows_of(response, version) == [(77, 0, 0)]
    assert queue.left == [first]


async def test_together_they_are_not_longer_than_a_segment() -> None:
    connection = await Connection.made(None, **{"log.segment.bytes": 3 * len(GOOD)})
    first = payload(asked_for(("t", 0, GOOD)))
    response, queue = await together(connection, *[first] * 5)
    assert len(rows_of(response)) == 3
    assert queue.left == [first] * 2


async def test_permissions_are_checked_and_each_request_has_its_response() -> None:
    connection = await Connection.made(Denying((Operation.WRITE, "t")))
    first = payload(asked_for(("t", 0, GOOD)))
    response, queue = await together(connection, first, first)
    assert rows_of(response) == [(77, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)]
    assert queue.left == [first]
    allowed = await Connection.made(Denying((Operation.WRITE, "u")))
    response, queue = await together(allowed, first, first)
    assert rows_of(response) == [(77, 0, 0), (77, 0, 1)]
    assert queue.left == []


async def test_too_few_replicas_in_sync_are_told_to_each() -> None:
    connection = await Connection.made(min_insync_replicas=2)
    connection.logged.partition(1).isr = (1,)
    first = payload(asked_for(("t", 1, GOOD), acks=-1))
    response, queue = await together(connection, first, first)
    assert rows_of(response) == [(77, ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert queue.left == [first]


async def test_requests_for_which_there_is_no_room_are_left() -> None:
    connection = await Connection.made()
    log = connection.logged.partition(0).log
    assert log is not None
    log.is_failed = True
    data = payload(asked_for(("t", 0, GOOD)))
    response, queue = await together(connection, data, data)
    assert rows_of(response) == [(77, ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert queue.left == [data]


async def test_without_acks_there_are_no_responses() -> None:
    connection = await Connection.made()
    first = payload(asked_for(("t", 0, GOOD), acks=0))
    assert (await together(connection, first, first, first))[0] == b""
    assert connection.end() == 3


async def test_acks_of_all_wait_for_the_last_one() -> None:
    connection = await Connection.made()
    first, *more = [payload(asked_for(("t", 1, GOOD), acks=-1), correlation_id=number) for number in range(3)]
    connection.learn(first)
    pending = asyncio.ensure_future(connection.begin(first, Queue(*more)))
    for offset in range(3):
        await fetched_by_2(connection.logged, 1, offset)
        await asyncio.sleep(0)
        assert not pending.done()
    await fetched_by_2(connection.logged, 1, 3)
    assert rows_of(await pending) == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]


async def test_of_requests_that_time_out_together_those_whose_records_are_replicated_succeed() -> None:
    connection = await Connection.made()
    first, *more = [payload(asked_for(("t", 1, GOOD), acks=-1, timeout_ms=30), correlation_id=number) for number in range(3)]
    connection.learn(first)
    pending = asyncio.ensure_future(connection.begin(first, Queue(*more)))
    await asyncio.sleep(0)
    await fetched_by_2(connection.logged, 1, 2)
    timed_out = int(ErrorCode.REQUEST_TIMED_OUT)
    assert rows_of(await pending) == [(0, 0, 0), (1, 0, 1), (2, timed_out, 2)]


async def test_a_fault_is_told_to_all_of_them(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    connection = await Connection.made()

    def fail(*_: object) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(connection.logged.services.replicas, "append_run", fail)
    first = payload(asked_for(("t", 0, GOOD)))
    response, queue = await together(connection, first, first)
    assert [code for _, code, _ in rows_of(response)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert queue.left == []
    assert "unexpected exception in Produce" in caplog.text
