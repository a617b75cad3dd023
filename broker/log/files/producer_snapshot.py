"""A producer snapshot: what a log knows of its producers at one offset, in a file `<offset>.snapshot`.

Apache Kafka writes one when it rolls a segment and when it closes a log, and keeps the ones of segments that remain. Format: version 1
(int16), CRC-32C of all that follows (uint32), a count (int32), and 46 bytes for each producer id. Only the last batch of a producer is
kept: after a start duplicates are recognised of this one batch only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from klamm.protocol.records.checksum import crc32c

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
VERSION = 1


class CorruptSnapshot(ValueError):
    """The bytes are not those of a producer snapshot."""


class SnapshotEntry(NamedTuple):
    """One producer id. Sequence and offset are -1 before its first batch, `txn_first_offset` -1 outside of a transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    """Number of records of the last batch, less one."""
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """The whole file."""
    rows = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def read_snapshot(data: bytes) -> list[SnapshotEntry]:
    """The entries of a file. Raises CorruptSnapshot."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is not known")
    body = memoryview(data)[_HEAD.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshot("its CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries do not fit {len(body)} bytes")
    return [SnapshotEntry(*row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]
