"""ListOffsets (2), versions 0-9, of Kafka 4 1-11: find offsets by timestamp.

Timestamps below zero are special: -1 is the latest offset that the client may read, -2 the earliest offset, -3 the offset of the record
with the largest timestamp (version 7 and later), -4 the earliest offset on this broker (8 and later), -5 the last offset in tiered storage
(9; Klamm does not have tiered storage). Other negative timestamps, and these in older versions, get UNSUPPORTED_VERSION.

For a consumer the latest offset is the high watermark, or the last stable offset with read_committed; for everybody else it is the log end
offset. A new leader whose high watermark is below the start of its epoch does not know the latest offset yet: consumers get
OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE. With replica id -2 followers respond too. A partition named twice gets
INVALID_REQUEST. The response of version 0 is a list of the first offsets of segments, the newest first.

Source: wire 5.1; `KafkaApis.handleListOffsetRequest` and `Partition.fetchOffsetForTimestamp` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.broker.log.timestamps import offset_for_timestamp, offset_of_max_timestamp
from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH, TopicPartition
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

CONSUMER, DEBUGGER = -1, -2
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
"""Special timestamp → first version that knows it."""
NOT_AVAILABLE_SINCE, EPOCHS_SINCE = 5, 4
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
UNKNOWN = -1

Row = messages.ListOffsetsResponse.ListOffsetsPartitionResponse
Wanted = messages.ListOffsetsRequest.ListOffsetsPartition


class Place(NamedTuple):
    """Offset, timestamp and leader epoch of a record; -1 if unknown."""

    offset: int
    timestamp: int = UNKNOWN
    leader_epoch: int = NO_EPOCH


async def handle(ctx: Context, request: messages.ListOffsetsRequest) -> messages.ListOffsetsResponse:
    pace = Pace()
    topics: list[messages.ListOffsetsResponse.ListOffsetsTopicResponse] = []
    denied: list[messages.ListOffsetsResponse.ListOffsetsTopicResponse] = []
    repeated = _repeated(request) if ctx.api_version else frozenset()
    for topic in request.topics:
        await pace(len(topic.partitions))
        rows = []
        allowed = ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for wanted in topic.partitions:
            try:
                if not allowed:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if (topic.name, wanted.partition_index) in repeated:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                rows.append(await _row(ctx, request, topic.name, wanted))
            except ApiError as error:
                rows.append(Row(wanted.partition_index, _code_in(ctx.api_version, error.code)))
            await pace()
        result = messages.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=rows)
        (topics if allowed else denied).append(result)
    return messages.ListOffsetsResponse(topics=topics + denied)


def refuse(
    request: messages.ListOffsetsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ListOffsetsResponse:
    result = messages.ListOffsetsResponse.ListOffsetsTopicResponse
    topics = [result(topic.name, [Row(wanted.partition_index, code) for wanted in topic.partitions]) for topic in request.topics]
    return messages.ListOffsetsResponse(topics=topics)


def _repeated(request: messages.ListOffsetsRequest) -> frozenset[TopicPartition]:
    """The partitions that a request names more than once."""
    seen: set[TopicPartition] = set()
    twice: set[TopicPartition] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            key = TopicPartition(topic.name, wanted.partition_index)
            (twice if key in seen else seen).add(key)
    return frozenset(twice)


def _code_in(version: int, code: ErrorCode) -> ErrorCode:
    """Replace a code that this version does not have."""
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


async def _row(ctx: Context, request: messages.ListOffsetsRequest, topic: str, wanted: Wanted) -> Row:
    """The result for one partition. Raises ApiError."""
    version, timestamp = ctx.api_version, wanted.timestamp
    if timestamp < 0 and version < SINCE.get(timestamp, version + 1):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    is_consumer = request.replica_id == CONSUMER
    if is_consumer and request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    find = ctx.services.replicas.replica if request.replica_id == DEBUGGER else ctx.services.replicas.leader
    replica = find(topic, wanted.partition_index, wanted.current_leader_epoch)
    if version == 0:
        if wanted.max_num_offsets < 0:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        offsets = _segment_starts(replica, timestamp, wanted.max_num_offsets, ctx.services.clock.now_ms())
        if is_consumer and any(offset > replica.high_watermark for offset in offsets):
            offsets = [replica.high_watermark, *(offset for offset in offsets if offset <= replica.high_watermark)]
        return Row(wanted.partition_index, ErrorCode.NONE, offsets)
    if not is_consumer:
        end_offset = replica.log_end_offset
    else:
        end_offset = replica.last_stable_offset if request.isolation_level == READ_COMMITTED else replica.high_watermark
    place = await _place(replica, timestamp, end_offset, is_consumer)
    if place is None:
        return Row(wanted.partition_index, ErrorCode.NONE)
    epoch = place.leader_epoch if version >= EPOCHS_SINCE else NO_EPOCH
    return Row(wanted.partition_index, ErrorCode.NONE, (), place.timestamp, place.offset, epoch)


async def _place(replica: HostedPartition, timestamp: int, end_offset: int, is_consumer: bool) -> Place | None:
    """The offset for the timestamp, below `end_offset` if it is that of a record; None if there is none. Raises ApiError."""
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Place(replica.log_start_offset, UNKNOWN, _first_epoch(replica))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        return Place(UNKNOWN)
    if timestamp != LATEST:
        place = await _search(replica, timestamp)
        if place is not None and place.offset < end_offset:
            return place
    if is_consumer and replica.leadership is not None and replica.leadership.epoch_start_offset > replica.high_watermark:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return Place(end_offset, UNKNOWN, replica.leader_epoch) if timestamp == LATEST else None


async def _search(replica: HostedPartition, timestamp: int) -> Place | None:
    log = replica.log
    if log is None:
        return None
    found = await (offset_of_max_timestamp(log) if timestamp == MAX_TIMESTAMP else offset_for_timestamp(log, timestamp))
    return None if found is None else Place(found.offset, found.timestamp, found.leader_epoch)


def _first_epoch(replica: HostedPartition) -> int:
    """The leader epoch at the log start offset, -1 if unknown. Without a log a leader's own epoch: that of the first record to come."""
    log = replica.log
    if log is None:
        return replica.leader_epoch if replica.is_leader else NO_EPOCH
    entries = log.epochs.entries
    return entries[0][0] if entries and entries[0][1] <= log.log_start_offset else NO_EPOCH


def _segment_starts(replica: HostedPartition, timestamp: int, count: int, now_ms: int) -> list[int]:
    """First offsets of the segments whose last write was at or before the timestamp, and the log end offset; the newest first.

    The last write of a segment counts as the time when the next segment was created.
    """
    log: Any = replica.log
    segments = [] if log is None else log.segments
    written_ms = [segment.created_ms for segment in segments[1:]] + [now_ms]
    places = [(max(s.base_offset, log.log_start_offset), ms) for s, ms in zip(segments, written_ms, strict=False)] or [(0, now_ms)]
    if segments and segments[-1].size:
        places.append((log.log_end_offset, now_ms))
    if timestamp == LATEST:
        last = len(places) - 1
    elif timestamp == EARLIEST:
        last = 0
    else:
        last = max((number for number, (_, ms) in enumerate(places) if ms <= timestamp), default=-1)
    chosen = [offset for offset, _ in places[: last + 1]][::-1][:count]
    return sorted(chosen, reverse=True)
