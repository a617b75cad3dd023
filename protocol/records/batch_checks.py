"""The checks of `UnifiedLog.append` on whole batches and messages, before their records are looked at: base offset, size, CRC, codec."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import CODEC_MASK, HEADER_SIZE, MAGIC, Codec, CorruptRecords, computed_crc, read_header
from klamm.protocol.records.legacy import read_message
from klamm.protocol.records.rules import AppendRules, Origin, Refused, failed, invalid


def checked_batches(
    data: bytes, batches: Iterable[tuple[int, int, int]], rules: AppendRules, origin: Origin = Origin.CLIENT
) -> list[tuple[int, int, int]]:
    """The batches, given as (start, end, magic), after all checks. Raises Refused or CorruptRecords for the first bad one."""
    checked = []
    for start, end, magic in batches:
        if magic < MAGIC:
            message = read_message(data, start, end)
            right, stored, codec = message.crc_is_right, -1, message.codec_number
        elif end - start < HEADER_SIZE:
            raise CorruptRecords(f"Record batch is corrupt (the size {end - start} is smaller than its header)")
        else:
            header = read_header(data, start)
            if origin is Origin.CLIENT and header.base_offset != 0:
                raise invalid(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
            right, stored = computed_crc(data, start, end - start) == header.crc, header.crc
            codec = header.attributes & CODEC_MASK
        check_size(end - start, rules)
        if not right:
            raise CorruptRecords(f"Record is corrupt (stored crc = {stored})")
        check_codec(codec)
        checked.append((start, end, magic))
    return checked


def check_size(size: int, rules: AppendRules) -> None:
    if size > rules.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {size} bytes which exceeds the maximum configured value of {rules.max_message_bytes}.",
        )


def check_codec(number: int) -> None:
    if number > Codec.ZSTD:
        raise failed(f"Unknown compression type id: {number}")
