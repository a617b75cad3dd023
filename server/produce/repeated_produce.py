"""Produce requests for one partition, which follow one another on a connection and differ in their records only.

Everything in front of the records (client id, acks, time-out, topic, partition) is compared, as bytes, with the last such request of the
connection. When it is the same, the records go straight to the log, and the response is put together from pieces that are encoded already:
nothing is decoded. Requests that came together are appended together when their batches need no change. Whatever is not as expected (an
error, a log that is not open, records that cost much, other rules) is left to the handler, which sees the whole request; then nothing has
happened here. Permissions are not checked: this is for brokers that allow all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from klamm.broker.log.config import LogConfig
from klamm.broker.log.log import AppendResult, Log
from klamm.broker.metadata_responses import INTERNAL_TOPICS
from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import NO_TIMESTAMP, TRANSACTIONAL, read_header
from klamm.protocol.records.plain_batches import HEAD_SIZE, are_plain, plain_batch
from klamm.protocol.records.validation import Assigned, Origin, Refused, costs_much
from klamm.server.apis import produce
from klamm.server.produce.delayed_produce import Appended, DelayedProduce, settled
from klamm.server.produce.produce_prefix import Prefix, read_prefix, records_limits
from klamm.server.requests.context import Context
from klamm.server.requests.peer import Peer
from klamm.server.requests.queued_requests import NOTHING_FOLLOWS, Following
from klamm.server.security.authorizer import AllowAll
from klamm.server.services import Services

NO_RESPONSE = b""
LOG_START_SINCE = 5
MAX_PREFIXES = 10_000
ATTRIBUTES_AT = 22
"""Of the two bytes of a batch's attributes the one that has bits."""
RUN_BYTES = 32 << 10
"""Requests that came together are appended together up to this size."""

_MARK = b"\x5a\xa5" * 4
"""Stands for an offset or time in the pieces of a response; the rest of a response has no such bytes by chance."""
_MARKED = int.from_bytes(_MARK, "big")

Frames = bytes | asyncio.Future[bytes | None]


class Appends(NamedTuple):
    """Requests whose records are in the log, by their correlation ids, and where."""

    correlation_ids: list[bytes]
    results: list[AppendResult]


class KnownProduce:
    """A prefix whose partition this broker leads, and the pieces of its responses."""

    __slots__ = ("config", "head", "is_plain", "length", "pack", "partition", "prefix", "tail")

    def __init__(self, prefix: Prefix, partition: HostedPartition, config: LogConfig) -> None:
        self.prefix = prefix
        self.partition = partition
        self.config = config
        self.is_plain = are_plain(config.rules)
        row = messages.ProduceResponse.PartitionProduceResponse(
            index=prefix.index, base_offset=_MARKED, log_append_time_ms=_MARKED, log_start_offset=_MARKED
        )
        topic = messages.ProduceResponse.TopicProduceResponse(name=prefix.topic, partition_responses=[row])
        body = messages.encode(messages.ProduceResponse(responses=[topic]), prefix.version)
        frame = messages.encode_response(ApiKey.PRODUCE, prefix.version, 0, body)
        numbers = 3 if prefix.version >= LOG_START_SINCE else 2
        at = frame.index(_MARK * numbers)
        self.length, self.head, self.tail = frame[:4], frame[8:at], frame[at + 8 * numbers :]
        self.pack = Struct(f">4s4s{len(self.head)}s{numbers}q{len(self.tail)}s").pack

    def matches(self, payload: bytes) -> bool:
        """Whether a request differs in its records only."""
        prefix = self.prefix
        return payload[8 : prefix.end] == prefix.bytes and payload[:4] == prefix.head

    def responses(self, appends: Appends) -> bytes:
        """The frames that say where the records are."""
        pack, length, head, tail = self.pack, self.length, self.head, self.tail
        if self.prefix.version < LOG_START_SINCE:
            return b"".join(
                [
                    pack(length, number, head, base_offset, time_ms, tail)
                    for number, (base_offset, _, time_ms, _, _) in zip(*appends, strict=True)
                ]
            )
        if len(appends.results) == 1:
            base_offset, _, time_ms, log_start, _ = appends.results[0]
            frame: bytes = pack(length, appends.correlation_ids[0], head, base_offset, time_ms, log_start, tail)
            return frame
        return b"".join(
            [
                pack(length, number, head, base_offset, time_ms, log_start, tail)
                for number, (base_offset, _, time_ms, log_start, _) in zip(*appends, strict=True)
            ]
        )


def _may_be_transactional(records: bytes) -> bool:
    """Whether the attributes of the first batch say so, where they are in magic 2: the handler looks closer."""
    return len(records) > ATTRIBUTES_AT and bool(records[ATTRIBUTES_AT] & TRANSACTIONAL)


