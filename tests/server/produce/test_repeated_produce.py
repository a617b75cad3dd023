"""Produce requests that are handled from their bytes: what they do and what they get is the same as from the handler."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.framing import FrameReader
from klamm.protocol.records.batch import crc_is_right, each_header
from klamm.server.produce.produce_prefix import FIRST_VERSION, LAST_VERSION, read_prefix
from klamm.tests.server.logged_broker import GOOD, asked_for, fetched_by_2
from klamm.tests.server.produce.produce_connection import Connection, payload
from klamm.tests.services import Denying

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
LONG_NAME = "t" * 200


def decoded(frame: bytes, version: int) -> tuple[int, Any]:
    correlation_id, offset = messages.decode_response_header(0, version, frame[4:])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return correlation_id, messages.decode("ProduceResponse", version, frame[4:], offset)[0]


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_response_is_that_of_the_handler_but_for_the_offset(version: int) -> None:
    connection = await Connection.made()
    data = payload(asked_for(("t", 0, GOOD)), version)
    first = await connection.handled(data)
    second = connection.short(data)
    assert first is not None
    for frame, offset in ((first, 0), (second, 1), (connection.short(data), 2)):
        correlation_id, response = decoded(frame, version)
        row = response.responses[0].partition_responses[0]
        assert (correlation_id, row.base_offset, row.error_code) == (77, offset, 0)
    assert len(first) == len(second)
    assert connection.end() == 3


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_of_any_length_are_taken_as_they_are(version: int) -> None:
    connection = await Connection.made()
    for count, size in ((1, 1), (1, 100), (3, 1000), (20, 2000)):
        batch = record_batch(bytes(size), count)
        end = connection.end()
        assert connection.short(payload(asked_for(("t", 0, batch)), version))
        stored = connection.logged.partition(0).log
        assert stored is not None
        assert bytes(stored.read(end, 1 << 20, end + count, True))[21:] == batch[21:]  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
async def test_without_acks_nothing_is_sent(version: int) -> None:
    connection = await Connection.made()
    assert connection.short(payload(asked_for(("t", 0, GOOD), acks=0), version)) == b""
    assert connection.end() == 1


async def test_log_append_time_is_named() -> None:
    connection = await Connection.made(log_message_timestamp_type="LogAppendTime")
    _, response = decoded(connection.short(payload(asked_for(("t", 0, GOOD)))), 9)
    assert response.responses[0].partition_responses[0].log_append_time_ms > 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "asked",
    [
        asked_for(("t", 0, GOOD), ("t", 1, GOOD)),
        asked_for(("t", 0, GOOD), ("u", 0, GOOD)),
        asked_for(("t", 0, GOOD), transactional_id="tx"),
        asked_for(("t", 0, GOOD), acks=2),
        asked_for(("t", 0, None)),
        asked_for(("t", 2, GOOD)),
        asked_for(("t", 3, GOOD)),
        asked_for(("t", 4, GOOD)),
        asked_for(("t", 9, GOOD)),
        asked_for(("u", 0, GOOD)),
        asked_for(("__consumer_offsets", 0, GOOD)),
        asked_for(("t", 0, GOOD[:-1] + b"\1")),
        asked_for(("t", 0, b"")),
        asked_for(("t", 0, record_batch(bytes(300_000)))),
        asked_for(),
    ],
    ids=["two partitions", "two topics", "transactional id", "acks", "null", "follower", "offline", "no log", "no partition", "no topic",
         "internal", "crc", "empty", "long", "nothing"],
)
async def test_whatever_is_not_usual_is_left_to_the_handler_with_nothing_done(asked: Any, version: int) -> None:
    connection = await Connection.made()
    assert connection.short(payload(asked, version)) is None
    assert (connection.end(0), connection.end(1)) == (0, 0)


async def test_a_cut_request_is_left_to_the_handler() -> None:
    for version in VERSIONS:
        connection = await Connection.made()
        whole = payload(asked_for(("t", 0, GOOD)), version)
        assert connection.short(whole) is not None
        for end in range(len(whole)):
            assert connection.short(whole[:end]) is None, end
            assert read_prefix(whole[: min(end, 20)]) is None
        assert connection.end() == 1


async def test_a_broker_that_checks_permissions_decodes_every_request() -> None:
    connection = await Connection.made(Denying())
    assert connection.short(payload(asked_for(("t", 0, GOOD)))) is None


async def test_a_config_that_changed_is_that_of_the_next_request() -> None:
    connection = await Connection.made()
    data = payload(asked_for(("t", 0, record_batch(b"v" * 200))))
    assert connection.short(data) is not None
    log = connection.logged.partition(0).log
    assert log is not None
    log.config = dataclasses.replace(log.config, rules=dataclasses.replace(log.config.rules, max_message_bytes=100))
    assert connection.short(data) is None
    assert connection.end() == 1


async def test_requests_for_several_partitions_in_turn_go_where_they_should() -> None:
    connection = await Connection.made()
    for index in (0, 1, 1, 0, 1):
        connection.short(payload(asked_for(("t", index, GOOD))))
    assert (connection.end(0), connection.end(1)) == (2, 3)


async def test_another_client_id_or_time_out_or_version_is_another_prefix() -> None:
    connection = await Connection.made()
    connection.short(payload(asked_for(("t", 0, GOOD)), client_id="aa"))
    assert connection.peer.repeated is not None
    before = connection.peer.repeated
    connection.short(payload(asked_for(("t", 0, GOOD)), client_id="ab"))
    assert connection.peer.repeated is not before
    assert connection.end() == 2


async def test_acks_of_all_are_a_future_for_the_response() -> None:
    connection = await Connection.made()
    response = connection.short(payload(asked_for(("t", 1, GOOD), acks=-1), correlation_id=5))
    assert isinstance(response, asyncio.Future) and not response.done()
    await fetched_by_2(connection.logged, 1, 1)
    frame = await response
    correlation_id, decoded_response = decoded(frame or b"", 9)
    row = decoded_response.responses[0].partition_responses[0]
    assert (correlation_id, row.error_code, row.base_offset) == (5, 0, 0)


async def test_acks_of_all_that_time_out_are_told_so() -> None:
    connection = await Connection.made()
    response = connection.short(payload(asked_for(("t", 1, GOOD), acks=-1, timeout_ms=0), correlation_id=5))
    correlation_id, decoded_response = decoded(await response, 9)
    row = decoded_response.responses[0].partition_responses[0]
    assert (correlation_id, row.error_code, row.base_offset) == (5, ErrorCode.REQUEST_TIMED_OUT, 0)
    assert connection.logged.partition(1).waiters == ()


async def test_a_partition_that_is_led_elsewhere_now_is_left_to_the_handler() -> None:
    connection = await Connection.made()
    data = payload(asked_for(("t", 0, GOOD)))
    assert connection.short(data) is not None
    connection.logged.services.replicas.fail_log_dir([("t", 0)])
    assert connection.short(data) is None
    _, response = decoded(await connection.handled(data) or b"", 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_long_topic_name_is_no_problem() -> None:
    for version in VERSIONS:
        connection = await Connection.made()
        assert connection.short(payload(asked_for((LONG_NAME, 0, GOOD)), version)) is None


class Queue:
    """Requests that came behind one."""

    def __init__(self, *payloads: bytes) -> None:
        self.left = list(payloads)

    def peek(self) -> bytes | None:
        return self.left[0] if self.left else None

    def drop(self) -> None:
        del self.left[0]

    def put_back(self, payloads: list[bytes]) -> None:
        self.left[:0] = payloads


def frames_of(data: bytes) -> list[bytes]:
    return [len(payload).to_bytes(4, "big") + payload for payload in FrameReader().feed(data)]


def rows_of(data: bytes, version: int = 9) -> list[tuple[int, int, int]]:
    """(correlation id, error code, offset) of each response."""
    found = []
    for frame in frames_of(data):
        correlation_id, response = decoded(frame, version)
        row = response.responses[0].partition_responses[0]
        found.append((correlation_id, row.error_code, row.base_offset))
    return found


@pytest.mark.parametrize("version", VERSIONS)
async def test_requests_that_came_together_are_appended_together_and_answered_one_by_one(version: int) -> None:
    connection = await Connection.made()
    batches = [record_batch(b"v" * size, count) for size, count in ((5, 1), (9, 3), (0, 2))]
    first, *more = [payload(asked_for(("t", 0, batch)), version, number) for number, batch in enumerate(batches)]
    queue = Queue(*more)
    response = connection.repeated(connection.peer, first, queue)
    assert isinstance(response, bytes)
    assert rows_of(response, version) == [(0, 0, 0), (1, 0, 1), (2, 0, 4)]
    assert queue.left == []
    log = connection.logged.partition(0).log
    assert log is not None
    stored = log.read(0, 1 << 20, 6, True)
    assert isinstance(stored, bytes)
    assert [(h.base_offset, h.record_count, h.leader_epoch) for _, h in each_header(stored)] == [(0, 1, 5), (1, 3, 5), (4, 2, 5)]
    assert all(crc_is_right(stored, header, position) for position, header in each_header(stored))
    second = log.read(2, 1 << 20, 6, True)
    assert isinstance(second, bytes) and second == stored[len(batches[0]) :]


async def test_what_is_not_like_the_first_request_stays() -> None:
    connection = await Connection.made()
    first = payload(asked_for(("t", 0, GOOD)))
    for other in (
        payload(asked_for(("t", 1, GOOD))),
        payload(asked_for(("t", 0, GOOD)), version=8),
        payload(asked_for(("t", 0, GOOD[:-1] + b"\1"))),
        payload(asked_for(("t", 0, GOOD), acks=-1)),
        payload(asked_for(("t", 0, record_batch(bytes(40_000))))),
    ):
        queue = Queue(other, first)
        response = connection.repeated(connection.peer, first, queue)
        assert isinstance(response, bytes) and len(rows_of(response)) == 1
        assert queue.left == [other, first]


async def test_requests_for_which_there_is_no_room_are_given_back() -> None:
    connection = await Connection.made()
    log = connection.logged.partition(0).log
    assert log is not None
    log.is_failed = True
    data = payload(asked_for(("t", 0, GOOD)))
    queue = Queue(data, data)
    assert connection.repeated(connection.peer, data, queue) is None
    assert queue.left == [data, data]


async def test_of_requests_that_time_out_together_those_whose_records_are_replicated_succeed() -> None:
    connection = await Connection.made()
    first, *more = [payload(asked_for(("t", 1, GOOD), acks=-1, timeout_ms=30), correlation_id=number) for number in range(3)]
    response = connection.repeated(connection.peer, first, Queue(*more))
    assert isinstance(response, asyncio.Future)
    await fetched_by_2(connection.logged, 1, 2)
    timed_out = int(ErrorCode.REQUEST_TIMED_OUT)
    assert rows_of(await response or b"") == [(0, 0, 0), (1, 0, 1), (2, timed_out, 2)]
