"""The log cleaner: it selects the compacted log to clean next, and cleans it. The rules for batches are in `broker/log/cleaner.py`.

A log has a clean part, which was compacted before, then a dirty part, which can be cleaned, and then a part that cannot be cleaned yet: the
active segment, records younger than `min.compaction.lag.ms`, and unstable records. The log with the largest dirty ratio is cleaned next, if
the ratio is large enough, or if some records have waited longer than `max.compaction.lag.ms`. First the cleaner notes the last offset of
each key in the dirty part. Then it writes all segments up to its end again, without the records that have a later one. Small neighbouring
segments become one.

The work is done in pieces, in a thread if the owner passes a `work` that does so. If a log changes in the meantime, or there is no memory
at the moment, the log is not changed and is cleaned later.

A log with unreadable records is marked as uncleanable: an error is logged once, the log is not changed, and the next log is cleaned. The
mark is removed when the log is deleted or moves to another directory, and it ends with the process; truncation does not remove it.
Retention of a topic with `compact,delete` continues, because it does not read records (Apache Kafka stops it for such a log).

Source: `LogCleaner`, `LogCleanerManager`, `Cleaner` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from klamm.broker.log.cleaner import AbortedReader, CleanRules, LastRecord, clean, note_keys
from klamm.broker.log.log import Log
from klamm.broker.log.memory import CHUNK_OVERHEAD
from klamm.broker.log.segment import Segment
from klamm.broker.log.storage import ProducerEntry
from klamm.broker.log.timestamps import next_offset_of
from klamm.configs.broker_config import BrokerConfig
from klamm.machine.faults import contained
from klamm.protocol.errors import ApiError
from klamm.protocol.records.batch import CorruptRecords
from klamm.protocol.records.compression import BadCompression, TooLarge
from klamm.protocol.records.scan import BadRecord
from klamm.seams.clock import Clock

log_ = logging.getLogger(__name__)

PIECE_BYTES = 128 * 1024
_KEY_MEMORY = 200
"""Approximate memory of a key and its offset, in bytes."""


class Candidate(NamedTuple):
    """A log that can be cleaned from `first_dirty` up to `end` (exclusive). `ratio` is the share of `dirty_bytes` in all bytes before
    `end`.
    """

    log: Log
    first_dirty: int
    end: int
    ratio: float
    is_overdue: bool
    dirty_bytes: int


class UncleanableLog(NamedTuple):
    """A log that the cleaner does not clean, because it cannot read it."""

    topic: str
    partition: int
    directory: str | None
    """None for a log in memory."""
    dirty_bytes: int
    """Bytes of the dirty part, counted like Apache Kafka's metric `uncleanable-bytes`."""
    reason: str


class _Mark(NamedTuple):
    directory: str | None
    reason: str


def candidate(log: Log, now_ms: int) -> Candidate | None:
    """The part of a log that can be cleaned, None if there is nothing to clean."""
    if not log.config.compact or len(log.segments) < 2 or log.is_failed:
        return None
    first_dirty = log.clean_offset if log.log_start_offset <= log.clean_offset <= log.log_end_offset else log.log_start_offset
    end = min(log.last_stable_offset, log.segments[-1].base_offset)
    clean_bytes = dirty_bytes = 0
    oldest_ms = None
    for segment in log.segments[:-1]:
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size
            continue
        young = log.config.min_compaction_lag_ms > 0 and segment.largest_timestamp > now_ms - log.config.min_compaction_lag_ms
        if segment.next_offset > end or young:  # only whole segments: records after `end` do not replace earlier ones
            end = min(end, segment.base_offset)
            break
        dirty_bytes += segment.size
        begun_ms = segment.rolling_timestamp if segment.rolling_timestamp >= 0 else segment.created_ms
        oldest_ms = begun_ms if oldest_ms is None else min(oldest_ms, begun_ms)
    if not dirty_bytes or end <= first_dirty:
        return None
    is_overdue = oldest_ms is not None and now_ms - oldest_ms > log.config.max_compaction_lag_ms
    return Candidate(log, first_dirty, end, dirty_bytes / (clean_bytes + dirty_bytes), is_overdue, dirty_bytes)


