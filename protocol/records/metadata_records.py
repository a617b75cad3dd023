"""Encodes and decodes the records of the metadata log and their batches (RegisterBroker, controller 25.1).

A record value is a frame version (1), the type and the version of a metadata record, each an UNSIGNED_VARINT, and the body of the record in
flexible encoding. The types are Apache Kafka's metadata records of 3.9.1. Records are in normal batches of magic 2: not compressed, without
producer, with null keys, and with the controller epoch as leader epoch.

A reader accepts every version of these records that Apache Kafka knows; `RECORDS` has the version that is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from klamm.protocol import messages
from klamm.protocol.compiler import Message
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.primitives import read_uvarint, write_uvarint
from klamm.protocol.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Buffer,
    CorruptRecords,
    crc_is_right,
    each_header,
)
from klamm.protocol.records.record import seal, write_varint
from klamm.protocol.records.scan import BadRecord, read_varint, read_zigzag

FRAME_VERSION = 1

MetadataRecord: TypeAlias = (
    "messages.RegisterBrokerRecord | messages.UnregisterBrokerRecord | messages.TopicRecord | messages.PartitionRecord"
    " | messages.ConfigRecord | messages.PartitionChangeRecord | messages.FenceBrokerRecord | messages.UnfenceBrokerRecord"
    " | messages.RemoveTopicRecord | messages.BrokerRegistrationChangeRecord"
)


class RecordKind(NamedTuple):
    """A record type: its number, and the version that is written."""

    type: int
    version: int


RECORDS = {
    "RegisterBrokerRecord": RecordKind(0, 1),
    "UnregisterBrokerRecord": RecordKind(1, 0),
    "TopicRecord": RecordKind(2, 0),
    "PartitionRecord": RecordKind(3, 0),
    "ConfigRecord": RecordKind(4, 0),
    "PartitionChangeRecord": RecordKind(5, 0),
    "FenceBrokerRecord": RecordKind(7, 0),
    "UnfenceBrokerRecord": RecordKind(8, 0),
    "RemoveTopicRecord": RecordKind(9, 0),
    "BrokerRegistrationChangeRecord": RecordKind(17, 1),
}
_NAMES = {kind.type: name for name, kind in RECORDS.items()}

TOPIC_CONFIG, BROKER_CONFIG = 2, 4
"""Resource types of a ConfigRecord. The name of a broker resource is the broker id, empty for the default of all brokers."""

LEADER_UNCHANGED, RECOVERY_UNCHANGED = -2, -1
"""Values of a PartitionChangeRecord that leave leader or recovery mark as they are."""


def prefix(name: str) -> bytes:
    """The first bytes of the value of a record with this name, in the version that is written."""
    kind = RECORDS[name]
    return write_uvarint(FRAME_VERSION) + write_uvarint(kind.type) + write_uvarint(kind.version)


_PREFIXES = {name: prefix(name) for name in RECORDS}


def encode_value(record: MetadataRecord) -> bytes:
    """Encode the value of a record. Raises LocalProtocolError, struct.error or ValueError if it cannot be encoded."""
    name = type(record).__name__
    start = _PREFIXES.get(name)
    if start is None:
        raise LocalProtocolError(f"{name} is not a record of the metadata log")
    return start + messages.encode(record, RECORDS[name].version)


_decoders: dict[tuple[int, int], Callable[[bytes, int], tuple[Any, int]]] = {}


def decode_value(value: bytes) -> tuple[MetadataRecord, int]:
    """Decode the value of a record; returns the metadata record and its version. Raises RemoteProtocolError."""
    return _decode(value, 0, len(value))


def _decode(value: bytes, position: int, end: int) -> tuple[MetadataRecord, int]:
    try:
        frame, kind, version = value[position : position + 3]
        body = position + 3
        if frame > 127 or kind > 127 or version > 127:
            frame, body = read_uvarint(value, position)
            kind, body = read_uvarint(value, body)
            version, body = read_uvarint(value, body)
    except (IndexError, ValueError):
        raise RemoteProtocolError("a metadata record is cut short") from None
    if frame != FRAME_VERSION:
        raise RemoteProtocolError(f"a metadata record has the frame version {frame}")
    decode = _decoders.get((kind, version))
    if decode is None:
        decode = _decoders[kind, version] = _decoder(kind, version)
    record, position = decode(value, body)
    if position != end:
        raise RemoteProtocolError(f"a {type(record).__name__} ends at {position} and not at {end}")
    return record, version


def _decoder(kind: int, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    name = _NAMES.get(kind)
    if name is None:
        raise RemoteProtocolError(f"a metadata record has the type {kind}, which no metadata log of Klamm has")
    found = messages.message_type(name)
    if version not in found.schema.valid:
        raise RemoteProtocolError(f"a {name} has the version {version}")
    return found.decoder(version)


def encode_records(records: Sequence[MetadataRecord], base_offset: int, controller_epoch: int, timestamp_ms: int) -> bytes:
    """One batch with these records, at least one."""
    return encode_values([encode_value(record) for record in records], base_offset, controller_epoch, timestamp_ms)


def encode_values(values: Sequence[bytes], base_offset: int, controller_epoch: int, timestamp_ms: int) -> bytes:
    """One batch with records of these values, at least one."""
    parts: list[bytes] = []
    for delta, value in enumerate(values):
        offset, size = write_varint(delta), write_varint(len(value))
        parts += (write_varint(len(offset) + len(size) + len(value) + 4), b"\0\0", offset, b"\x01", size, value, b"\0")
    return batch(b"".join(parts), len(values), base_offset, controller_epoch, timestamp_ms)


def batch(body: bytes, count: int, base_offset: int, controller_epoch: int, timestamp_ms: int) -> bytes:
    """One batch of `count` encoded records."""
    header = BatchHeader(
        base_offset, 0, controller_epoch, MAGIC, 0, 0, count - 1, timestamp_ms, timestamp_ms, NO_PRODUCER_ID, -1, NO_SEQUENCE, count
    )
    return seal(header, body)


def decode_records(payload: Buffer) -> Iterator[tuple[int, MetadataRecord]]:
    """(offset, record) for each record in whole batches of the metadata log. Raises RemoteProtocolError, also for a wrong CRC."""
    data = payload if isinstance(payload, bytes) else bytes(payload)
    for header, position in decode_batches(data):
        yield from records_of(data, header, position)


def decode_batches(data: bytes) -> list[tuple[BatchHeader, int]]:
    """(header, position) of each batch. Raises RemoteProtocolError for a wrong CRC, or for other bytes than whole batches."""
    batches, end = [], 0
    try:
        for position, header in each_header(data):
            if not crc_is_right(data, header, position):
                raise RemoteProtocolError(f"the batch of the metadata log at offset {header.base_offset} has a wrong CRC")
            batches.append((header, position))
            end = position + header.size
    except CorruptRecords as problem:
        raise RemoteProtocolError(str(problem)) from None
    if end != len(data):
        raise RemoteProtocolError("a batch of the metadata log is cut short")
    return batches


def records_of(data: bytes, header: BatchHeader, position: int) -> Iterator[tuple[int, MetadataRecord]]:
    """(offset, record) for each record of one batch, whose header is at `position`. Raises RemoteProtocolError."""
    for offset, (start, end) in enumerate(value_places(data, header, position), header.base_offset):
        yield offset, _decode(data, start, end)[0]


def value_places(data: bytes, header: BatchHeader, position: int) -> list[tuple[int, int]]:
    """(start, end) of the value of each record in one batch; its header is at `position`. Raises RemoteProtocolError."""
    if header.attributes:
        raise RemoteProtocolError(f"a batch of the metadata log has the attributes {header.attributes}")
    if header.record_count != header.last_offset_delta + 1:
        raise RemoteProtocolError(f"the batch of the metadata log at offset {header.base_offset} has gaps")
    try:
        return _value_places(data, position + HEADER_SIZE, position + header.size, header.record_count)
    except (BadRecord, IndexError) as problem:
        raise RemoteProtocolError(f"the batch of the metadata log at offset {header.base_offset}: {problem}") from None


def _value_places(data: bytes, at: int, end: int, count: int) -> list[tuple[int, int]]:
    """(start, end) of each value. Lengths and offsets of one or two bytes, the usual case, are read inline."""
    places = []
    for index in range(count):
        size = data[at]
        if size < 0x80:
            at += 1
        else:
            size, at = (size & 0x7F | data[at + 1] << 7, at + 2) if data[at + 1] < 0x80 else read_zigzag(data, at)
        stop = at + (size >> 1)
        if size & 1 or stop > end:
            raise BadRecord(f"record {index} has a wrong size")
        at += 2  # attributes and timestamp
        if data[at - 1]:
            _, at = read_varint(data, at - 1, 10)
        delta = data[at]
        if delta < 0x80:
            at += 1
        else:
            delta, at = (delta & 0x7F | data[at + 1] << 7, at + 2) if data[at + 1] < 0x80 else read_zigzag(data, at)
        if delta != index << 1 or data[at] != 1:
            raise BadRecord(f"record {index} has another offset, or a key")
        size = data[at + 1]
        if size < 0x80:
            at += 2
        else:
            size, at = (size & 0x7F | data[at + 2] << 7, at + 3) if data[at + 2] < 0x80 else read_zigzag(data, at + 1)
        if size & 1 or at + (size >> 1) + 1 != stop or data[stop - 1]:
            raise BadRecord(f"record {index} has no value, or headers")
        places.append((at, stop - 1))
        at = stop
    if at != end:
        raise BadRecord("there are bytes after the last record")
    return places


def decode_place(data: bytes, start: int, end: int) -> MetadataRecord:
    """Decode the record whose value is between these positions. Raises RemoteProtocolError."""
    return _decode(data, start, end)[0]


def is_broker_record(record: Message) -> bool:
    """Whether a record is about a broker: its registration, its end, its state."""
    return RECORDS[type(record).__name__].type in (0, 1, 7, 8, 17)
