"""The log of one replica: record batches by offset, and the state that a leader or a follower needs.

It runs on the event loop and does not make system calls. A log in memory has stored its bytes when they are appended. A log on disk passes
commands to its storage (`broker/log/storage.py`), and its log end offset moves when they are written; until then `next_offset` is ahead of
it.

Segments, their memory, and reading from them are in `broker/log/local_log.py`, producers and what consumers may read are in
`broker/log/producer_log.py`, retention is in `broker/log/retention.py`, the search by timestamp in `broker/log/timestamps.py`.

Source: `UnifiedLog` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from klamm.broker.log.config import LogConfig
from klamm.broker.log.epochs import LeaderEpochs
from klamm.broker.log.local_log import LogEnvironment, base_offset_of, max_timestamp_of
from klamm.broker.log.memory import CHUNK_OVERHEAD
from klamm.broker.log.producer_log import ProducerLog
from klamm.broker.log.producers import ProducerStates
from klamm.broker.log.segment import Segment, pieces_of
from klamm.broker.log.storage import (
    Append,
    Close,
    DeleteSegments,
    LoadedLog,
    Roll,
    StartAt,
    Storage,
    Truncate,
    WriteEpochs,
)
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import BatchHeader, Buffer, CorruptRecords, computed_crc, each_header
from klamm.protocol.records.validation import Assigned, Origin, assign


class UnexpectedOffset(Exception):
    """The received batches do not continue the follower's log: it already has the offset, or the offsets do not increase."""


class PendingCut:
    """A truncation that looks for its place in a file. Only the newest one of a log, which nobody has given up, may cut the log."""


