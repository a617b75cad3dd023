"""Converts batches of a log to messages of magic 0 or 1, for Fetch versions 0 to 3 of clients before 0.11.

These formats do not have control batches, headers and producer ids; they are left out. Compressed batches stay compressed, in one wrapper
each; such clients do not know zstd. Apache Kafka converts while it sends. It never sends more bytes than the batches had, or than the first
converted batch has. `down_convert` has the same limit, but ends with a whole message. After the first converted batch Apache Kafka goes on
with the second batch of the log. If control batches come first, it sends some records twice, and so does `down_convert`.

Source: `RecordsUtil.downConvert` and `LazyDownConversionRecords` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import BatchHeader, Codec, each_header
from klamm.protocol.records.legacy import each_batch, encode_messages
from klamm.protocol.records.record import read_records


def magic_of_fetch(version: int) -> int:
    """The newest magic that a client with this version of Fetch supports."""
    if version <= 1:
        return 0
    return 1 if version <= 3 else 2


def down_convert(data: bytes, magic: int, first_offset: int = 0) -> bytes:
    """Convert the batches in `data` to messages of magic 0 or 1. In uncompressed batches, records before `first_offset` are left out.

    It decompresses and writes all records: run it in a thread if `data` is large. Raises ApiError(UNSUPPORTED_COMPRESSION_TYPE) if the
    first batch is compressed with zstd, and the exceptions of `read_records`.
    """
    parts: list[bytes] = []
    size = at = 0
    batches = list(each_header(data))
    while at < len(batches):
        position, header = batches[at]
        at += 1
        if header.is_control:
            continue
        if header.codec is Codec.ZSTD:
            if parts:
                break
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Down-conversion of zstandard-compressed batches is not supported")
        made = _converted(data, position, header, magic, first_offset)
        if parts and size + len(made) > max(len(data), len(parts[0])):
            parts.append(_whole_messages(made, max(len(data), len(parts[0])) - size))
            break
        if made:
            if not parts:
                at = 1
            parts.append(made)
            size += len(made)
    return b"".join(parts)


def _whole_messages(data: bytes, most: int) -> bytes:
    """The first whole messages that fit into `most` bytes."""
    end = 0
    for _, end_of_message, _ in each_batch(data):
        if end_of_message > most:
            break
        end = end_of_message
    return data[:end]


def _converted(data: bytes, position: int, header: BatchHeader, magic: int, first_offset: int) -> bytes:
    records = read_records(data, header, position)
    if header.codec is Codec.NONE:
        records = [record for record in records if record.offset >= first_offset]
    if not records:
        return b""
    return encode_messages(magic, records, header.codec, header.max_timestamp if header.is_log_append_time else None)
