"""Messages of magic 0 and 1, the formats of clients before 0.11: reading and writing them.

Each message has offset, size, CRC-32, magic, attributes, in magic 1 a timestamp, then key and value. Compressed messages are the value of
an outer message, the wrapper, which has the offset of the last of them; in magic 1 the offsets inside count from the first one.
A log does not contain them: a leader converts them when it appends (`validation`), and back for old consumers (`conversion`).

Source: `LegacyRecord` and `AbstractLegacyRecordBatch` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from zlib import crc32

from klamm.protocol.records.batch import CODEC_MASK, LOG_APPEND_TIME, NO_TIMESTAMP, Codec, CorruptRecords, batch_size
from klamm.protocol.records.compression import LIMIT, compress, decompress
from klamm.protocol.records.record import Record
from klamm.protocol.records.scan import BadRecord

_OFFSET_AND_SIZE = Struct(">qi")
_SMALLEST = 14

_UP_TO_KEY = (Struct(">Ibb"), Struct(">Ibbq"))
_INT = Struct(">i")


class LegacyMessage(NamedTuple):
    """One message as it is on the wire."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    """-1 in magic 0."""
    key: bytes | None
    value: bytes | None
    crc_is_right: bool
    size: int
    """Size in bytes, including the offset and size fields."""

    @property
    def codec_number(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == 1 and bool(self.attributes & LOG_APPEND_TIME)


class BadMessage(Exception):
    """The key or value of a message is longer than the message. Apache Kafka responds with UNKNOWN_SERVER_ERROR."""


def read_message(data: bytes, position: int, end: int) -> LegacyMessage:
    """The message in `data[position:end]`. Raises BadMessage."""
    offset, _ = _OFFSET_AND_SIZE.unpack_from(data, position)
    begin = position + 12
    right = crc32(memoryview(data)[begin + 4 : end])
    try:
        if data[begin + 4] == 0:
            crc, magic, attributes = _UP_TO_KEY[0].unpack_from(data, begin)
            timestamp, at = NO_TIMESTAMP, begin + 6
        else:
            crc, magic, attributes, timestamp = _UP_TO_KEY[1].unpack_from(data, begin)
            at = begin + 14
        key, at = _sized(data, at, end) if crc == right else (None, at)
        value, at = _sized(data, at, end) if crc == right else (None, at)
    except struct_error:
        raise BadMessage("a message is too short") from None
    return LegacyMessage(offset, magic, attributes, timestamp, key, value, crc == right, end - position)


def _sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    (size,) = _INT.unpack_from(data, position)
    position += 4
    if size < 0:
        return None, position
    if position + size > end:
        raise BadMessage("a key or value is longer than its message")
    return data[position : position + size], position + size


def inner_messages(wrapper: LegacyMessage, limit_bytes: int = LIMIT) -> list[LegacyMessage]:
    """The messages in a compressed one, with their own magic, their offsets as they are in the log, and the wrapper's log append time.

    Raises BadRecord, BadMessage, CorruptRecords, `compression.BadCompression` and `compression.TooLarge`.
    """
    codec = Codec(wrapper.codec_number)
    if codec is Codec.ZSTD:
        raise BadRecord("Invalid wrapper compressionType found in legacy deep record iterator")
    if wrapper.value is None:
        raise BadRecord("Found invalid compressed record set with null value")
    data = decompress(codec, wrapper.value, limit_bytes, magic=wrapper.magic)
    messages = [read_message(data, start, end) for start, end in _limits(data)]
    if not messages:
        raise BadRecord("Found invalid compressed record set with no inner records")
    if any(message.codec_number for message in messages):
        raise BadRecord("Inner messages must not be compressed")
    if wrapper.magic == 0:
        return messages
    base = 0
    if wrapper.offset != 0:  # some versions of librdkafka produce wrappers with offset 0
        base = wrapper.offset - messages[-1].offset
        if base < 0:
            raise BadRecord("Found invalid wrapper offset in compressed v1 message set")
    if wrapper.is_log_append_time:
        return [message._replace(offset=base + message.offset, timestamp=wrapper.timestamp) for message in messages]
    return [message._replace(offset=base + message.offset) for message in messages]


def _limits(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each whole message inside a wrapper."""
    position = 0
    while len(data) - position >= 12:
        _, size = _OFFSET_AND_SIZE.unpack_from(data, position)
        if size < _SMALLEST:
            raise CorruptRecords(f"Record size is less than the minimum record overhead ({_SMALLEST})")
        end = position + 12 + size
        if end > len(data):
            return
        yield position, end
        position = end


def each_batch(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(start, end, magic) of each whole batch or message, of any magic; a cut one at the end is left out. Raises CorruptRecords."""
    position = 0
    while (size := batch_size(data, position)) is not None and position + size <= len(data):
        yield position, position + size, data[position + 16]
        position += size


def encode_message(magic: int, record: Record, attributes: int = 0, timestamp: int | None = None) -> bytes:
    """A message; magic 0 has no timestamp, and neither has headers."""
    time = record.timestamp if timestamp is None else timestamp
    parts = [
        bytes((magic, attributes)),
        b"" if magic == 0 else time.to_bytes(8, "big", signed=True),
        *([_INT.pack(-1)] if record.key is None else [_INT.pack(len(record.key)), record.key]),
        *([_INT.pack(-1)] if record.value is None else [_INT.pack(len(record.value)), record.value]),
    ]
    body = b"".join(parts)
    return _OFFSET_AND_SIZE.pack(record.offset, len(body) + 4) + crc32(body).to_bytes(4, "big") + body


def encode_messages(magic: int, records: Sequence[Record], codec: Codec, append_time_ms: int | None = None) -> bytes:
    """The records of one batch as messages: one after the other, or in a compressed wrapper with the last offset and the largest timestamp.

    `append_time_ms`: the log append time of all records. The codec must not be zstd, which these formats do not have.
    """
    attributes = LOG_APPEND_TIME if append_time_ms is not None and magic == 1 else 0
    if codec is Codec.NONE:
        return b"".join([encode_message(magic, record, attributes, append_time_ms) for record in records])
    last = records[-1].offset
    if magic == 0:
        inner = b"".join([encode_message(0, record) for record in records])
    else:
        first = records[0].offset
        inner = b"".join([
            encode_message(1, record._replace(offset=record.offset - first), attributes, append_time_ms) for record in records
        ])
    time = max(record.timestamp for record in records) if append_time_ms is None else append_time_ms
    return encode_message(magic, Record(last, time, None, compress_for(magic, codec, inner)), attributes | codec)


def compress_for(magic: int, codec: Codec, data: bytes) -> bytes:
    """The value of a wrapper. Clients that read magic 0 expect the checksum of the lz4 frame to be computed over its magic number too."""
    packed = compress(codec, data)
    if codec is Codec.LZ4 and magic == 0:
        return packed[:6] + _LZ4_DESCRIPTOR_OF_MAGIC_0 + packed[7:]
    return packed


_LZ4_DESCRIPTOR_OF_MAGIC_0 = b"\x1a"
