"""Produce requests that repeat one another on a connection, or come together: responses and logs are those of requests one by one."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.benchmarks.data_clusters import record_batch
from klamm.broker.log.log import Log
from klamm.protocol.apis import APIS, ApiKey
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.listeners.connection import ClientConnection
from klamm.server.listeners.listener_security import ListenerSecurity
from klamm.server.listeners.unread_responses import UnreadResponses
from klamm.server.net.tap import BrokerTap
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.security.authorizer import Principal
from klamm.tests.server.logged_broker import asked_for
from klamm.tests.server.net.fake_transport import FakeTransport
from klamm.tests.server.produce.produce_connection import Connection, payload

VERSIONS = range(APIS[ApiKey.PRODUCE].min_version, APIS[ApiKey.PRODUCE].max_version + 1)
BATCH = record_batch(b"v" * 200)
DAY_MS = 24 * 3600 * 1000

FIELDS = {"offset": (0, "q"), "magic": (16, "b"), "attributes": (21, "h"), "last delta": (23, "i"), "base time": (27, "q"),
          "max time": (35, "q"), "producer": (43, "q"), "producer epoch": (51, "h"), "sequence": (53, "i"), "count": (57, "i")}


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def changed(batch: bytes, position: int, value: bytes, is_crc_right: bool) -> bytes:
    """The batch with other bytes at a position, and a CRC that covers them or the one that was there."""
    made = batch[:position] + value + batch[position + len(value) :]
    return made[:17] + struct.pack(">I", crc32c(made[21:])) + made[21:] if is_crc_right else made


class Transport(FakeTransport):
    """May be told to pause, and brings nothing by itself."""

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Wire:
    """A connection of a broker of its own to a client that sends `data` and reads what comes back."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name, self.dispatcher, self.clock = "PLAINTEXT", connection.dispatcher, SYSTEM_CLOCK
        self.tap: BrokerTap | None = None
        self.security: ListenerSecurity | None = None
        self.max_request_bytes = 1 << 20
        self.unread = UnreadResponses()
        self.transport = Transport()
        self.requests: list[asyncio.Task[bytes | None]] = []
        self.protocol = ClientConnection(self, asyncio.get_running_loop())
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    def connection_id(self, peer: str) -> str:
        return peer

    def responses_of(self, principal: Principal) -> ResponseCache:
        return self.connection.peer.responses

    def opened(self, connection: ClientConnection) -> None:
        pass

    def lost(self, connection: ClientConnection) -> None:
        pass

    def begun(self, request: asyncio.Task[bytes | None]) -> None:
        self.requests.append(request)

    def log_closing(self, connection: ClientConnection, reason: str) -> None:
        raise AssertionError(reason)

    async def send(self, *pieces: bytes) -> bytes:
        """The responses to what these pieces, read one by one, are together."""
        self.transport.writes.clear()
        for piece in pieces:
            self.protocol.data_received(piece)
            while self.requests:
                await self.requests.pop()
        return b"".join(self.transport.writes)


def log_of(connection: Connection) -> Log:
    log = connection.logged.partition(0).log
    assert log is not None
    return log


def state(connection: Connection) -> dict[str, Any]:
    """Everything that an append changes."""
    log = log_of(connection)
    found: dict[str, Any] = {
        name: getattr(log, name) for name in ("next_offset", "log_end_offset", "high_watermark", "last_stable_offset", "log_start_offset")
    }
    found["used"], found["tick"] = log.environment.budget.used, log.environment.budget.tick
    found["epochs"] = log.epochs.entries
    for segment in log.segments:
        skipped = ("created_ms", "roll_jitter_ms")
        found[f"segment {segment.base_offset}"] = {name: getattr(segment, name) for name in segment.__slots__ if name not in skipped}
    return found


field_changes = st.tuples(st.sampled_from(sorted(FIELDS)), st.sampled_from([-2, -1, 0, 1, 2, 5, 16, 32, 64]), st.booleans())
byte_changes = st.tuples(st.integers(61, 80), st.integers(0, 255), st.booleans())
batches = st.builds(
    lambda size, count, field, byte, cut: (size, count, field, byte, cut),
    st.sampled_from([0, 1, 30, 100, 1000, 4000, 17_000]),
    st.sampled_from([1, 1, 2, 8]),
    st.none() | field_changes,
    st.none() | byte_changes,
    st.sampled_from([0, 0, 0, 1, 70]),
)


