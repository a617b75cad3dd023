"""Moves checked records to another offset and append time: a thread has prepared them while others appended, so the log end has moved.

The CRC of a batch does not cover its base offset and leader epoch. It covers the append time, so it is computed again if that changes.
"""

from __future__ import annotations

from struct import Struct

from klamm.protocol.records.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, computed_crc, write_header
from klamm.protocol.records.validation import Assigned

_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_EPOCH_AT = 12


def rebased(assigned: Assigned, base_offset: int, leader_epoch: int, now_ms: int) -> Assigned:
    """The same batches from `base_offset` on, with this leader epoch; appended at `now_ms` if they have the time of their append."""
    if assigned.log_append_time_ms not in (NO_TIMESTAMP, now_ms):
        assigned = _restamped(assigned, now_ms)
    if not assigned.headers or (assigned.headers[0].base_offset, assigned.headers[0].leader_epoch) == (base_offset, leader_epoch):
        return assigned
    increment = base_offset - assigned.headers[0].base_offset
    data = bytearray(assigned.data)
    headers: list[BatchHeader] = []
    position = 0
    for header in assigned.headers:
        moved = header._replace(base_offset=header.base_offset + increment, leader_epoch=leader_epoch)
        _OFFSET.pack_into(data, position, moved.base_offset)
        _EPOCH.pack_into(data, position + _EPOCH_AT, leader_epoch)
        headers.append(moved)
        position += header.size
    offset_of_max = assigned.offset_of_max_timestamp
    if offset_of_max >= 0:
        offset_of_max += increment
    return assigned._replace(data=bytes(data), headers=headers, offset_of_max_timestamp=offset_of_max)


def _restamped(assigned: Assigned, now_ms: int) -> Assigned:
    """The same batches, appended at this time."""
    data = bytearray(assigned.data)
    headers: list[BatchHeader] = []
    position = 0
    for header in assigned.headers:
        head = slice(position, position + HEADER_SIZE)
        data[head] = write_header(header._replace(max_timestamp=now_ms))
        stamped = header._replace(max_timestamp=now_ms, crc=computed_crc(data, position, header.size))
        data[head] = write_header(stamped)
        headers.append(stamped)
        position += header.size
    return assigned._replace(data=bytes(data), headers=headers, max_timestamp=now_ms, log_append_time_ms=now_ms)
