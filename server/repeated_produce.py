"""Produce requests for one partition, which follow one another on a connection and differ in their records only.

Everything in front of the records (client id, acks, time-out, topic, partition) is compared, as bytes, with the last such request of the
connection. When it is the same, the records go straight to the log, and the response is put together from pieces that are encoded already:
nothing is decoded. Whatever is not as expected (an error, a log that is not open, records that cost much, other rules) is left to the
handler, which sees the whole request; then nothing has happened here. Permissions are not checked: this is for brokers that allow all.
"""

from __future__ import annotations

import asyncio
import struct
from struct import Struct
from typing import TYPE_CHECKING

from klamm.broker.metadata_responses import INTERNAL_TOPICS
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.validation import Origin, Refused, costs_much
from klamm.server.apis import produce
from klamm.server.authorizer import AllowAll
from klamm.server.context import Context
from klamm.server.delayed_produce import Appended, DelayedProduce, settled
from klamm.server.services import Services

if TYPE_CHECKING:
    from klamm.broker.log.config import LogConfig
    from klamm.broker.log.log import AppendResult
    from klamm.broker.partition import HostedPartition
    from klamm.server.peer import Peer

FIRST_VERSION, LAST_VERSION = 3, 11
FLEXIBLE_SINCE, LOG_START_SINCE = 9, 5
NO_RESPONSE = b""
MAX_PREFIXES = 10_000

_INT = Struct(">i")
_SHORT = Struct(">h")
_ACKS_AND_TIMEOUT = Struct(">hi")
_MARK = b"\x5a\xa5" * 4
"""Stands for an offset or time in the pieces of a response; the rest of a response has no such bytes by chance."""
_MARKED = int.from_bytes(_MARK, "big")


class Prefix:
    """What is in front of the records: bytes 8 to `end` of the request, and what they say."""

    __slots__ = ("acks", "bytes", "end", "index", "timeout_ms", "topic", "version")

    def __init__(self, payload: bytes, end: int, topic: str, index: int, acks: int, timeout_ms: int) -> None:
        self.version = payload[2:4]
        self.bytes = payload[8:end]
        self.end = end
        self.topic = topic
        self.index = index
        self.acks = acks
        self.timeout_ms = timeout_ms


def read_prefix(payload: bytes) -> Prefix | None:
    """The prefix of a request for one partition, without a transactional id; None for other requests, and where bytes are missing."""
    try:
        version = payload[3]
        if payload[2] or not FIRST_VERSION <= version <= LAST_VERSION:
            return None
        (length,) = _SHORT.unpack_from(payload, 8)
        position = 10 + max(length, 0)
        if version >= FLEXIBLE_SINCE:
            return _read_flexible(payload, position)
        if payload[position : position + 2] != b"\xff\xff":
            return None
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(payload, position + 2)
        topics, name_length = _INT.unpack_from(payload, position + 8)[0], _SHORT.unpack_from(payload, position + 12)[0]
        end = position + 14 + name_length + 8
        if topics != 1 or name_length < 1 or payload[end - 8 : end - 4] != b"\0\0\0\1":
            return None
        topic = payload[position + 14 : end - 8].decode()
        return Prefix(payload, end, topic, _INT.unpack_from(payload, end - 4)[0], acks, timeout_ms)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _read_flexible(payload: bytes, position: int) -> Prefix | None:
    """From version 9 on, behind the client id. The lengths that matter are one byte each: names have at most 126 bytes here."""
    if payload[position : position + 2] != b"\0\0" or payload[position + 8] != 2:
        return None
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(payload, position + 2)
    name_length = payload[position + 9] - 1
    if not 1 <= name_length <= 126:
        return None
    end = position + 10 + name_length + 5
    if payload[end - 5] != 2:
        return None
    topic = payload[position + 10 : end - 5].decode()
    return Prefix(payload, end, topic, _INT.unpack_from(payload, end - 4)[0], acks, timeout_ms)


class Repeated:
    """A prefix whose partition this broker leads, and the pieces of its responses."""

    __slots__ = ("config", "head", "length", "pack", "partition", "prefix", "tail", "version")

    def __init__(self, prefix: Prefix, partition: HostedPartition, config: LogConfig) -> None:
        self.prefix = prefix
        self.partition = partition
        self.config = config
        self.version = prefix.version[1]
        row = messages.ProduceResponse.PartitionProduceResponse(
            index=prefix.index, base_offset=_MARKED, log_append_time_ms=_MARKED, log_start_offset=_MARKED
        )  # fmt: skip
        topic = messages.ProduceResponse.TopicProduceResponse(name=prefix.topic, partition_responses=[row])
        body = messages.encode(messages.ProduceResponse(responses=[topic]), self.version)
        frame = messages.encode_response(ApiKey.PRODUCE, self.version, 0, body)
        numbers = 3 if self.version >= LOG_START_SINCE else 2
        at = frame.index(_MARK * numbers)
        self.length, self.head, self.tail = frame[:4], frame[8:at], frame[at + 8 * numbers :]
        self.pack = Struct(f">4s4s{len(self.head)}s{numbers}q{len(self.tail)}s").pack

    def response(self, correlation_id: bytes, result: AppendResult) -> bytes:
        """The frame that says where the records are."""
        if self.version >= LOG_START_SINCE:
            return self.pack(self.length, correlation_id, self.head, result[0], result[2], result[3], self.tail)
        return self.pack(self.length, correlation_id, self.head, result[0], result[2], self.tail)


