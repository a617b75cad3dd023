"""The bytes of one replica's log: its segments, in memory and in files, and reading from them.

`broker/log/log.py` interprets the records; it appends to segments and truncates them. An empty log in memory has no segment. Bytes in
memory are counted by the budget that all logs of a process share (`broker/log/memory.py`). Of a log on disk only the end stays in memory;
earlier batches are read from the file by the storage (`broker/log/storage.py`). If the budget is used up, the oldest batches of a log in
memory are in temporary files (`broker/log/spill.py`).

Source: `LocalLog` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from klamm.broker.log.config import LogConfig
from klamm.broker.log.memory import MemoryBudget, Piece
from klamm.broker.log.segment import Segment
from klamm.broker.log.spill import SpillFolder
from klamm.broker.log.storage import AbortedTransaction, Flush, LoadedLog, ReadCommand, Replace, Storage
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import HEADER_SIZE, BatchHeader, CorruptRecords, each_header, read_header, whole_batches
from klamm.seams.value_class import dataclass

if TYPE_CHECKING:
    from klamm.broker.log.slow_disk import DiskDelays

LAST_OFFSET = 2**63 - 1
_SHAPES_READ = 64 * 1024


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """Objects and settings that all logs of a broker share."""

    budget: MemoryBudget
    now_ms: Callable[[], int]
    randrange: Callable[[int], int]
    """Random source for the roll jitter of segments."""
    tail_bytes: int = 1 << 20
    """Minimum number of bytes at its end that a log on disk keeps in memory."""
    delays: DiskDelays | None = None
    """Lets operations of a `SlowLog` wait; only where somebody steers the broker."""
    producers_after_ms: Callable[[], int] = lambda: -(2**63)
    """See `LoadRules.producers_after_ms`."""


class FileRead:
    """A read that needs a file. `size` is an estimate of its result in bytes, `least` what it has at least unless the log changes."""

    __slots__ = ("_log", "_request", "least", "size")

    def __init__(self, log: LocalLog, request: tuple[int, int, int, bool], segment: Segment, end_offset: int) -> None:
        """The arguments of `Log.read`; the segment that `offset` is in, and the offset up to which the log can be read now."""
        offset, max_bytes, _, _ = request
        self._log = log
        self._request = request
        self.size = min(max_bytes, log.bytes_between(offset, end_offset))
        self.least = min(max_bytes, segment.least_between(offset, end_offset))

    def limit(self, size: int) -> None:
        """Read at most `size` bytes."""
        offset, max_bytes, end_offset, min_one = self._request
        self._request = offset, min(max_bytes, size), end_offset, min_one
        self.size, self.least = min(self.size, size), min(self.least, size)

    async def load(self) -> bytes:
        """Read the batches. Raises ApiError like `Log.read`, because the log may have changed in the meantime."""
        return await self._log.load(*self._request)

    def aborted_transactions(self, data: bytes) -> list[AbortedTransaction]:
        """Those that a consumer of committed records needs for the batches that were read."""
        return self._log.aborted_in(self._request[0], data)


class Replacement:
    """A segment that the cleaner fills piece by piece, so that nothing is left to do for each batch when it is put into place."""

    __slots__ = ("_budget", "_index_interval_bytes", "index", "segment", "time_index")

    def __init__(self, old: Sequence[Segment], index_interval_bytes: int, budget: MemoryBudget) -> None:
        self.segment = Segment(old[0].base_offset, old[-1].created_ms, old[0].roll_jitter_ms)
        self.index: list[tuple[int, int]] = []
        self.time_index: list[tuple[int, int]] = []
        self._index_interval_bytes = index_interval_bytes
        self._budget = budget

    def append(self, data: bytes) -> None:
        """Add whole batches, at least one, whose memory is reserved."""
        headers = [header for _, header in each_header(data)]
        newest = max(headers, key=max_timestamp_of)
        entry, time_entry = self.segment.append(
            data, headers[0], headers[-1].next_offset, newest.max_timestamp, newest.last_offset, self._index_interval_bytes,
            self._budget.tick,
        )
        self.index += [entry] if entry else []
        self.time_index += [time_entry] if time_entry else []


def _ignore(error: OSError) -> None:
    pass


class LocalLog:
    """The segments of one log. The attributes may be read; only methods change them. End offsets are exclusive."""

    __slots__ = (
        "_flushing", "_resident", "config", "environment", "flushed_ms", "is_failed", "log_end_offset", "log_start_offset",
        "next_offset", "on_failed", "partition", "recovery_point", "segments", "storage", "topic", "topic_id",
    )

    def __init__(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, environment: LogEnvironment, storage: Storage | None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.environment = environment
        self.storage = storage
        self.segments: list[Segment] = []
        self.log_start_offset = self.next_offset = self.log_end_offset = 0
        self.recovery_point = 0
        self.flushed_ms = environment.now_ms()
        self.on_failed: Callable[[OSError], None] = _ignore
        self.is_failed = False
        self._resident = 0
        self._flushing = 0

    def _take_segments(self, loaded: LoadedLog) -> None:
        """Adopt the segments and offsets of a log that was loaded from files."""
        ends = [segment.base_offset for segment in loaded.segments[1:]] + [loaded.next_offset]
        self.segments = [
            Segment.loaded(segment, end, self._jitter()) for segment, end in zip(loaded.segments, ends, strict=True)
        ]
        self.log_start_offset = loaded.log_start_offset
        self.next_offset = self.log_end_offset = loaded.next_offset
        self.recovery_point = loaded.recovery_point

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.log_start_offset} to {self.log_end_offset})"

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    @property
    def unflushed(self) -> int:
        """Number of records after the recovery point."""
        return self.next_offset - self.recovery_point

    @property
    def _key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def _directory(self) -> str | None:
        return None if self.storage is None else self.storage.directory

    def _jitter(self) -> int:
        """Random time (ms) by which a new segment is rolled earlier."""
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self.environment.randrange(bound) if bound > 0 else 0

    # --- reading

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> bytes | FileRead:
        """Batches of one segment, from the batch that contains `offset`, up to `end_offset` (and the log end offset), cut after
        `max_bytes`; with `min_one` not before the end of the first batch.

        Raises ApiError(OFFSET_OUT_OF_RANGE).
        """
        end = min(end_offset, self.log_end_offset)
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise self.out_of_range(offset)
        if offset >= end or not self.segments:
            return b""
        for segment in self.segments[self._segment_index(offset) :]:
            if segment.base_offset >= end:
                break
            if offset < segment.resident_offset and not segment.has_in_memory(offset):
                until = end if self.storage is not None else min(end, segment.resident_offset)
                return FileRead(self, (offset, max_bytes, end_offset, min_one), segment, until)
            data = segment.read(offset, max_bytes, end, min_one)
            if data is not None:
                return data
        return b""

    async def load(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> bytes:
        """Like `read`, but also reads files if necessary. Raises ApiError."""
        end = min(end_offset, self.log_end_offset)
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise self.out_of_range(offset)
        at = self._segment_index(offset)
        while at < len(self.segments) and self.segments[at].base_offset < end:
            segment = self.segments[at]
            if segment.has_in_memory(offset):
                data = segment.read(offset, max_bytes, end, min_one)
            else:
                try:
                    data = await self._read_file(segment, offset, max_bytes, end, min_one)
                except ApiError as error:
                    if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or segment in self.segments:
                        raise
                    return await self.load(offset, max_bytes, end_offset, min_one)  # it was compacted, cut or deleted during the read
            if data is not None:
                return data
            at = bisect_right(self.segments, segment.base_offset, key=base_offset_of)  # of what the log has now
        return b""

    def out_of_range(self, offset: int) -> ApiError:
        """The error for an offset that the log does not have."""
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Received request for offset {offset} for partition {self.topic}-{self.partition}, but we only have log segments upto "
            f"{self.log_end_offset}.",
        )

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Approximate number of bytes from `offset` to `end_offset`; exact if the batches were appended one by one."""
        if offset >= end_offset:
            return 0
        segments = self.segments
        if segments and segments[-1].base_offset <= offset:
            return segments[-1].position_of(end_offset) - segments[-1].position_of(offset)
        total = 0
        for segment in segments[self._segment_index(offset) :]:
            if segment.base_offset >= end_offset:
                break
            total += segment.position_of(end_offset) - segment.position_of(offset)
        return total

    def offset_after(self, size: int) -> int:
        """Approximate offset after the first `size` bytes of the log, not after it."""
        for segment in self.segments:
            if size < segment.size:
                return segment.offset_at(size)
            size -= segment.size
        return self.segments[-1].next_offset if self.segments else 0

    async def _read_file(self, segment: Segment, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> bytes | None:
        """Batches of a segment from its file, None if it has none from `offset` on. Raises ApiError."""
        try:
            if self.storage is None:
                return await self._read_temporary(segment, offset, max_bytes, end_offset, min_one)
            return await self._read(segment, segment.position_of(offset), offset, end_offset, max_bytes, min_one)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except KeyError:
            raise self.out_of_range(offset) from None

    async def _read_temporary(self, segment: Segment, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> bytes | None:
        """Batches of a segment of a log in memory, from its file or what follows there. Raises like `_read`."""
        while not segment.has_in_memory(offset):
            position, before = segment.position_of(offset), (segment.truncations, segment.resident_from)
            try:
                data = await self._read(segment, position, offset, end_offset, max_bytes, min_one)
            except CorruptRecords:
                if segment.truncations == before[0]:
                    raise
                continue  # other batches were written in place of those that the read began with
            if data is not None and segment.truncations == before[0]:
                return data
            if data is None and (segment.truncations, segment.resident_from) == before:
                break  # a truncation or the cleaner has left a gap between the file and the memory
        return segment.read(offset, max_bytes, end_offset, min_one)

    async def _read(self, segment: Segment, position: int, offset: int, end_offset: int, max_bytes: int, min_one: bool) -> bytes | None:
        """Execute a `ReadCommand` on the file of a segment. Raises OSError; KeyError if the segment was deleted."""
        end = segment.resident_from if self.storage is None else segment.size
        command = ReadCommand(segment.base_offset, position, end, offset, end_offset, max_bytes, min_one)
        if self.storage is not None:
            return await self.storage.read(command)
        return None if segment.spill is None else await segment.spill.read(command)

    async def _place_in_file(self, segment: Segment, offset: int) -> tuple[int, tuple[int, int]]:
        """Position of the batch that contains the offset, or of the first one after it; and what `Segment.truncate` needs to know of the
        timestamps in the file. Raises OSError.
        """
        position = min(segment.position_of(offset), segment.unread_from(offset))
        newest = -1, -1
        while position < segment.resident_from:
            data = await self._read(segment, position, 0, LAST_OFFSET, _SHAPES_READ, True)
            before = position
            for start, header in each_header(data or b""):
                if header.last_offset >= offset:
                    return before + start, newest
                position = before + start + header.size
                if header.max_timestamp > newest[0]:
                    newest = header.max_timestamp, header.last_offset
            if position == before:
                break
        try:
            return segment.cut_of(offset)[0], newest
        except KeyError:
            return position, newest  # the offset is in a gap between the file and the memory

    def _segment_index(self, offset: int) -> int:
        """Index of the segment that contains the offset; of the first segment for earlier offsets."""
        segments = self.segments
        if segments and segments[-1].base_offset <= offset:
            return len(segments) - 1
        return max(bisect_right(segments, offset, key=base_offset_of) - 1, 0)

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a consumer of committed records needs for the records from `offset` to before `end_offset`."""
        aborted = []
        for segment in self.segments[self._segment_index(offset) :]:
            for entry in segment.aborted:
                if entry.last_offset >= offset and entry.first_offset < end_offset:
                    aborted.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return aborted
        return aborted

    def aborted_in(self, offset: int, data: bytes) -> list[AbortedTransaction]:
        """The aborted transactions that a consumer of committed records gets with these batches, which were read from `offset` on.

        As in Apache Kafka, these are those that begin before the next entry of the offset index, or before the next segment.
        """
        if not any(segment.aborted for segment in self.segments[self._segment_index(offset) :]):
            return []
        end, position = offset, 0
        for at, header in each_header(data):
            end, position = header.next_offset, at + header.size
        if len(data) - position >= HEADER_SIZE:
            end = read_header(data, position).next_offset  # the last batch is cut, and the index entry sought lies behind its beginning
        at = self._segment_index(end - 1)
        segment = self.segments[at]
        entry = bisect_left(segment.index_offsets, end)
        if entry < len(segment.index_offsets):
            return self.aborted_transactions(offset, segment.index_offsets[entry])
        return self.aborted_transactions(offset, self.segments[at + 1].base_offset if at + 1 < len(self.segments) else self.log_end_offset)

    # --- the cleaner

    async def segment_bytes(self, segment: Segment, offset: int, max_bytes: int) -> bytes:
        """Whole batches of a segment from the batch with this offset on, at least one; b"" at the end. Raises ApiError."""
        if segment.has_in_memory(offset):
            data = segment.read(offset, max_bytes, LAST_OFFSET, True)
        else:
            data = await self._read_file(segment, offset, max_bytes, LAST_OFFSET, True)
        return whole_batches(data or b"")

    def replacement(self, old: Sequence[Segment]) -> Replacement:
        """An empty segment to put in the place of these neighbouring ones."""
        return Replacement(old, self.config.index_interval_bytes, self.environment.budget)

    def replace_segments(self, old: Sequence[Segment], replacement: Replacement, aborted: Sequence[AbortedTransaction]) -> bool:
        """Replace neighbouring closed segments by another one; then await `replaced`. Returns False if they are not in the log any more.

        The caller has reserved the memory of the batches (with `CHUNK_OVERHEAD` for each append); afterwards it belongs to the log.
        """
        first = next((index for index, segment in enumerate(self.segments) if segment is old[0]), None)
        if first is None or self.segments[first : first + len(old)] != [*old] or old[-1] is self.segments[-1] or self.is_failed:
            return False
        made, index, time_index = replacement.segment, replacement.index, replacement.time_index
        last = made.time_index_entry()
        time_index += [last] if last else []
        made.next_offset = old[-1].next_offset
        made.aborted = [*aborted]
        self.segments[first : first + len(old)] = [made]
        if not self._resident and made.chunks:
            self.environment.budget.hold(self)
        self._resident += made.memory
        self._discard(old)
        if self.storage is not None:
            made.is_pinned = True
            gone = tuple(segment.base_offset for segment in old)
            self.storage.execute(Replace(gone, made.base_offset, b"".join(made.chunks), index, time_index, made.aborted))
        return True

    async def replaced(self, base_offset: int) -> None:
        """Wait until a segment that replaced others is written. Its bytes stay in memory until then."""
        if self.storage is not None:
            await self.storage.drain()
            for segment in self.segments:
                if segment.base_offset == base_offset:
                    segment.is_pinned = False

    # --- storage and memory

    @property
    def topic_partition(self) -> TopicPartition:
        """See `MemoryHolder`."""
        return TopicPartition(self.topic, self.partition)

    def chunk_at(self, offset: int) -> bytes | None:
        """See `MemoryHolder`."""
        return self.segments[self._segment_index(offset)].chunk_at(offset) if self.segments else None

    def flush(self) -> None:
        """Force all appended records to disk, if the log is on disk."""
        if self.storage is not None and max(self._flushing, self.recovery_point) < self.next_offset:
            self._flushing = self.next_offset
            self.storage.execute(Flush(self.next_offset, self._unflushed_segments()))

    def _unflushed_segments(self) -> tuple[int, ...]:
        """Base offsets of the segments with offsets after the recovery point."""
        first = max(bisect_right(self.segments, self.recovery_point, key=base_offset_of) - 1, 0)
        return tuple(segment.base_offset for segment in self.segments[first:])

    def flushed(self, offset: int) -> None:
        """Called by the storage: everything before this offset is forced to disk."""
        self.recovery_point = max(self.recovery_point, min(offset, self.next_offset))
        self.flushed_ms = self.environment.now_ms()

    def failed(self, error: OSError) -> None:
        """Called by the storage: a command failed."""
        if not self.is_failed:
            self.is_failed = True
            self.on_failed(error)

    def close(self) -> None:
        """Release the memory of the log. It must not be used afterwards."""
        self._free(self._resident)
        _remove_files(self.segments)
        self.segments = []

    def _discard(self, segments: Sequence[Segment]) -> None:
        """Release the memory of segments that are not in the log any more, and remove their temporary files."""
        self._free(sum(segment.memory for segment in segments))
        _remove_files(segments)

    def _free(self, size: int) -> None:
        if size:
            self._resident -= size
            self.environment.budget.release(size)
            if not self._resident:
                self.environment.budget.forget(self)

    def _oldest_resident(self) -> Segment | None:
        return next((segment for segment in self.segments if segment.chunks), None)

    def oldest_tick(self) -> int | None:
        """Called by the memory budget; see `MemoryHolder`."""
        segment = self._oldest_resident()
        return None if segment is None or not segment.has_head(self._written) else segment.marks[0][0]

    def drop_oldest(self) -> int:
        """Called by the memory budget, and after a write; see `MemoryHolder`."""
        segment = self._oldest_resident()
        if segment is None or self.storage is None:
            return 0
        freed = segment.drop(segment.head(self._written, -1, 0))
        self._free(freed)
        return freed

    def oldest_piece(self, until: int, most: int, folder: SpillFolder) -> Piece | None:
        """Called by the memory budget; see `MemoryHolder`."""
        segment = self._oldest_resident()
        if segment is None or self.storage is not None:
            return None
        count = segment.head(self._written, until, most)
        if not count:
            return None
        if segment.spill is None:
            segment.spill = folder.file()
        truncations, held = segment.truncations, segment

        def written() -> None:
            if held.truncations == truncations and held in self.segments:
                self._free(held.drop(count))

        return Piece(segment.spill, segment.resident_from, segment.chunks[:count], written)

    @property
    def _written(self) -> int:
        """Batches before this offset need not stay in memory: they are in a file, or can be written to a temporary one."""
        return self.next_offset if self.storage is None else self.log_end_offset


def _remove_files(segments: Sequence[Segment]) -> None:
    for segment in segments:
        if segment.spill is not None:
            segment.spill.remove()


def base_offset_of(segment: Segment) -> int:
    return segment.base_offset


def max_timestamp_of(header: BatchHeader) -> int:
    return header.max_timestamp
