"""Search of records by timestamp, in a log and in bytes with whole batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from klamm.broker.log.log import Log
from klamm.broker.log.segment import Segment
from klamm.protocol.records.batch import BatchHeader, each_header
from klamm.protocol.records.compression import BadCompression, TooLarge
from klamm.protocol.records.record import Record, read_records
from klamm.protocol.records.scan import BadRecord

_FIRST_BYTES = 16 << 10
"""Read first, because the index names the place to about 4 KiB. Each further read is twice as long, up to `_MOST_BYTES`."""
_MOST_BYTES = 256 << 10


class TimestampOffset(NamedTuple):
    """Timestamp (ms) and offset of a record, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


async def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record of a log with this timestamp or a later one, None if there is none. Raises ApiError(KAFKA_STORAGE_ERROR).

    Like Apache Kafka, it only searches the first segment that may have such a record.
    """
    for segment in log.segments:
        if segment.size and segment.largest_timestamp >= timestamp:
            start = max(segment.offset_before_timestamp(timestamp), log.log_start_offset)
            return await _search(log, segment, start, lambda data, offset: first_record_since(data, timestamp, offset))
    return None


async def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record with the largest timestamp in the log, None if the log has no records. Raises ApiError(KAFKA_STORAGE_ERROR).

    The timestamp is -1 if no record has one.
    """
    segment = max(log.segments, key=_max_timestamp_of_segment, default=None)
    if segment is None:
        return None
    timestamp = segment.max_timestamp
    start = segment.offset_before_timestamp(timestamp)
    return await _search(log, segment, start, lambda data, _: first_record_with(data, timestamp))


async def _search(
    log: Log, segment: Segment, offset: int, find: Callable[[bytes, int], TimestampOffset | None]
) -> TimestampOffset | None:
    """The first result of `find(batches, offset)` in a segment, from this offset on; None if there is none."""
    size = _FIRST_BYTES
    while offset < segment.next_offset:
        data = await log.segment_bytes(segment, offset, size)
        found = find(data, offset) if data else None
        following = next_offset_of(data) if data and found is None else None
        if following is None:
            return found
        offset, size = following, min(2 * size, _MOST_BYTES)
        await asyncio.sleep(0)  # a read in memory does not wait
    return None


def first_record_since(data: bytes, timestamp: int, offset: int) -> TimestampOffset | None:
    """The first record from `offset` on whose timestamp is this one or a later one."""
    for position, header in each_header(data):
        if header.max_timestamp >= timestamp and header.last_offset >= offset:
            for record in _records(data, header, position):
                if record.timestamp >= timestamp and record.offset >= offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def first_record_with(data: bytes, timestamp: int) -> TimestampOffset | None:
    """The first record that has the largest timestamp of its batch, if that timestamp is this one."""
    for position, header in each_header(data):
        if header.max_timestamp == timestamp:
            for record in _records(data, header, position):
                if record.timestamp == timestamp:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def next_offset_of(data: bytes) -> int | None:
    """The offset after the last batch, None if there is no batch."""
    following = None
    for _, header in each_header(data):
        following = header.next_offset
    return following


def _records(data: bytes, header: BatchHeader, position: int) -> list[Record]:
    """The records of a batch; empty if it cannot be read, because an older leader may have accepted such a batch."""
    try:
        return read_records(data, header, position)
    except (BadCompression, BadRecord, TooLarge, ValueError):
        return []


def _max_timestamp_of_segment(segment: Segment) -> int:
    return segment.max_timestamp
