"""A segment: a part of a log that is deleted as a whole. It has indexes, and those of its batches that are in memory.

Batches are kept in the chunks in which they were appended: one batch of a producer, or pieces of a follower's fetch. Two arrays with the
base offset and the position of each chunk are searched by bisection; inside a chunk with several batches their headers are followed. The
chunks are the tail of the segment. What is before them is in its file: that of a log on disk, or, for a log in memory, a temporary file
(`broker/log/spill.py`). An index like Apache Kafka's (an entry for about every 4 KiB) gives the start position of reads there.

Source: `LogSegment` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct

from klamm.broker.log.memory import CHUNK_OVERHEAD
from klamm.broker.log.spill import SpillFile
from klamm.broker.log.storage import AbortedTransaction, LoadedSegment
from klamm.protocol.records.batch import LOG_OVERHEAD, BatchHeader

_SHAPE = Struct(">qi11xi").unpack_from
"""Reads base offset, length and last offset delta of a batch."""
_MARK_BYTES = 1 << 20
_PIECE_BYTES = 16 * 1024
_LAST_RELATIVE_OFFSET = 2**31 - 1


class Segment:
    """One segment. `size` is the position after its last batch, `next_offset` the offset after it. Timestamps are in milliseconds."""

    __slots__ = (
        "aborted", "base_offset", "chunk_offsets", "chunk_positions", "chunks", "created_ms", "index_count", "index_offsets",
        "index_positions", "is_pinned", "marks", "max_timestamp", "next_offset", "offset_of_max_timestamp", "resident_offset",
        "roll_jitter_ms", "rolling_timestamp", "size", "spill", "time_index_offsets", "time_index_timestamps", "truncations", "unindexed",
    )

    def __init__(self, base_offset: int, created_ms: int, roll_jitter_ms: int = 0) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.size = 0
        self.resident_offset = base_offset
        """Batches from this offset on are in memory, all others in the file."""
        self.spill: SpillFile | None = None
        """The temporary file of a log in memory, if a part of the segment is there."""
        self.truncations = 0
        self.is_pinned = False
        """Whether its chunks must stay in memory: its file is not written yet."""
        self.rolling_timestamp = -1
        self.max_timestamp = -1
        self.offset_of_max_timestamp = -1
        self.chunks: list[bytes] = []
        self.chunk_offsets = array("q")
        self.chunk_positions = array("q")
        self.marks: list[tuple[int, int]] = []
        """(tick, position) of about every megabyte of the chunks."""
        self.index_offsets = array("q")
        self.index_positions = array("q")
        self.index_count = 0
        self.time_index_timestamps = array("q")
        self.time_index_offsets = array("q")
        self.unindexed = 0
        self.aborted: list[AbortedTransaction] = []

    @classmethod
    def loaded(cls, segment: LoadedSegment, next_offset: int, roll_jitter_ms: int) -> Segment:
        """A segment whose batches are in a file."""
        made = cls(segment.base_offset, segment.created_ms, roll_jitter_ms)
        made.size = segment.size
        made.next_offset = made.resident_offset = next_offset
        made.rolling_timestamp = segment.rolling_timestamp
        made.max_timestamp = segment.max_timestamp
        made.offset_of_max_timestamp = segment.offset_of_max_timestamp
        made.index_offsets, made.index_positions = segment.index_offsets, segment.index_positions
        made.index_count = len(segment.index_offsets)
        made.time_index_timestamps, made.time_index_offsets = segment.time_index_timestamps, segment.time_index_offsets
        made.aborted = segment.aborted
        return made

    # --- what it is

    @property
    def resident_from(self) -> int:
        """Position of the first chunk in memory; the size if there is none."""
        return self.chunk_positions[0] if self.chunks else self.size

    @property
    def memory(self) -> int:
        """Bytes of its chunks in the memory budget."""
        return self.size - self.resident_from + CHUNK_OVERHEAD * len(self.chunks)

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records; if none has a timestamp, the time of its creation."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    def should_roll(
        self, size: int, max_timestamp: int, last_offset: int, now_ms: int, segment_bytes: int, segment_ms: int, index_bytes: int
    ) -> bool:
        """Whether a new segment must be rolled before batches of this size, with this largest timestamp and last offset, are appended."""
        if self.size > segment_bytes - size:
            return True
        if self.size > 0:
            if self.rolling_timestamp >= 0:
                waited_ms = max_timestamp - self.rolling_timestamp
            else:
                waited_ms = now_ms - self.created_ms
            if waited_ms > segment_ms - self.roll_jitter_ms:
                return True
        full = index_bytes // 8 <= self.index_count or index_bytes // 12 - 1 <= len(self.time_index_offsets)
        return full or last_offset - self.base_offset > _LAST_RELATIVE_OFFSET

    # --- appending

    def append(
        self, data: bytes, first: BatchHeader, next_offset: int, max_timestamp: int, offset_of_max_timestamp: int,
        index_interval_bytes: int, tick: int,
    ) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Add whole batches at the end; returns the new entries of the offset index and of the time index, None for none.

        The entry of the offset index has the last offset of the first batch, as `kafka.tools.DumpLogSegments` expects it.
        """
        position = self.size
        if position == 0:
            self.rolling_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = offset_of_max_timestamp
        index = time_index = None
        if self.unindexed > index_interval_bytes:
            self.index_count += 1
            index = (first.last_offset, position)
            self.index_offsets.append(first.last_offset)
            self.index_positions.append(position)
            time_index = self.time_index_entry()
            self.unindexed = 0
        self.unindexed += len(data)
        if not self.marks or position - self.marks[-1][1] >= _MARK_BYTES:
            self.marks.append((tick, position))
        self.chunks.append(data)
        self.chunk_offsets.append(first.base_offset)
        self.chunk_positions.append(position)
        self.size = position + len(data)
        self.next_offset = next_offset
        return index, time_index

    def time_index_entry(self) -> tuple[int, int] | None:
        """Add the largest timestamp to the time index if it is larger than the last one there; returns the new entry."""
        if self.max_timestamp <= (self.time_index_timestamps[-1] if self.time_index_timestamps else -1):
            return None
        self.time_index_timestamps.append(self.max_timestamp)
        self.time_index_offsets.append(self.offset_of_max_timestamp)
        return self.max_timestamp, self.offset_of_max_timestamp

    # --- reading

    def has_in_memory(self, offset: int) -> bool:
        """Whether a read from this offset does not need the file."""
        return offset >= self.resident_offset or not self.resident_from

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> bytes | None:
        """Batches in memory, from the batch that contains `offset`, or the first after it, up to `end_offset`, cut after `max_bytes`; with
        `min_one` not before the end of the first batch. None if the segment has no batch from there on.
        """
        chunks, positions = self.chunks, self.chunk_positions
        first = max(bisect_right(self.chunk_offsets, offset) - 1, 0)
        skip = 0
        while first < len(chunks):
            skip = _skip_to(chunks[first], offset)
            if skip < len(chunks[first]):
                break
            first, skip = first + 1, 0
        else:
            return None
        if first == len(chunks) - 1 and end_offset >= self.next_offset and len(chunks[first]) - skip <= max_bytes:
            return chunks[first][skip:]  # most consumers read the end of the log
        start = positions[first] + skip
        if min_one and max_bytes < len(chunks[first]) - skip:
            max_bytes = max(max_bytes, _SHAPE(chunks[first], skip)[1] + LOG_OVERHEAD)
        end = self.size
        if end_offset < self.next_offset:
            last = max(bisect_right(self.chunk_offsets, end_offset) - 1, first)
            end = positions[last] + _skip_to(chunks[last], end_offset)
        end = min(end, start + max_bytes)
        if end <= start:
            return b""
        last = bisect_left(positions, end) - 1
        if last == first:
            return chunks[first][skip : end - positions[first]]
        pieces = chunks[first : last + 1]
        pieces[0] = pieces[0][skip:]
        pieces[-1] = pieces[-1][: end - positions[last]]
        return b"".join(pieces)

    def chunks_from(self, offset: int, max_bytes: int) -> list[bytes]:
        """The chunks in memory from the first one that begins at this offset or later, of about `max_bytes` together, at least one."""
        first = bisect_left(self.chunk_offsets, offset)
        end = self.chunk_positions[first] + max_bytes if first < len(self.chunks) else 0
        return self.chunks[first : max(bisect_left(self.chunk_positions, end), first + 1)]

    def chunk_at(self, offset: int) -> bytes | None:
        """The chunk in memory that begins with the batch at this offset, None if there is none."""
        index = bisect_left(self.chunk_offsets, offset)
        return self.chunks[index] if index < len(self.chunks) and self.chunk_offsets[index] == offset else None

    def position_of(self, offset: int) -> int:
        """Approximate position of the batch with this offset, not after it; exact if chunks are single batches."""
        if offset <= self.base_offset:
            return 0
        if offset >= self.next_offset:
            return self.size
        if self.chunks and offset >= self.chunk_offsets[0]:
            return self.chunk_positions[bisect_right(self.chunk_offsets, offset) - 1]
        entry = bisect_right(self.index_offsets, offset) - 1
        return self.index_positions[entry] if entry >= 0 else 0

    def least_between(self, offset: int, end_offset: int) -> int:
        """Bytes that the batches from the one that contains `offset` up to `end_offset` have at least."""
        try:
            start, _ = self.cut_of(offset)
        except KeyError:
            entry = bisect_left(self.index_offsets, offset)
            start = self.index_positions[entry] if entry < len(self.index_positions) else self.resident_from
        return max(self.position_of(end_offset) - start, 0)

    def offset_at(self, position: int) -> int:
        """Approximate offset of the batch at this position, not after it; exact if chunks are single batches."""
        if position >= self.size:
            return self.next_offset
        if self.chunks and position >= self.chunk_positions[0]:
            return self.chunk_offsets[bisect_right(self.chunk_positions, position) - 1]
        entry = bisect_right(self.index_positions, position) - 1
        return self.index_offsets[entry] if entry >= 0 else self.base_offset

    def offset_before_timestamp(self, timestamp: int) -> int:
        """An offset before which no record has this timestamp or a later one."""
        entry = bisect_left(self.time_index_timestamps, timestamp) - 1
        return self.time_index_offsets[entry] if entry >= 0 else self.base_offset

    def cut_of(self, offset: int) -> tuple[int, int]:
        """(position, next offset) after a truncation before the batch with `offset`. Raises KeyError if the batch is not in memory."""
        if self.resident_from and (not self.chunks or offset < self.chunk_offsets[0]):
            raise KeyError(offset)
        index = max(bisect_right(self.chunk_offsets, offset) - 1, 0)
        if index >= len(self.chunks):
            return self.size, self.next_offset
        return self.chunk_positions[index] + _skip_to(self.chunks[index], offset), offset

    # --- making it smaller

    def is_cut_in_memory(self, offset: int) -> bool:
        """Whether a truncation before the batch with this offset does not need the file."""
        resident_from = self.resident_from
        if not resident_from:
            return True
        return bool(self.chunks) and offset >= self.chunk_offsets[0] and self.unread_from(offset) >= resident_from

    def unread_from(self, next_offset: int) -> int:
        """Position after which batches in the file must be read before a truncation to this offset, to know the largest timestamp that is
        left; the size if that timestamp is known.
        """
        if self.offset_of_max_timestamp < next_offset:
            return self.size
        entry = bisect_left(self.time_index_offsets, next_offset) - 1
        return self.position_of(self.time_index_offsets[entry]) if entry >= 0 else 0

    def truncate(self, position: int, next_offset: int, newest: tuple[int, int] = (-1, -1)) -> None:
        """Truncate the segment to this position. `newest` is the largest timestamp, with its offset, of the batches that are left in the
        file after `unread_from`.
        """
        kept = bisect_left(self.chunk_positions, position)
        if kept and self.chunk_positions[kept - 1] + len(self.chunks[kept - 1]) > position:
            self.chunks[kept - 1] = self.chunks[kept - 1][: position - self.chunk_positions[kept - 1]]
        del self.chunks[kept:], self.chunk_offsets[kept:], self.chunk_positions[kept:]
        self.marks = [mark for mark in self.marks if mark[1] < position]
        entries = bisect_left(self.index_offsets, next_offset)
        del self.index_offsets[entries:], self.index_positions[entries:]
        entries = bisect_left(self.time_index_offsets, next_offset)
        del self.time_index_timestamps[entries:], self.time_index_offsets[entries:]
        self.aborted = [entry for entry in self.aborted if entry.last_offset < next_offset]
        self.size = position
        self.next_offset = next_offset
        self.resident_offset = min(self.resident_offset, next_offset)
        self.truncations += 1
        self.unindexed = 0
        if self.offset_of_max_timestamp >= next_offset:
            indexed = (self.time_index_timestamps[-1], self.time_index_offsets[-1]) if entries else (-1, -1)
            self.max_timestamp, self.offset_of_max_timestamp = newest if newest[0] > indexed[0] else indexed
            self._read_timestamps()
        if position == 0:
            self.rolling_timestamp = -1

    def _read_timestamps(self) -> None:
        """Look for larger timestamps in the chunks after the largest one that is known."""
        for header in self.each_shape(self.offset_of_max_timestamp):
            timestamp = header[3]
            if timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = timestamp, header[1]

    def each_shape(self, offset: int) -> Iterator[tuple[int, int, int, int]]:
        """(base offset, last offset, size, largest timestamp) of each batch in memory, from the batch with `offset` on."""
        first = max(bisect_right(self.chunk_offsets, offset) - 1, 0)
        for chunk in self.chunks[first:]:
            position = 0
            while position < len(chunk):
                base, length, delta = _SHAPE(chunk, position)
                if base + delta >= offset:
                    timestamp = int.from_bytes(chunk[position + 35 : position + 43], "big", signed=True)
                    yield base, base + delta, length + LOG_OVERHEAD, timestamp
                position += length + LOG_OVERHEAD

    def has_head(self, below: int) -> bool:
        """Whether there is a chunk to drop that ends before this offset."""
        if not self.chunks or self.is_pinned:
            return False
        return (self.chunk_offsets[1] if len(self.chunks) > 1 else self.next_offset) <= below

    def head(self, below: int, until: int, most: int) -> int:
        """The number of the oldest chunks that end before this offset, with at most about `most` bytes (at least one mark's) or up to
        the tick `until`.
        """
        if not self.has_head(below):
            return 0
        at = 1
        while at < len(self.marks) and self.marks[at][0] <= until and self.marks[at][1] - self.marks[0][1] < most:
            at += 1
        count = bisect_left(self.chunk_positions, self.marks[at][1] if at < len(self.marks) else self.size)
        return count if below >= self.next_offset else min(count, max(bisect_right(self.chunk_offsets, below) - 1, 0))

    def drop(self, count: int) -> int:
        """Drop the oldest chunks, which are in the file; returns the number of freed bytes of memory."""
        if count == 0:
            return 0
        before = self.memory
        self.resident_offset = _end_of(self.chunks[count - 1])
        del self.chunks[:count], self.chunk_offsets[:count], self.chunk_positions[:count]
        position = self.resident_from
        tick = self.marks[0][0]
        passed = bisect_right(self.marks, position, key=_position_of)
        if passed:
            tick = self.marks[passed - 1][0]
        self.marks[:passed] = [(tick, position)] if self.chunks else []
        return before - self.memory