def made(size: int, count: int, field: Any, byte: Any, cut: int) -> bytes:
    batch = record_batch(b"v" * size, count)
    if field is not None:
        position, form = FIELDS[field[0]]
        value = field[1] if "time" not in field[0] else struct.unpack_from(">q", batch, 27)[0] + field[1] * DAY_MS
        batch = changed(batch, position, struct.pack(">" + form, value), field[2])
    if byte is not None and len(batch) > byte[0]:
        batch = changed(batch, byte[0], bytes([byte[1]]), byte[2])
    return batch[: len(batch) - cut]


@settings(max_examples=60, deadline=None)
@given(
    version=st.sampled_from(VERSIONS),
    sent=st.lists(st.tuples(batches, st.sampled_from(["alone", "alone", "in two", "with the next"])), min_size=1, max_size=12),
    properties=st.sampled_from([{}, {"log.segment.bytes": 3000}, {"log.index.interval.bytes": 100}, {"message.max.bytes": 900}]),
)
def test_whatever_is_sent_the_responses_and_the_log_are_those_of_requests_one_by_one(
    version: int, sent: list[tuple[Any, str]], properties: dict[str, Any]
) -> None:
    asyncio.run(compare(version, sent, properties))


async def compare(version: int, sent: list[tuple[Any, str]], properties: dict[str, Any]) -> None:
    connection, handled = await Connection.made(None, **properties), await Connection.made(None, **properties)
    wire = Wire(connection)
    pending = b""
    expected, got = [], []
    for number, (shape, how) in enumerate(sent):
        request = payload(asked_for(("t", 0, made(*shape))), version, number)
        expected.append(await handled.handled(request) or b"")
        frame = framed(request)
        if how == "with the next":
            pending += frame
            continue
        middle = len(frame) // 2
        got.append(await (wire.send(pending, frame[:middle], frame[middle:]) if how == "in two" else wire.send(pending + frame)))
        pending = b""
    if pending:
        got.append(await wire.send(pending))
    assert b"".join(got) == b"".join(expected)
    left, right = state(connection), state(handled)
    if any(how == "with the next" for _, how in sent):  # appended together: other chunks, other places where segments begin
        left, right = whole(left), whole(right)
    assert left == right


def whole(found: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on how many batches are appended together."""
    kept = {name: value for name, value in found.items() if not name.startswith("segment") and name not in ("used", "tick")}
    return kept | {"data": b"".join(chunk for name, segment in found.items() if name.startswith("segment") for chunk in segment["chunks"])}


@pytest.mark.parametrize("name", ["follower", "recovering", "failed", "truncating"])
async def test_requests_together_for_a_log_that_cannot_be_appended_to_have_the_errors_of_requests_one_by_one(name: str) -> None:
    connection = await Connection.made()
    wire = Wire(connection)
    requests = [payload(asked_for(("t", 0, BATCH)), 9, number) for number in range(3)]
    assert await wire.send(framed(requests[0]))
    partition, log = connection.logged.partition(0), log_of(connection)
    assert partition.leadership is not None
    if name == "follower":
        partition.role = type(partition.role).FOLLOWER
    elif name == "recovering":
        partition.leadership.recovering = True
    elif name == "failed":
        log.is_failed = True
    else:
        log.begin_truncation()
    expected = b"".join([await connection.handled(request) or b"" for request in requests])
    assert await wire.send(b"".join(map(framed, requests))) == expected
    assert log.next_offset == 1


async def test_a_new_leader_epoch_is_in_the_next_batch() -> None:
    connection = await Connection.made()
    wire = Wire(connection)
    request = framed(payload(asked_for(("t", 0, BATCH))))
    await wire.send(request)
    connection.logged.partition(0).leader_epoch += 1
    await wire.send(request)
    epoch = connection.logged.partition(0).leader_epoch
    assert log_of(connection).epochs.entries[-1] == (epoch, 1)


async def test_requests_for_two_partitions_in_turn_go_where_they_should() -> None:
    connection = await Connection.made()
    wire = Wire(connection)
    for index in (0, 1, 0):
        await wire.send(framed(payload(asked_for(("t", index, BATCH)))))
    assert (connection.end(0), connection.end(1)) == (2, 1)
