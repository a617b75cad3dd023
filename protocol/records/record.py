"""Single records: reading those of a batch, and making batches of them.

Batches are stored as bytes and are rarely decoded. This file is for coordinators, which read and write their own records, for the cleaner,
for conversion between formats, and to find the invalid record of a refused batch. Keys of headers are bytes, as in the protocol.

Source: specification of the wire protocol, section 6; `DefaultRecord` and `MemoryRecordsBuilder` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from klamm.protocol.primitives import write_uvarint
from klamm.protocol.records.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Codec,
    computed_crc,
    write_header,
)
from klamm.protocol.records.compression import LIMIT, compress, decompress
from klamm.protocol.records.scan import BadRecord, read_varint

Headers = tuple[tuple[bytes, bytes | None], ...]

_CONTROL_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


class Record(NamedTuple):
    """One record. The timestamp is in milliseconds, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(IntEnum):
    """The type in the key of a control record."""

    ABORT = 0
    COMMIT = 1
    UNKNOWN = -1


def read_records(
    data: Buffer, header: BatchHeader, position: int = 0, limit_bytes: int = LIMIT, *, sized: bool = True
) -> list[Record]:
    """The records of the batch at `position`. They may be decompressed to at most `limit_bytes`. `sized` as in `scan`.

    Raises BadRecord for a wrong layout, `compression.BadCompression` and `compression.TooLarge`.
    """
    with memoryview(data) as view:
        packed = bytes(view[position + HEADER_SIZE : position + header.size])
    codec = header.codec
    body = packed if codec is Codec.NONE else decompress(codec, packed, limit_bytes)
    count = header.record_count
    if count < 0:
        raise BadRecord(f"Found invalid record count {count} in magic v{header.magic} batch")
    at = 0
    records = []
    try:
        for _ in range(count):
            record, at = _read_record(body, at, header, sized)
            records.append(record)
    except IndexError:
        raise BadRecord("Incorrect declared batch size, premature EOF reached") from None
    if count and at != len(body):
        raise BadRecord("Incorrect declared batch size, records still remaining in file")
    return records


def _read_record(body: bytes, position: int, header: BatchHeader, sized: bool) -> tuple[Record, int]:
    size, position = read_varint(body, position)
    stop = position + size
    if sized and (size < 0 or stop > len(body)):
        raise BadRecord(f"Invalid record size: {size}")
    delta, position = read_varint(body, position + 1, 10)
    offset, position = read_varint(body, position)
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    count, position = read_varint(body, position)
    if count < 0 or count > len(body) - position:
        raise BadRecord(f"Found invalid number of record headers {count}")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position)
        if name is None:
            raise BadRecord("Invalid negative header key size")
        content, position = _read_bytes(body, position)
        headers.append((name, content))
    if sized and position != stop:
        raise BadRecord(f"Invalid record size: expected to read {size} bytes, but instead read {position - stop + size}")
    timestamp = header.max_timestamp if header.is_log_append_time else wrapped(header.base_timestamp + delta)
    return Record(header.base_offset + offset, timestamp, key, value, tuple(headers)), position


def _read_bytes(body: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(body, position)
    if size < 0:
        return None, position
    if position + size > len(body):
        raise BadRecord("Found invalid record structure")
    return body[position : position + size], position + size


def wrapped(number: int) -> int:
    """A sum that wraps around like a Java long."""
    return (number + 2**63) % 2**64 - 2**63


def write_varint(number: int) -> bytes:
    """A number in zigzag form."""
    return write_uvarint(number << 1 if number >= 0 else -number * 2 - 1)


def _sized(content: bytes | None) -> bytes:
    return b"\x01" if content is None else write_varint(len(content)) + content


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """One record in a batch with these bases."""
    parts = [
        b"\x00",
        write_varint(record.timestamp - base_timestamp),
        write_varint(record.offset - base_offset),
        _sized(record.key),
        _sized(record.value),
        write_varint(len(record.headers)),
    ]
    for name, content in record.headers:
        parts += (_sized(name), _sized(content))
    body = b"".join(parts)
    return write_varint(len(body)) + body


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    attributes: int = 0,
    base_timestamp: int | None = None,
    append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """A batch of magic 2 with these records, whose offsets ascend.

    Offsets and base timestamp of the batch are those of its first and last record unless they are given, as for a batch that has lost
    records. `attributes` are TRANSACTIONAL, CONTROL or DELETE_HORIZON; `append_time_ms` makes it one with log append time.
    """
    first = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    base_time = base_timestamp
    if base_time is None:
        base_time = records[0].timestamp if records else NO_TIMESTAMP
    body = b"".join([encode_record(record, first, base_time) for record in records])
    max_timestamp = append_time_ms
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    else:
        attributes |= LOG_APPEND_TIME
    return seal(
        BatchHeader(
            first, 0, leader_epoch, MAGIC, 0, attributes | codec, last - first, base_time, max_timestamp,
            producer_id, producer_epoch, base_sequence, len(records),
        ),
        compress(codec, body, level),
    )


def seal(header: BatchHeader, packed: bytes) -> bytes:
    """The batch of a header and its (compressed) records; length and CRC of the header are computed here."""
    header = header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(packed), crc=0)
    data = bytearray(write_header(header))
    data += packed
    data[17:21] = computed_crc(data, 0, len(data)).to_bytes(4, "big")
    return bytes(data)


def control_batch(
    kind: ControlType,
    offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    now_ms: int,
) -> bytes:
    """The batch with the marker that ends a transaction."""
    record = Record(offset, now_ms, _CONTROL_KEY.pack(0, kind), _MARKER_VALUE.pack(0, coordinator_epoch))
    return encode_batch(
        [record],
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def read_control(record: Record) -> tuple[ControlType, int]:
    """Type and coordinator epoch of a record in a control batch; UNKNOWN and -1 if it is not a marker. Raises BadRecord."""
    try:
        version, kind = _CONTROL_KEY.unpack_from(record.key if record.key is not None else b"")
        if version < 0:
            raise BadRecord(f"Invalid version {version} found for control record")
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return ControlType.UNKNOWN, -1
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value if record.value is not None else b"")
    except struct_error:
        raise BadRecord("a control record is too short") from None
    return ControlType(kind), coordinator_epoch