def pieces_of(data: bytes, ends: list[tuple[int, int]], shared: dict[int, bytes]) -> Iterator[tuple[int, bytes]]:
    """Split batches into pieces of about 16 KiB: (number of batches, bytes). `ends`: (next offset, end) of each batch.

    `shared` are chunks that others hold, by their position in the data; such a piece is that object.
    """
    start = count = 0
    piece: bytes | None = shared.get(0)
    for _, end in ends:
        count += 1
        if end - start == len(piece) if piece is not None else end - start >= _PIECE_BYTES or end == ends[-1][1] or end in shared:
            yield count, data[start:end] if piece is None else piece
            start, count, piece = end, 0, shared.get(end)


def _position_of(mark: tuple[int, int]) -> int:
    return mark[1]


def _end_of(chunk: bytes) -> int:
    """The offset after the last batch."""
    position, offset = 0, 0
    while position < len(chunk):
        base, length, delta = _SHAPE(chunk, position)
        offset = base + delta + 1
        position += length + LOG_OVERHEAD
    return offset


def _skip_to(chunk: bytes, offset: int) -> int:
    """Position of the first batch that ends at this offset or later; the length if there is none."""
    position, end = 0, len(chunk)
    while position < end:
        base, length, delta = _SHAPE(chunk, position)
        if base + delta >= offset:
            return position
        position += length + LOG_OVERHEAD
    return end
