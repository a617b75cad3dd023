"""Reads the header of a record batch of magic 2.

A batch is a header of 61 bytes and then its records, which may be compressed as one block. The CRC does not cover the first 21 bytes (base
offset, length, leader epoch, magic and CRC), so a leader can set offset and epoch without changing the rest. A log contains batches one
after the other as they were received. This file finds their limits and reads their headers, but not their records.

Source: specification of the wire protocol, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.checksum import crc32c

MAGIC = 2
LOG_OVERHEAD = 12
"""Bytes of base offset and length, which the length does not count."""
HEADER_SIZE = 61
SMALLEST_LENGTH = 14
"""Of magic 0 without key and value; no length is smaller."""
CRC_COVERS_FROM = 21

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_SEQUENCE = -1
NO_PRODUCER_ID = -1
LAST_SEQUENCE = 2**31 - 1
_LARGEST_SIZE = 2**31 - 1
PRODUCER_ID_END = 51
"""Where the producer id of a batch ends."""

_HEADER = Struct(">qiibIhiqqqhii")
_UP_TO_MAGIC = Struct(">qiib")
_PRODUCER_ID_AND_EPOCH = Struct(">qh")
_LEADER_FIELDS = Struct(">qii")
LEADER_FIELDS_SIZE = 16
"""Bytes in front of the magic: base offset, length, leader epoch."""

unpack_header = _HEADER.unpack_from
"""The fields of a `BatchHeader` as a plain tuple."""
pack_leader_fields = _LEADER_FIELDS.pack

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The compression codec of a batch: the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptRecords(Exception):
    """The bytes are not record batches, or a CRC is wrong."""


class BatchHeader(NamedTuple):
    """The fixed part of a batch, in the order of the wire. `size`, `next_offset` and others are computed from it."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self[1] + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self[0] + self[6]

    @property
    def next_offset(self) -> int:
        return self[0] + self[6] + 1

    @property
    def codec(self) -> Codec:
        """The codec. Raises ValueError for an unknown number; `validation` refuses these, so a log does not contain them."""
        return Codec(self[5] & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record has `max_timestamp` as its timestamp."""
        return bool(self[5] & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self[5] & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether its records are transaction markers, which consumers never see."""
        return bool(self[5] & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time from which on the cleaner may remove the tombstones of this batch; None if it has not set one yet."""
        return self[7] if self[5] & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, which wraps around after 2**31 - 1; -1 without sequence numbers."""
        return NO_SEQUENCE if self[11] < 0 else add_to_sequence(self[11], self[6])


def add_to_sequence(sequence: int, increment: int) -> int:
    """The sequence number `increment` records later; 0 comes after 2**31 - 1."""
    return (sequence + increment) & LAST_SEQUENCE


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. It is not checked. Raises IndexError if there are fewer than 61 bytes."""
    if len(data) - position < HEADER_SIZE:
        raise IndexError(f"{len(data) - position} bytes at {position} are less than the header of a batch")
    return BatchHeader._make(_HEADER.unpack_from(data, position))


def write_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header."""
    return _HEADER.pack(*header)


def batch_size(data: Buffer, position: int) -> int | None:
    """Size of the batch (of any magic) at `position`, which may be incomplete; None if there are too few bytes to read it.

    Raises CorruptRecords for an invalid length or magic.
    """
    left = len(data) - position
    if left < LOG_OVERHEAD:
        return None
    length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    if length < SMALLEST_LENGTH:
        raise CorruptRecords(f"Record size {length} is less than the minimum record overhead ({SMALLEST_LENGTH})")
    if left < _UP_TO_MAGIC.size:
        return None
    magic = data[position + 16]
    if magic > MAGIC:
        raise CorruptRecords(f"Invalid magic found in record: {magic if magic < 128 else magic - 256}")
    return length + LOG_OVERHEAD


def size_in_request(records: Buffer, position: int = 0) -> int | None:
    """`batch_size` of a batch in a request.

    Raises ApiError(UNKNOWN_SERVER_ERROR) too, for a size that does not fit into an int32: Apache Kafka adds the bytes before the length to
    it and gets a negative number.
    """
    size = batch_size(records, position)
    if size is not None and size > _LARGEST_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return size


def is_of_transaction(records: Buffer, position: int = 0) -> bool:
    """Whether the batch at `position`, of which there are at least 23 bytes, has magic 2 and is part of a transaction."""
    return records[position + 16] == MAGIC and bool(records[position + 22] & TRANSACTIONAL)


def producer_of(records: Buffer, position: int = 0) -> tuple[int, int]:
    """Producer id and epoch of a batch of magic 2."""
    producer_id, epoch = _PRODUCER_ID_AND_EPOCH.unpack_from(records, position + PRODUCER_ID_END - 8)
    return producer_id, epoch


def each_header(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch of magic 2 from `position` on; an incomplete last one is left out.

    Raises CorruptRecords for an invalid length or another magic. CRCs are not checked.
    """
    end = len(data)
    unpack = _HEADER.unpack_from
    while end - position >= HEADER_SIZE:
        header = BatchHeader._make(unpack(data, position))
        if header[3] != MAGIC or header[1] < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptRecords(_what_is_wrong(header))
        following = position + header[1] + LOG_OVERHEAD
        if following > end:
            return
        yield position, header
        position = following
    batch_size(data, position)


def whole_batches(data: bytes) -> bytes:
    """The whole batches of magic 2 at the beginning of `data`, without one that is cut at its end. Raises CorruptRecords."""
    end = 0
    for position, header in each_header(data):
        end = position + header.size
    return data[:end]


def is_cut(data: bytes) -> bool:
    """Whether the first batch in `data`, of any magic, is not whole."""
    return len(data) < LOG_OVERHEAD or int.from_bytes(data[8:12], "big", signed=True) + LOG_OVERHEAD > len(data)


def _what_is_wrong(header: BatchHeader) -> str:
    if header.batch_length < SMALLEST_LENGTH:
        return f"Record size {header.batch_length} is less than the minimum record overhead ({SMALLEST_LENGTH})"
    if header.magic != MAGIC:
        return f"Invalid magic found in record: {header.magic}"
    return f"Record batch is corrupt (the size {header.size} is smaller than the minimum allowed overhead {HEADER_SIZE})"


def crc_is_right(data: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Whether the CRC-32C of the whole batch at `position` is the one in its header."""
    return computed_crc(data, position, header.size) == header.crc


def computed_crc(data: Buffer, position: int, size: int) -> int:
    """The CRC-32C over a batch of `size` bytes at `position`, without the part that a leader changes."""
    with memoryview(data) as view:
        return crc32c(view[position + CRC_COVERS_FROM : position + size])


def check_crcs(data: Buffer) -> None:
    """Check the CRCs of all whole batches in `data`, like a follower. Raises CorruptRecords for the first wrong one."""
    for position, header in each_header(data):
        computed = computed_crc(data, position, header.size)
        if computed != header.crc:
            raise CorruptRecords(f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})")


def with_leader_fields(data: Buffer, header: BatchHeader, base_offset: int, leader_epoch: int, position: int = 0) -> bytes:
    """A copy of the batch with this base offset and leader epoch; its CRC does not change."""
    with memoryview(data) as view:
        return b"".join((
            pack_leader_fields(base_offset, header.batch_length, leader_epoch),
            view[position + LEADER_FIELDS_SIZE : position + header.size],
        ))
