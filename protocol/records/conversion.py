"""Converts batches of a log to messages of magic 0 or 1, for Fetch versions 0 to 3 of clients before 0.11.

These formats do not have control batches, headers and producer ids; they are left out. Compressed batches stay compressed, in one wrapper
each; such clients do not know zstd. Apache Kafka converts while it sends. It sends as many bytes as the batches had, or as the first
converted batch has: what does not fit is cut amid a message, and what is left is filled with the beginning of a message that is too long,
which clients take for a cut one. It converts up to 128 KiB of batches together. If one of them is compressed with zstd, it sends none of
them. After the first converted batch it goes on with the second batch of the log. If control batches come first, it sends some records
twice, and so does `down_convert`.

Source: `RecordsUtil.downConvert` and `LazyDownConversionRecords` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Codec, each_header
from klamm.protocol.records.legacy import encode_messages
from klamm.protocol.records.record import read_records

Batch = tuple[int, BatchHeader]
_OFFSET_AND_LENGTH = Struct(">qi")
_PART_BYTES = 128 << 10


def down_convert(data: bytes, magic: int, first_offset: int = 0) -> bytes:
    """Convert the batches in `data` to messages of magic 0 or 1. In uncompressed batches, records before `first_offset` are left out.

    The result has as many bytes as `data`, or as the first converted batch if that is larger; none if `data` has no whole batch. It
    decompresses and writes all records: run it in a thread if `data` is large. Raises ApiError(UNSUPPORTED_COMPRESSION_TYPE) if the first
    batch is compressed with zstd, and the exceptions of `read_records`.
    """
    batches = list(each_header(data))
    parts: list[bytes] = []
    for batch in batches:
        if _has_zstd([batch]):
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Down-conversion of zstandard-compressed batches is not supported")
        made = _converted(data, *batch, magic, first_offset)
        if made:
            parts.append(made)
            break
    if not parts:
        return _filler(LOG_OVERHEAD) if batches else b""
    left = max(len(data) - len(parts[0]), 0)
    for part in _parts(batches[1:]):
        if not left or _has_zstd(part):
            break
        for batch in part:
            if left:
                parts.append(_converted(data, *batch, magic, first_offset)[:left])
                left -= len(parts[-1])
    while left:
        parts.append(_filler(left))
        left -= len(parts[-1])
    return b"".join(parts)


def _parts(batches: list[Batch]) -> Iterator[list[Batch]]:
    """The batches that Apache Kafka converts together: as many as fit into 128 KiB."""
    part: list[Batch] = []
    size = 0
    for batch in batches:
        if part and size + batch[1].size > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(batch)
        size += batch[1].size
    if part:
        yield part


def _has_zstd(batches: list[Batch]) -> bool:
    return any(header.codec is Codec.ZSTD for _, header in batches if not header.is_control)


def _filler(left: int) -> bytes:
    """The beginning of a message that is longer than the `left` bytes of the response; at most 128 KiB."""
    head = _OFFSET_AND_LENGTH.pack(-1, max(left + 1, HEADER_SIZE))
    return head.ljust(min(left + 1, _PART_BYTES), b"\0")[:left]


def _converted(data: bytes, position: int, header: BatchHeader, magic: int, first_offset: int) -> bytes:
    """The messages of one batch; none of a control batch."""
    if header.is_control:
        return b""
    records = read_records(data, header, position)
    if header.codec is Codec.NONE:
        records = [record for record in records if record.offset >= first_offset]
    if not records:
        return b""
    return encode_messages(magic, records, header.codec, header.max_timestamp if header.is_log_append_time else None)
