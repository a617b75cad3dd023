"""Moves checked records to another offset: a thread has prepared them while others appended, so the log end has moved.

The CRC of a batch does not cover its base offset and leader epoch, so only these fields change.
"""

from __future__ import annotations

from struct import Struct

from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.records.validation import Assigned

_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_EPOCH_AT = 12


def rebased(assigned: Assigned, base_offset: int, leader_epoch: int) -> Assigned:
    """The same batches from `base_offset` on, with this leader epoch."""
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