class RepeatedProduce:
    """Handles the Produce requests that it can. What it knows is valid as long as the partition leads, with the same log and config."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._replicas = services.replicas
        self._now_ms = services.clock.now_ms
        self._is_open = type(services.authorizer) is AllowAll
        self._known: dict[tuple[bytes, bytes], KnownProduce] = {}

    def __call__(self, peer: Peer, payload: bytes, following: Following = NOTHING_FOLLOWS) -> Frames | None:
        """The response as a frame, a future for it, or None: the handler has to do it. The responses to those of the `following` requests
        that were handled with it are behind it.
        """
        known: KnownProduce | None = peer.repeated
        if known is None or not known.matches(payload):
            known = peer.repeated = self._find(payload)
            if known is None:
                return None
        log = known.partition.log
        if log is None or log.config is not known.config:
            self._known.pop((known.prefix.head, known.prefix.bytes), None)
            peer.repeated = None
            return None
        try:
            appends = None
            if known.is_plain:
                appends = self._append_plain(known, log, payload, following)
            if appends is None:
                appends = self._append(known, payload)
        except (ApiError, Refused):
            return None
        if appends is None:
            return None
        acks = known.prefix.acks
        if acks == 0:
            return NO_RESPONSE
        if settled(self._replicas, known.partition, appends.results[-1][1], acks) is ErrorCode.NONE:
            return known.responses(appends)
        return self._wait(peer, known, appends)

    def _find(self, payload: bytes) -> KnownProduce | None:
        """What is known of this request's prefix, if it is one for a partition that this broker leads, with an open log."""
        prefix = read_prefix(payload)
        if prefix is None or not self._is_open:
            return None
        key = prefix.head, prefix.bytes
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
        known = self._known[key] = KnownProduce(prefix, partition, partition.log.config)
        return known

    def _append(self, known: KnownProduce, payload: bytes) -> Appends | None:
        """Append one request's records; None when they cost much, are null, or belong to a transaction. Raises ApiError and Refused."""
        prefix = known.prefix
        start, end = records_limits(payload, prefix)
        records = payload[start:end]
        if not start or _may_be_transactional(records) or costs_much(records, known.config.rules):
            return None
        result = self._replicas.append(known.partition, records, prefix.version, prefix.acks, Origin.CLIENT, self._now_ms())
        return Appends([payload[4:8]], [result])

    def _append_plain(self, known: KnownProduce, log: Log, payload: bytes, following: Following) -> Appends | None:
        """Append the batches of this request and of those that follow and are like it, together, as far as they are plain.

        None when the first is not. Raises ApiError, with nothing appended.
        """
        prefix, rules, epoch, now_ms = known.prefix, known.config.rules, known.partition.leader_epoch, self._now_ms()
        offset, log_start, most = log.next_offset, log.log_start_offset, min(RUN_BYTES, known.config.segment_bytes)
        pieces: list[bytes | memoryview] = []
        correlation_ids: list[bytes] = []
        results: list[AppendResult] = []
        taken: list[bytes] = []
        size, newest, newest_offset = 0, NO_TIMESTAMP - 1, NO_TIMESTAMP
        candidate = payload
        while True:
            start, end = records_limits(candidate, prefix)
            size += end - start
            if not start or (results and size > most):
                break
            view = memoryview(candidate)
            found = plain_batch(candidate, view, start, end, offset, epoch, rules, now_ms)
            if found is None:
                break
            head, count, timestamp = found
            if results:
                following.drop()
                taken.append(candidate)
            correlation_ids.append(candidate[4:8])
            results.append(AppendResult(offset, offset + count - 1, NO_TIMESTAMP, log_start))
            offset += count
            if timestamp > newest:
                newest, newest_offset = timestamp, offset - 1
            pieces += (head, view[start + HEAD_SIZE : end])
            follower = following.peek()
            if follower is None or not known.matches(follower):
                break
            candidate = follower
        if not results:
            return None
        data = b"".join(pieces)
        headers = [read_header(data)]
        if taken:
            base_offset, last_offset, _, _, _ = results[-1]
            headers.append(headers[0]._replace(base_offset=base_offset, last_offset_delta=last_offset - base_offset))
        assigned = Assigned(data, headers, newest, newest_offset, NO_TIMESTAMP)
        try:
            self._replicas.append_assigned(known.partition, assigned, prefix.acks, Origin.CLIENT, now_ms)
        except ApiError:
            following.put_back(taken)
            raise
        return Appends(correlation_ids, results)

    def _wait(self, peer: Peer, known: KnownProduce, appends: Appends) -> asyncio.Future[bytes | None]:
        """A future for the responses to records that have to be in more places."""
        response: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        prefix = known.prefix
        appended = Appended(known.partition, appends.results[-1].last_offset)

        def respond() -> None:
            if not response.done():
                is_good = appended.code is ErrorCode.NONE
                response.set_result(known.responses(appends) if is_good else self._outcomes(peer, known, appends))

        if appended.settle(self._replicas, prefix.acks):
            respond()
        else:
            DelayedProduce(self._replicas, prefix.acks, [appended], respond).begin(self._services.clock, prefix.timeout_ms)
        return response

    def _outcomes(self, peer: Peer, known: KnownProduce, appends: Appends) -> bytes:
        """The frames that say of each request where its records are, or why not all of them are where they should be."""
        prefix = known.prefix
        ctx = Context(self._services, peer, ApiKey.PRODUCE, prefix.version)
        frames: Sequence[bytes] = [self._outcome(ctx, known, *one) for one in zip(*appends, strict=True)]
        return b"".join(frames)

    def _outcome(self, ctx: Context, known: KnownProduce, correlation_id: bytes, result: AppendResult) -> bytes:
        prefix = known.prefix
        part = produce.Part(prefix.topic, prefix.index, None)
        part.succeed(known.partition, result)
        if part.appended is not None:
            part.appended.settle(self._replicas, prefix.acks)
        body = messages.encode(produce.response_of(ctx, [part]), prefix.version)
        return messages.encode_response(ApiKey.PRODUCE, prefix.version, int.from_bytes(correlation_id, "big", signed=True), body)
