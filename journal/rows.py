"""Reads the rows of a lake's journals in the order in which they were written. It uses bounded memory and does not need the pipeline's
tables.

Rows of one broker are sorted by `seq`, frames and events together. Rows of several brokers of a run are merged by time. Runs are sorted by
their start. Only one batch per table and broker is in memory at a time. `Follower` continues where a `Reading` ended: it reads growing
segments, later segments, and new runs and brokers.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.live_segment import GrowingSegment
from klamm.journal.reading import SegmentReader, open_segment, segments
from klamm.journal.segments import Segment


class Row(NamedTuple):
    """A row of a journal."""

    table: str
    """`frames` or `events`."""
    columns: dict[str, Any]


class Choice(NamedTuple):
    """A filter for rows. None means all. `keys` and `clients` filter only frames, because events have neither."""

    runs: frozenset[str] | None = None
    brokers: frozenset[int] | None = None
    keys: frozenset[int] | None = None
    clients: tuple[str, ...] | None = None
    """Patterns with `*` and `?` for the client id or the client software."""
    tables: tuple[str, ...] = ("frames", "events")
    accepts: Callable[[Row], bool] | None = None
    """Called for each row that passed all other filters."""

    def has(self, segment: Segment) -> bool:
        """Whether rows of this segment can pass the filter."""
        return (
            segment.table in self.tables
            and (self.runs is None or segment.run in self.runs)
            and (self.brokers is None or segment.node in self.brokers)
        )

    def wants_all(self, table: str) -> bool:
        """Whether every row of such a segment passes the filter."""
        return self.accepts is None and (table == "events" or (self.keys is None and self.clients is None))

    def of(self, table: str, batch: pa.RecordBatch, after: int = 0) -> list[Row]:
        """The rows of a batch that pass the filter and have a `seq` above `after`."""
        if after:
            batch = batch.filter(pc.greater(batch.column("seq"), after))
        if table == "frames" and self.keys is not None:
            batch = batch.filter(pc.is_in(batch.column("api_key"), pa.array(sorted(self.keys), pa.int16())))
        if table == "frames" and self.clients is not None:
            batch = batch.filter(pc.or_(*(self._matches(batch.column(name)) for name in ("client_id", "client_sw"))))
        rows = (Row(table, columns) for columns in batch.to_pylist())
        return list(rows if self.accepts is None else filter(self.accepts, rows))

    def _matches(self, column: pa.Array) -> pa.Array:
        patterns = self.clients if self.clients is not None else ()
        names = [name for name in column.unique().to_pylist() if name is not None and any(fnmatchcase(name, each) for each in patterns)]
        return pc.is_in(column, pa.array(names, pa.string()))


Torn = Callable[[Segment, str], None]
"""Called with each segment that has a damaged end, and the reason."""

Stream = tuple[str, int, str]
"""Run, node and table."""


class Reading:
    """One pass over a lake. Afterwards `reached` has the `seq` of the last row of each stream, whether it passed the filter or not."""

    def __init__(self, lake: Path, choice: Choice, torn: Torn | None = None) -> None:
        self.reached: dict[Stream, int] = {}
        self._choice = choice
        self._torn = torn
        self._streams: dict[Stream, list[Segment]] = {}
        for segment in segments(lake):
            if choice.has(segment):
                self._streams.setdefault((segment.run, segment.node, segment.table), []).append(segment)

    def rows(self) -> Iterator[Row]:
        """All rows that pass the filter, in order."""
        for run in self._runs():
            yield from _merged({stream: self._read(stream) for stream in self._streams if stream[0] == run})

    def last_rows(self, count: int) -> list[Row]:
        """The last `count` rows that pass the filter. Older segments are not read."""
        rows: list[Row] = []
        for run in reversed(self._runs()):
            older = deque(_merged({stream: self._read_last(stream, count) for stream in self._streams if stream[0] == run}), maxlen=count)
            rows = [*older, *rows][max(0, len(older) + len(rows) - count) :]
            if len(rows) >= count:
                break
        return rows

    def _runs(self) -> list[str]:
        """Run ids, sorted by the start of their first process, then by name."""
        began: dict[str, int] = {}
        for (run, _, _), parts in self._streams.items():
            began[run] = min(began.get(run, 1 << 63), _began(parts[0].path))
        return sorted(began, key=lambda run: (began[run], run))

    def _read(self, stream: Stream) -> Iterator[Row]:
        for segment in self._streams[stream]:
            for batch in self._batches(segment, stream):
                yield from self._choice.of(segment.table, batch)

    def _read_last(self, stream: Stream, count: int) -> list[Row]:
        rows: list[Row] = []
        for segment in reversed(self._streams[stream]):
            last: deque[Row] = deque(maxlen=count)
            for batch in self._batches(segment, stream):
                few = batch.slice(max(0, batch.num_rows - count)) if self._choice.wants_all(segment.table) else batch
                last.extend(self._choice.of(segment.table, few))
            rows = [*last, *rows][max(0, len(last) + len(rows) - count) :]
            if len(rows) >= count:
                break
        return rows

    def _batches(self, segment: Segment, stream: Stream) -> Iterator[pa.RecordBatch]:
        reader = open_renamed(segment.path)
        for batch in reader:
            if batch.num_rows:
                self.reached[stream] = max(self.reached.get(stream, 0), batch.column("seq")[-1].as_py() or 0)
                yield batch
        if reader.torn is not None and self._torn is not None:
            self._torn(segment, reader.torn)


def open_renamed(path: Path) -> SegmentReader:
    """The rows of a segment that may have been sealed, and therefore renamed, after it was listed."""
    try:
        return open_segment(path)
    except FileNotFoundError:
        return open_segment(path.with_name(path.name.removesuffix(".open")))


def _began(path: Path) -> int:
    reader = open_renamed(path)
    next(reader, None)
    text = reader.metadata.get("started_ns", "")
    return int(text) if text.isdigit() and len(text) < 20 else 0


def _merged(streams: Mapping[Stream, Iterable[Row]]) -> Iterator[Row]:
    """Merges the streams of one run: rows of a broker by number, brokers by time."""
    brokers: dict[int, list[Iterable[Row]]] = {}
    for (_, broker, _), rows in streams.items():
        brokers.setdefault(broker, []).append(rows)
    return heapq.merge(*(_by_number(rows) for _, rows in sorted(brokers.items())), key=_time)


def _by_number(streams: Iterable[Iterable[Row]]) -> Iterator[Row]:
    """Merges the streams of one broker by number."""
    return heapq.merge(*streams, key=lambda row: row.columns["seq"] or 0)


def _time(row: Row) -> int:
    return row.columns["ts_ns"] or 0


class Follower:
    """Continues where a `Reading` ended. `poll` returns the rows that were written since then."""

    def __init__(self, lake: Path, choice: Choice, reached: Mapping[Stream, int], torn: Torn | None = None) -> None:
        """`reached` is that of the `Reading`."""
        self._lake, self._choice, self._torn = lake, choice, torn
        self._reached = dict(reached)
        self._growing: dict[Stream, tuple[Segment, GrowingSegment]] = {}

    def poll(self) -> Iterator[Row]:
        """The rows since the last poll that pass the filter. Those of one broker are in order."""
        streams: dict[Stream, list[Segment]] = {}
        for segment in segments(self._lake):
            if self._choice.has(segment):
                streams.setdefault((segment.run, segment.node, segment.table), []).append(segment)
        for run in sorted({stream[0] for stream in streams}):
            yield from _merged({stream: self._new_rows(stream, parts) for stream, parts in streams.items() if stream[0] == run})

    def _new_rows(self, stream: Stream, parts: Sequence[Segment]) -> Iterator[Row]:
        reached = self._reached.get(stream, 0)
        started = [part for part in parts if part.first_seq <= reached]
        for segment in (*started[-1:], *parts[len(started) :]):
            current = self._growing.get(stream)
            if current is None or current[0].first_seq != segment.first_seq:
                if current is not None and current[0].first_seq > segment.first_seq:
                    continue
                self._end(stream)
                try:
                    current = self._growing[stream] = segment, GrowingSegment(segment.path)
                except OSError:  # renamed or deleted after it was listed; the next poll reads it
                    return
            for batch in current[1].new_batches():
                if batch.num_rows:
                    yield from self._choice.of(segment.table, batch, self._reached.get(stream, 0))
                    self._reached[stream] = max(self._reached.get(stream, 0), batch.column("seq")[-1].as_py() or 0)

    def _end(self, stream: Stream) -> None:
        """Close a segment after a newer one has begun, because nothing is added to it any more."""
        segment, growing = self._growing.pop(stream, (None, None))
        if segment is not None and growing is not None:
            if self._torn is not None and growing.unread:
                self._torn(segment, f"{growing.unread} bytes are not a complete batch")
            growing.close()

    def close(self) -> None:
        """Close all files."""
        for _, growing in self._growing.values():
            growing.close()
        self._growing.clear()
