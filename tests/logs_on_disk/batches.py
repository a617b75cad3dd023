"""Record batches of magic 2 by a second, simple writer."""

from __future__ import annotations

import struct

from crc32c import crc32c

NOW = 1_700_000_000_000
NO_PRODUCER = (-1, -1, -1)


def batch(
    base_offset: int, values: list[bytes], *, timestamp: int = NOW, epoch: int = 0, producer: tuple[int, int, int] = NO_PRODUCER
) -> bytes:
    """A batch without compression. `producer`: id, epoch, base sequence."""
    records = b"".join(_record(position, value) for position, value in enumerate(values))
    producer_id, producer_epoch, sequence = producer
    covered = struct.pack(
        ">hiqqqhii", 0, len(values) - 1, timestamp, timestamp, producer_id, producer_epoch, sequence, len(values)
    ) + records
    return struct.pack(">qiibI", base_offset, 9 + len(covered), epoch, 2, crc32c(covered)) + covered


def _record(position: int, value: bytes) -> bytes:
    body = b"\0" + _varint(0) + _varint(position) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