class RepeatedProduce:
    """Handles the Produce requests that it can. What it knows is valid as long as the partition leads, with the same log and config."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._replicas = services.replicas
        self._now_ms = services.clock.now_ms
        self._is_open = type(services.authorizer) is AllowAll
        self._known: dict[tuple[bytes, bytes], Repeated] = {}

    def __call__(self, peer: Peer, payload: bytes) -> bytes | asyncio.Future[bytes | None] | None:
        """The response as a frame, a future for it, or None: the handler has to do it."""
        known: Repeated | None = peer.repeated
        if known is None or payload[8 : known.prefix.end] != known.prefix.bytes or payload[2:4] != known.prefix.version:
            known = peer.repeated = self._find(payload)
            if known is None:
                return None
        records = _records(payload, known)
        partition = known.partition
        log = partition.log
        if records is None or log is None or log.config is not known.config or costs_much(records, known.config.rules):
            self._known.pop((known.prefix.version, known.prefix.bytes), None)
            peer.repeated = None
            return None
        acks = known.prefix.acks
        try:
            result = self._replicas.append(partition, records, known.version, acks, Origin.CLIENT, self._now_ms())
        except (ApiError, Refused):
            return None
        if acks == 0:
            return NO_RESPONSE
        code = settled(self._replicas, partition, result.last_offset, acks)
        if code is ErrorCode.NONE:
            return known.response(payload[4:8], result)
        return self._wait(peer, known, payload[4:8], result)

    def _find(self, payload: bytes) -> Repeated | None:
        """What is known of this request's prefix, if it is one for a partition that this broker leads, with an open log."""
        prefix = read_prefix(payload)
        if prefix is None or not self._is_open:
            return None
        key = prefix.version, prefix.bytes
        known = self._known.get(key)
        if known is not None:
            return known
        if prefix.topic in INTERNAL_TOPICS or prefix.acks not in (-1, 0, 1):
            return None
        try:
            partition = self._replicas.leader(prefix.topic, prefix.index)
        except ApiError:
            return None
        if partition.log is None or self._services.metadata.partition(prefix.topic, prefix.index) is None:
            return None
        if len(self._known) >= MAX_PREFIXES:
            self._known.clear()
        known = self._known[key] = Repeated(prefix, partition, partition.log.config)
        return known

    def _wait(self, peer: Peer, known: Repeated, correlation_id: bytes, result: AppendResult) -> asyncio.Future[bytes | None]:
        """A future for the response to records that have to be in more places."""
        response: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        appended = Appended(known.partition, result.last_offset)
        prefix = known.prefix

        def respond() -> None:
            if not response.done():
                if appended.code is ErrorCode.NONE:
                    response.set_result(known.response(correlation_id, result))
                else:
                    response.set_result(self._failed(peer, known, correlation_id, result, appended))

        if appended.settle(self._replicas, prefix.acks):
            respond()
        else:
            DelayedProduce(self._replicas, prefix.acks, [appended], respond).begin(self._services.clock, prefix.timeout_ms)
        return response

    def _failed(self, peer: Peer, known: Repeated, correlation_id: bytes, result: AppendResult, appended: Appended) -> bytes:
        """The frame that says why the records are not where they should be."""
        prefix = known.prefix
        ctx = Context(self._services, peer, ApiKey.PRODUCE, known.version)
        part = produce.Part(prefix.topic, prefix.index, None)
        part.succeed(known.partition, result)
        part.appended = appended
        body = messages.encode(produce.response_of(ctx, [part]), known.version)
        return messages.encode_response(ApiKey.PRODUCE, known.version, int.from_bytes(correlation_id, "big", signed=True), body)


def _records(payload: bytes, known: Repeated) -> bytes | None:
    """The records, which everything behind the prefix must be; None otherwise."""
    start = known.prefix.end
    if known.version < FLEXIBLE_SINCE:
        start += 4
        if len(payload) < start or _INT.unpack_from(payload, start - 4)[0] != len(payload) - start:
            return None
        return payload[start:]
    length = shift = 0
    while start < len(payload):
        byte = payload[start]
        length |= (byte & 0x7F) << shift
        start += 1
        if byte < 0x80:
            break
        shift += 7
    end = start + length - 1
    if length < 1 or end + 3 != len(payload) or payload[end:] != b"\0\0\0":
        return None
    return payload[start:end]
