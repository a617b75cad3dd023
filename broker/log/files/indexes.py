"""The three indexes of a segment, as Apache Kafka writes them. Numbers are big-endian, offsets relative to the base offset.

* `.index`: (relative offset, position of the batch in the `.log` file), four bytes each; both increase. The offset is the last one of the
  batch that begins at the position.
* `.timeindex`: (largest timestamp so far, relative offset of its record), eight and four bytes; timestamps increase.
* `.txnindex`: one entry of 34 bytes for each aborted transaction, in the order of their ends.

Apache Kafka creates the first two files of the active segment with their full size, filled with zeros, and truncates them when it closes
the segment or shuts down. `read_*` stop at the zeros. An inconsistent index raises CorruptIndex; it is rebuilt from the segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from klamm.broker.log.storage import AbortedTransaction

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ABORTED_ENTRY = struct.Struct(">hqqqq")
_ABORTED_VERSION = 0


class CorruptIndex(ValueError):
    """The bytes are not a valid index of this segment."""


def encode_offset_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """(offset, position) pairs as bytes."""
    return b"".join(OFFSET_ENTRY.pack(offset - base_offset, position) for offset, position in entries)


def read_offset_index(data: bytes, base_offset: int, log_size: int) -> list[tuple[int, int]]:
    """(offset, position) pairs. Raises CorruptIndex where offsets or positions do not increase, or one is not in the segment."""
    if len(data) % OFFSET_ENTRY.size:
        raise CorruptIndex(f"{len(data)} bytes are no whole number of entries")
    entries: list[tuple[int, int]] = []
    last_offset, last_position = -1, -1
    for relative, position in OFFSET_ENTRY.iter_unpack(data):
        if entries and relative == 0:
            break  # the rest was never written
        if relative == 0 and position == 0:
            break
        if relative <= last_offset or position <= last_position or position >= log_size:
            what = f"({relative}, {position}) after ({last_offset}, {last_position})"
            raise CorruptIndex(f"entry {len(entries)} is {what}, in a segment of {log_size} bytes")
        last_offset, last_position = relative, position
        entries.append((base_offset + relative, position))
    return entries


def encode_time_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """(timestamp in milliseconds, offset) pairs as bytes."""
    return b"".join(TIME_ENTRY.pack(timestamp, offset - base_offset) for timestamp, offset in entries)


def read_time_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp in milliseconds, offset) pairs. Raises CorruptIndex where timestamps or offsets go back."""
    if len(data) % TIME_ENTRY.size:
        raise CorruptIndex(f"{len(data)} bytes are no whole number of entries")
    entries: list[tuple[int, int]] = []
    last_timestamp, last_offset = -1, -1
    for timestamp, relative in TIME_ENTRY.iter_unpack(data):
        if timestamp == 0 and relative == 0 and (entries or not any(data)):
            break  # the rest was never written
        if timestamp < last_timestamp or relative < last_offset:
            raise CorruptIndex(f"entry {len(entries)} is ({timestamp}, {relative}) after ({last_timestamp}, {last_offset})")
        last_timestamp, last_offset = timestamp, relative
        entries.append((timestamp, base_offset + relative))
    return entries


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    """Entries of a transaction index as bytes."""
    return b"".join(ABORTED_ENTRY.pack(_ABORTED_VERSION, *entry) for entry in entries)


def read_aborted(data: bytes, base_offset: int = 0) -> list[AbortedTransaction]:
    """Entries of a transaction index. Raises CorruptIndex for a cut entry, a later version, or a transaction before the segment."""
    if len(data) % ABORTED_ENTRY.size:
        raise CorruptIndex(f"{len(data)} bytes are no whole number of entries")
    return list(_each_aborted(data, base_offset))


def _each_aborted(data: bytes, base_offset: int) -> Iterator[AbortedTransaction]:
    for version, *values in ABORTED_ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*values)
        if version > _ABORTED_VERSION or entry.last_offset < base_offset:
            raise CorruptIndex(f"entry of version {version}: {entry}, in a segment from offset {base_offset}")
        yield entry