class AppendResult(NamedTuple):
    """The offsets of appended records; for a duplicate those of the first append. `log_append_time_ms` is -1 if records keep their
    timestamps.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


def _nothing() -> None:
    pass


class Log(ProducerLog):
    """One log. The attributes may be read; only methods change them. End offsets are exclusive."""

    __slots__ = (
        "_leader_high_watermark", "_truncation", "clean_offset", "epochs", "on_start_moved", "on_written", "truncations",
    )

    def __init__(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, environment: LogEnvironment,
        storage: Storage | None = None, loaded: LoadedLog | None = None,
    ) -> None:
        """An empty log in memory, or with `storage` and `loaded` a log on disk."""
        super().__init__(topic, partition, topic_id, config, environment, storage)
        self.epochs = LeaderEpochs()
        self.on_written: Callable[[], None] = _nothing
        """Called when the log end offset has moved because bytes were written."""
        self.on_start_moved: Callable[[], object] = _nothing
        """Called when the log start offset has moved forward: by a request, by retention, or to free memory."""
        self.clean_offset = 0
        """The cleaner has compacted everything before this offset."""
        self._truncation: PendingCut | None = None
        self.truncations = 0
        """Number of times that the log was cut. Who has read it before an await compares this number afterwards."""
        self._leader_high_watermark = 0
        """The leader's high watermark, at most up to `next_offset`, until the records before it are written."""
        if storage is not None and loaded is not None:
            self._take(storage, loaded)

    def _take(self, storage: Storage, loaded: LoadedLog) -> None:
        self._take_segments(loaded)
        self.clean_offset = loaded.clean_offset
        self.epochs = LeaderEpochs(loaded.epochs)
        if loaded.producers:
            self._producers = ProducerStates(loaded.producers, loaded.next_offset)
        storage.attach(self)
        self.set_high_watermark(loaded.high_watermark)

    def handed_over(self, log_start_offset: int, high_watermark: int) -> Log:
        """A new log in memory with the same records, for the next start of the broker. This log must not be used any more.

        It is like a log that a broker finds on disk: the offsets come from a checkpoint, and no leader epoch begins at the log end.
        """
        made = type(self)(self.topic, self.partition, self.topic_id, self.config, self.environment)
        made.segments, self.segments = self.segments, []
        if self._resident:
            self.environment.budget.forget(self)
            self.environment.budget.hold(made)
        made._resident, self._resident = self._resident, 0
        made.next_offset = made.log_end_offset = self.next_offset
        made.log_start_offset = max(log_start_offset, made.segments[0].base_offset) if made.segments else self.next_offset
        made.clean_offset = self.clean_offset
        made.epochs, self.epochs = self.epochs, LeaderEpochs()
        made.epochs.truncate_from(made.next_offset)
        made._producers, self._producers = self._producers, None
        made._are_producers_known = self._are_producers_known
        made.set_high_watermark(high_watermark)
        self.is_failed = True
        return made

    # --- what it is

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch not above this one, its end offset), (-1, -1) if the epoch is not known yet."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # --- appending

    def _check_writable(self) -> None:
        if self.is_failed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory has failed")
        if self._truncation is not None or self._reading_producers is not None:  # `is_truncating`, without a call
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log is being truncated")

    def append_as_leader(
        self, records: Buffer, leader_epoch: int, version: int, origin: Origin, now_ms: int
    ) -> AppendResult:
        """Check records of a Produce request of this version and append them. Raises Refused, or ApiError with the partition's code."""
        name = TopicPartition(self.topic, self.partition)
        assigned = assign(records, version, self.next_offset, leader_epoch, self.config.rules, now_ms, origin, name)
        return self.append_assigned(assigned, origin, now_ms)

    def append_assigned(self, assigned: Assigned, origin: Origin, now_ms: int) -> AppendResult:
        """Append the result of `assign`, which may have run in a thread. Raises ApiError; ValueError if the log has grown in the meantime.
        """
        headers = assigned.headers
        if not headers:
            return AppendResult(-1, -1, -1, self.log_start_offset)
        first, last = headers[0], headers[-1]
        if first.base_offset != self.next_offset:
            raise ValueError(f"records for offset {first.base_offset}, the log is at {self.next_offset}")
        self._check_writable()
        data = assigned.data
        if len(data) > self.config.segment_bytes:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(data)} bytes are more than the segment size {self.config.segment_bytes}")
        for header in headers:
            if header.producer_id >= 0:
                duplicate = self._check_producer(header, data, origin)
                if duplicate is not None:
                    base_offset = duplicate.last_offset - duplicate.offset_delta
                    return AppendResult(base_offset, duplicate.last_offset, duplicate.timestamp, self.log_start_offset, True)
        self._append(data, headers, assigned.max_timestamp, assigned.offset_of_max_timestamp, now_ms)
        return AppendResult(first.base_offset, last.last_offset, assigned.log_append_time_ms, self.log_start_offset)

    def append_as_follower(self, data: Buffer, leader_high_watermark: int, crc_checked: bool = False) -> None:
        """Append the batches that a follower fetched, and adopt the leader's high watermark, at most up to the log end.

        Raises CorruptRecords for invalid bytes, UnexpectedOffset, ApiError(KAFKA_STORAGE_ERROR); then nothing was appended.
        """
        self._check_writable()
        whole = bytes(data)
        headers = []
        ends = []
        next_offset = self.next_offset
        begins_at = None
        for position, header in each_header(whole):
            if position == 0 and header.base_offset < next_offset < header.next_offset and next_offset == self.log_start_offset:
                begins_at = next_offset = header.base_offset  # the leader's log begins within this batch, whose first records are deleted
            if header.base_offset < next_offset:
                raise UnexpectedOffset(f"{self!r} received offset {header.base_offset}, expected {next_offset} or a later one")
            if not crc_checked and computed_crc(whole, position, header.size) != header.crc:
                raise CorruptRecords(f"the batch at offset {header.base_offset} has a wrong CRC")
            next_offset = header.next_offset
            headers.append(header)
            ends.append((next_offset, position + header.size))
        if headers:
            if ends[-1][1] < len(whole):
                whole = whole[: ends[-1][1]]
            self.environment.budget.make_space(len(whole) + CHUNK_OVERHEAD * len(headers))
            if begins_at is not None:
                self.truncate_fully_and_start_at(begins_at)
            self._append_pieces(whole, headers, ends)
        elif len(whole) > 0:
            raise CorruptRecords(f"{len(whole)} bytes hold no whole batch")
        self.follow_high_watermark(leader_high_watermark)

    def _append_pieces(self, data: bytes, headers: list[BatchHeader], ends: list[tuple[int, int]]) -> None:
        now_ms = self.environment.now_ms()
        shared = self.environment.budget.shared_chunks(self, data, headers, ends)
        if len(headers) == 1:
            self._append(shared.get(0, data), headers, headers[0].max_timestamp, headers[0].last_offset, now_ms)
            return
        done = 0
        for count, piece in pieces_of(data, ends, shared):
            batches = headers[done : done + count]
            newest = max(batches, key=max_timestamp_of)
            self._append(piece, batches, newest.max_timestamp, newest.last_offset, now_ms)
            done += count

    def _append(self, data: bytes, headers: list[BatchHeader], max_timestamp: int, offset_of_max: int, now_ms: int) -> None:
        """Store checked batches at the end. Raises ApiError(KAFKA_STORAGE_ERROR), without any change."""
        budget = self.environment.budget
        memory = len(data) + CHUNK_OVERHEAD
        budget.reserve(memory)
        next_offset = headers[-1].next_offset
        latest = self.epochs.latest
        for header in headers:
            if header.leader_epoch > latest:
                self.assign_epoch(header.leader_epoch, header.base_offset)
                latest = header.leader_epoch
        segment = self._segment_for(len(data), max_timestamp, next_offset - 1, now_ms)
        if not self._resident:
            budget.hold(self)
        self._resident += memory
        position, storage = segment.size, self.storage
        index, time_index = segment.append(
            data, headers[0], next_offset, max_timestamp, offset_of_max, self.config.index_interval_bytes, budget.tick
        )
        self.next_offset = next_offset
        aborted = self._update_producers(data, headers)
        if aborted:
            segment.aborted.extend(aborted)
        if storage is None:
            self.log_end_offset = next_offset
        else:
            storage.execute(Append(segment.base_offset, position, data, next_offset, index, time_index, tuple(aborted)))
            if next_offset - max(self.recovery_point, self._flushing) >= self.config.flush_messages:
                self.flush()

    def _segment_for(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> Segment:
        segments, config = self.segments, self.config
        if not segments:
            segments.append(Segment(self.next_offset, now_ms, self._jitter()))
        elif segments[-1].should_roll(
            size, max_timestamp, last_offset, now_ms, config.segment_bytes, config.segment_ms, config.segment_index_bytes
        ):
            self.roll(now_ms)
        return segments[-1]

    def roll(self, now_ms: int) -> None:
        """Roll a new segment, unless the active one is empty."""
        active = self.segments[-1]
        if active.base_offset == self.next_offset:
            active.created_ms = now_ms
            return
        entry = active.time_index_entry()
        if self.storage is not None:
            self.storage.execute(Roll(self.next_offset, entry, self._producers_to_write(), self._unflushed_segments()))
        self.segments.append(Segment(self.next_offset, now_ms, self._jitter()))

    # --- offsets

    def follow_high_watermark(self, offset: int) -> bool:
        """Adopt the high watermark of the leader, at most up to the end of the records that were appended; the part that is not written yet
        when it is. What lies behind this end is forgotten: later records need not be those that this leader had there.
        """
        self._leader_high_watermark = min(offset, self.next_offset)
        return self.set_high_watermark(offset)

    def set_log_start_offset(self, offset: int) -> bool:
        """Delete the records before this offset; returns whether the log start offset has moved. Raises ApiError(OFFSET_OUT_OF_RANGE) if it
        is above the high watermark.
        """
        if offset > self.high_watermark:
            reason = f"Cannot increment the log start offset to {offset}: the high watermark is {self.high_watermark}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        return self.advance_log_start(offset)

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start offset forward, also above the high watermark; returns whether it has moved."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        if self.epochs.truncate_to(offset):
            self._write_epochs()
        if self.high_watermark < offset:
            self.set_high_watermark(offset)
        else:
            self._update_last_stable_offset()
        if self.storage is None:
            self.delete_before_start()
        self.on_start_moved()
        return True

    def delete_before_start(self) -> int:
        """Delete the segments that end before the log start offset; returns their number."""
        count = 0
        while count + 1 < len(self.segments) and self.segments[count + 1].base_offset <= self.log_start_offset:
            count += 1
        if count:
            self.delete_segments(count)
        return count

    def delete_segments(self, count: int) -> None:
        """Delete the first `count` segments. The log start offset moves to the first remaining one."""
        gone = self.segments[:count]
        del self.segments[:count]
        self._discard(gone)
        if self.storage is not None:
            self.storage.execute(DeleteSegments(tuple(segment.base_offset for segment in gone), self.config.file_delete_delay_ms))
        self.advance_log_start(self.segments[0].base_offset if self.segments else self.next_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that a leader epoch begins at this offset."""
        if self.epochs.assign(epoch, start_offset):
            self._write_epochs()

    def _write_epochs(self) -> None:
        if self.storage is not None:
            self.storage.execute(WriteEpochs(self.epochs.entries))

    # --- truncation

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation has begun and is not complete. Nothing can be appended meanwhile."""
        return self._truncation is not None or self._reading_producers is not None

    def begin_truncation(self) -> PendingCut:
        """The truncation that may cut the log from now on. Earlier ones may not any more."""
        self._truncation = PendingCut()
        return self._truncation

    def give_up_truncation(self) -> None:
        """The replica leads or follows in a new leader epoch, or is stopped: a truncation for the former epoch does not cut the log any
        more. In Apache Kafka such a truncation has ended before, because both take the same lock.
        """
        self._truncation = None

    def truncate_to(self, offset: int) -> Awaitable[None] | None:
        """Truncate the log to `offset`; a batch that contains the offset is removed too. Returns None if it is done, otherwise an
        awaitable. If the truncation is given up before its place is found, the log stays as it is.
        """
        self.give_up_truncation()
        if offset >= self.next_offset:
            if self.epochs.truncate_from(offset):
                self._write_epochs()
            return self._read_producers()
        if not self.segments or offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return None
        segment = self.segments[bisect_right(self.segments, offset, key=base_offset_of) - 1]
        if not segment.is_cut_in_memory(offset):
            return self._find_and_cut(self.begin_truncation(), segment, offset)
        self._cut(segment, segment.cut_of(offset)[0], offset)
        return self._read_producers()

    async def _find_and_cut(self, truncation: PendingCut, segment: Segment, offset: int) -> None:
        """Find the batch that contains the offset in the file, and truncate there. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        try:
            if self._reading_producers is not None:
                await asyncio.wait({self._reading_producers})
            position, newest = await self._place_in_file(segment, offset)
            if self._truncation is truncation:
                self._cut(segment, position, offset, newest)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except KeyError:
            if self._truncation is truncation:  # otherwise nobody waits for this cut any more
                raise _gone(segment) from None
        finally:
            if self._truncation is truncation:
                self._truncation = None
        rest = self._read_producers()
        if rest is not None:
            await rest

    def _cut(self, segment: Segment, position: int, offset: int, newest: tuple[int, int] = (-1, -1)) -> None:
        """Truncate the log at this position; `newest` is that of `Segment.truncate`. Raises ApiError(KAFKA_STORAGE_ERROR) if the segment is
        not in the log any more.
        """
        kept = bisect_right(self.segments, segment.base_offset, key=base_offset_of)
        if not kept or self.segments[kept - 1] is not segment:
            raise _gone(segment)
        gone = self.segments[kept:]
        del self.segments[kept:]
        before = segment.memory
        segment.truncate(position, offset, newest)
        self._free(before - segment.memory)
        self._discard(gone)
        if self.storage is not None:
            self.storage.execute(Truncate(offset, segment.base_offset, position, tuple(later.base_offset for later in gone)))
        self.log_start_offset = min(self.log_start_offset, offset)
        self._ended_at(offset)
        if self.epochs.truncate_from(offset):
            self._write_epochs()
        if self._producers is not None:
            if not self._producers.truncate_to(offset):
                self._are_producers_known = False
            self._update_last_stable_offset()

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Delete all records; the empty log begins at this offset. The log start offset is the same, or the given earlier one."""
        gone = self.segments
        self.segments = []
        self._discard(gone)
        if self.storage is not None:
            self.storage.execute(StartAt(offset, tuple(segment.base_offset for segment in gone)))
            self.segments.append(Segment(offset, self.environment.now_ms(), self._jitter()))
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.next_offset = self.log_end_offset = offset
        self.recovery_point = self._flushing = min(self.recovery_point, offset)
        self.clean_offset = min(self.clean_offset, offset)
        self._producers = None
        self._was_cut(offset)
        self._are_producers_known = True
        if self.epochs.clear():
            self._write_epochs()
        self.high_watermark = -1
        self.set_high_watermark(offset)

    def _ended_at(self, offset: int) -> None:
        """The log now ends at this offset, which is below its former end."""
        self.next_offset = offset
        self.log_end_offset = min(self.log_end_offset, offset)
        self.clean_offset = min(self.clean_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self._flushing = min(self._flushing, offset)
        self._was_cut(offset)
        if self.high_watermark > self.log_end_offset:
            self.set_high_watermark(self.log_end_offset)

    def _was_cut(self, offset: int) -> None:
        self.truncations += 1
        self._leader_high_watermark = min(self._leader_high_watermark, offset)

    # --- storage and memory

    def written(self, next_offset: int) -> None:
        """Called by the storage: everything before this offset is written."""
        if next_offset <= self.log_end_offset:
            return
        self.log_end_offset = min(next_offset, self.next_offset)
        if self._leader_high_watermark > self.high_watermark:
            self.set_high_watermark(self._leader_high_watermark)
        while self.storage is not None and self._resident > 2 * self.environment.tail_bytes and self.drop_oldest():
            pass
        self.on_written()

    def close_files(self) -> Awaitable[None] | None:
        """Send the last command of a clean shutdown, if the log is on disk. Returns what is to be awaited, or None."""
        if self.storage is not None and not self.is_failed:
            entry = self.segments[-1].time_index_entry() if self.segments else None
            self.storage.execute(Close(self.next_offset, entry, self._producers_to_write(), self._unflushed_segments()))
        return None


def _gone(segment: Segment) -> ApiError:
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"segment {segment.base_offset} was deleted or compacted meanwhile")
