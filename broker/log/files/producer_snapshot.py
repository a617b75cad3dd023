"""A producer snapshot: the producer states of a log at one offset, in a file `<offset>.snapshot`.

Apache Kafka writes one when it rolls a segment and when it closes a log, and keeps those of existing segments. Format: version 1 (int16),
CRC-32C of all bytes after it (uint32), a count (int32), and 46 bytes for each producer id. It only has the last batch of a producer, so
after a start only duplicates of this batch are detected.
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
    """The bytes are not a valid producer snapshot."""


class SnapshotEntry(NamedTuple):
    """The state of one producer id. Sequence and offset are -1 before its first batch, `txn_first_offset` is -1 outside a transaction."""

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
    """Encode a whole file."""
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
