"""The search for a record by its timestamp, in bytes that hold whole batches."""

from __future__ import annotations

from typing import NamedTuple

from klamm.protocol.records.batch import BatchHeader, each_header
from klamm.protocol.records.compression import BadCompression, TooLarge
from klamm.protocol.records.record import Record, read_records
from klamm.protocol.records.scan import BadRecord


class TimestampOffset(NamedTuple):
    """Where a record is: its timestamp in milliseconds, its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_record_since(data: bytes, timestamp: int, offset: int) -> TimestampOffset | None:
    """The first record from `offset` on whose timestamp is this one or a later one."""
    for position, header in each_header(data):
        if header.max_timestamp >= timestamp and header.last_offset >= offset:
            for record in _records(data, header, position):
                if record.timestamp >= timestamp and record.offset >= offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def first_record_with(data: bytes, timestamp: int) -> TimestampOffset | None:
    """The first record that has the largest timestamp of its batch, if that is this one."""
    for position, header in each_header(data):
        if header.max_timestamp == timestamp:
            for record in _records(data, header, position):
                if record.timestamp == timestamp:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def next_offset_of(data: bytes) -> int | None:
    """The offset after the last batch, None when there is no batch."""
    following = None
    for _, header in each_header(data):
        following = header.next_offset
    return following


def _records(data: bytes, header: BatchHeader, position: int) -> list[Record]:
    """The records of a batch; none of one that cannot be read, which an older leader may have let in."""
    try:
        return read_records(data, header, position)
    except (BadCompression, BadRecord, TooLarge, ValueError):
        return []