def choose(logs: Iterable[Log], now_ms: int) -> Candidate | None:
    """The log to clean next: the one with the largest dirty ratio among those that are dirty enough."""
    candidates = [
        one
        for log in logs
        if log.config.compact
        and (one := candidate(log, now_ms)) is not None
        and (one.is_overdue or one.ratio > log.config.min_cleanable_dirty_ratio)
    ]
    return max(candidates, key=_ratio_of, default=None)


Work = Callable[..., Awaitable[Any]]
"""`await work(function, *arguments)` calls the function, perhaps in a thread, and returns its result."""


async def work_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function on the event loop, and let other tasks run afterwards."""
    result = function(*arguments)
    await asyncio.sleep(0)
    return result


class LogCleaner:
    """Cleans the logs of one broker, one at a time. `logs` returns the open logs."""

    def __init__(self, logs: Callable[[], Iterable[Log]], config: BrokerConfig, clock: Clock, work: Work = work_here) -> None:
        self._logs = logs
        self._config = config
        self._clock = clock
        self._work = work
        self._marks: dict[Log, _Mark] = {}
        self._later: dict[Log, float] = {}
        """Log that could not be cleaned for a temporary reason → time (monotonic) of the next attempt."""

    async def run(self) -> None:
        """Clean dirty logs until this is cancelled."""
        get = self._config.get
        await self._clock.sleep(get("log.initial.task.delay.ms") / 1000)
        while True:
            chosen = None
            with contained(log_, "the choice of the log to compact"):
                chosen = choose(self._cleanable(), self._clock.now_ms())
            if chosen is None:
                await self._clock.sleep(get("log.cleaner.backoff.ms") / 1000)
            elif not await self._clean(chosen):
                self._later[chosen.log] = self._clock.monotonic() + get("log.cleaner.backoff.ms") / 1000

    def uncleanable(self) -> list[UncleanableLog]:
        """The logs that are marked as uncleanable."""
        self._forget_marks()
        marked = []
        for log, mark in self._marks.items():
            dirty = candidate(log, self._clock.now_ms())
            dirty_bytes = 0 if dirty is None else dirty.dirty_bytes
            marked.append(UncleanableLog(log.topic, log.partition, mark.directory, dirty_bytes, mark.reason))
        return marked

    def _cleanable(self) -> list[Log]:
        """The logs that are neither marked nor waiting for another attempt."""
        self._forget_marks()
        now = self._clock.monotonic()
        self._later = {log: until for log, until in self._later.items() if until > now}
        return [log for log in self._logs() if log not in self._marks and log not in self._later]

    def _forget_marks(self) -> None:
        """Drop the marks of logs that are deleted or have moved to another directory."""
        if self._marks:
            logs = set(self._logs())
            self._marks = {log: mark for log, mark in self._marks.items() if log in logs and _directory(log) == mark.directory}

    def _mark(self, log: Log, reason: str, fault: Exception | None = None) -> None:
        self._marks[log] = _Mark(_directory(log), reason)
        log_.warning(
            "%r in %s cannot be compacted and is marked as uncleanable: %s. It is left as it is until the broker restarts, or the log is "
            "moved or deleted; other logs are compacted", log, _directory(log) or "memory", reason, exc_info=fault,
        )

    async def _clean(self, chosen: Candidate) -> bool:
        """Clean one log; returns False if that is not possible now. A log that cannot be read is marked."""
        log, truncations = chosen.log, chosen.log.truncations
        try:
            return await self.clean(chosen)
        except ApiError as error:
            if not log.is_failed:  # otherwise its directory is offline, which was logged
                log_.warning("%r is not compacted now: %s", log, error)
        except (BadCompression, BadRecord, CorruptRecords, TooLarge) as error:
            if log.truncations == truncations:  # otherwise it read bytes that were written over what was cut
                self._mark(log, str(error))
        except Exception as error:  # noqa: BLE001 - a fault: log it with a traceback, and continue with other logs
            if log.truncations == truncations:
                self._mark(log, f"{type(error).__name__}: {error}", error)
        return False

    async def clean(self, chosen: Candidate) -> bool:
        """Clean one log; returns False if it has changed in the meantime. Raises ApiError if there is no memory or a file cannot be read.
        """
        log, truncations = chosen.log, chosen.log.truncations
        latest, end = await self._note_keys(chosen)
        if end <= chosen.first_dirty:
            return False
        rules = CleanRules(self._clock.now_ms(), log.config.delete_retention_ms, end - 1, _last_records(log.active_producers()))
        reader = AbortedReader([entry for segment in log.segments for entry in segment.aborted])
        segments = [segment for segment in log.segments[:-1] if segment.base_offset < end]
        for group in _groups(segments, log.config.segment_bytes):
            if not await self._clean_group(log, group, latest, rules, reader, truncations):
                return False
        if log.truncations != truncations:
            return False
        log.clean_offset = end
        log_.info("%r: compacted to offset %d, %d keys", log, end, len(latest))
        return True

    async def _note_keys(self, chosen: Candidate) -> tuple[dict[bytes, int], int]:
        """The last offset of each key in the dirty part, and the end of the part that was read. It ends earlier if the keys take too much
        memory.
        """
        log, first = chosen.log, chosen.first_dirty
        most_keys = max(1, self._config.get("log.cleaner.dedupe.buffer.size") // _KEY_MEMORY)
        latest: dict[bytes, int] = {}
        reader = AbortedReader([entry for segment in log.segments for entry in segment.aborted if entry.last_offset >= first])
        end = first
        for segment in log.segments[:-1]:
            if segment.next_offset <= first:
                continue
            if segment.base_offset >= chosen.end or len(latest) >= most_keys:
                break
            offset = max(segment.base_offset, first)
            while offset < min(segment.next_offset, chosen.end) and len(latest) < most_keys:
                data = await log.segment_bytes(segment, offset, PIECE_BYTES)
                if not data:
                    break
                offset = end = await self._work(note_keys, data, latest, reader, most_keys)
        return latest, min(end, chosen.end)

    async def _clean_group(
        self, log: Log, group: list[Segment], latest: dict[bytes, int], rules: CleanRules, reader: AbortedReader, truncations: int
    ) -> bool:
        """Write neighbouring segments again as one; returns False if the log has changed in the meantime.

        A segment that was cut, filled and closed again is still the same object. So `truncations`, of the begin of the round, is compared.
        """
        budget = log.environment.budget
        replacement = log.replacement(group)
        reserved = 0
        known = len(reader.retained)
        try:
            for segment in group:
                offset, size = segment.base_offset, 0
                while offset < segment.next_offset:
                    data = await log.segment_bytes(segment, offset, PIECE_BYTES)
                    if not data:
                        break
                    size += len(data)
                    offset = next_offset_of(data) or segment.next_offset
                    kept = await self._work(clean, data, latest, rules, reader)
                    if kept:
                        budget.reserve(len(kept) + CHUNK_OVERHEAD)
                        reserved += len(kept) + CHUNK_OVERHEAD
                        replacement.append(kept)
                if size < segment.size and segment in log.segments:
                    raise CorruptRecords(f"the segment at offset {segment.base_offset} has a batch that is not whole")
            if log.truncations != truncations or not log.replace_segments(group, replacement, reader.retained[known:]):
                return False
            reserved = 0
        finally:
            budget.release(reserved)
        await log.replaced(group[0].base_offset)
        return True


def _directory(log: Log) -> str | None:
    return None if log.storage is None else log.storage.directory


def _last_records(entries: Iterable[ProducerEntry]) -> Mapping[int, LastRecord]:
    return {entry.producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.epoch) for entry in entries}


def _groups(segments: Sequence[Segment], segment_bytes: int) -> list[list[Segment]]:
    """Groups of neighbouring segments that fit into one segment by their size and their offsets."""
    groups: list[list[Segment]] = []
    size = 0
    for segment in segments:
        if groups and size + segment.size <= segment_bytes and segment.next_offset - groups[-1][0].base_offset <= 2**31 - 1:
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups


def _ratio_of(one: Candidate) -> float:
    return one.ratio
