"""Converts sealed segments of the journal to bronze: one Parquet file per segment, with its rows unchanged and the name of the segment.

A file has its name when it is complete, so a run that was killed leaves no half-written table; then the log of the table names it. Then a
file in `bronze/commits` lists the segments that became valid together. What makes silver reads these commits and never looks for Parquet
files; the rows of the lake are counted from them too. Of a segment with a torn end, all complete batches are converted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm.journal.reading import is_written, node_folders, open_segment, place_of, segments, written_by
from klamm.journal.segments import Segment, is_part, segment_of
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.journal_copy import is_elsewhere, with_journal
from klamm.pipeline.lake.local_workers import Choose, only_here
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.row_numbers import Span, spans_of
from klamm.pipeline.lake.store import Store, local_folder
from klamm.pipeline.lake.table_parts import folder_of_run

if TYPE_CHECKING:
    import pyarrow as pa

ROW_BYTES = 350
"""Bytes of a row in a segment, about."""

SPANS = 20_000
"""Of a segment with more spans of numbers none are kept: they are read from silver when they are needed."""

GROUP_ROWS = 1 << 16
"""Rows of a row group: a task that makes silver has one or a few of them."""

SEGMENT = "klamm.segment"
"""What the end of a file of bronze says of its segment, as JSON: `torn`, `spans`, the number of its rows, and WRITER."""

WRITER = ("process", "started_ns")
"""What tells the process that wrote a segment from others with the same run and broker."""

KILLED = "no end mark"
"""The reader's reason for a segment whose writer was killed between two batches: no row of it is lost."""


class Converted(NamedTuple):
    """A segment that was converted. `torn` says why it ends without its end mark; None if it is complete."""

    table: str
    run: str
    batch: str
    path: str
    rows: int
    torn: str | None
    first_ts_ns: int | None = None
    last_ts_ns: int | None = None
    spans: Sequence[Span] | None = None
    """The numbers of its rows; None if there are more than SPANS."""
    bytes: int = 0
    statistics: str = ""
    """Of its file, as Delta has them."""

    @property
    def lost(self) -> str | None:
        """Why rows at its end are lost; None if none are."""
        return None if self.torn == KILLED else self.torn

    @property
    def entry(self) -> Entry:
        """Its file in the log of the table."""
        table = f"bronze/{self.table}"
        return Entry(table, self.run, self.batch, self.path, self.rows, self.first_ts_ns, self.last_ts_ns, self.bytes, self.statistics)


def batch_name(segment: Segment) -> str:
    """The name of a segment in the log of a table and in commits, beside that of its run."""
    return f"node={segment.node}/{segment.name}"


class PendingSegments:
    """Finds the segments that are to be converted. Committed ones are looked at once: after that a look costs only their names."""

    def __init__(self, lake: Lake, done: Container[tuple[str, str]]) -> None:
        """`done` has (run, batch) of the segments that are committed."""
        self._lake = lake
        self._done = done
        self._committed: dict[Path, set[str]] = {}
        self.written: list[Path] = []
        """The folders that had an open segment at the last look."""

    def look(self) -> list[Segment]:
        """The sealed segments, and those that a dead writer left open in a folder where they cannot be renamed; by run, node and row."""
        found: list[Segment] = []
        self.written = []
        with_journal(self._lake, lambda one: (one.run, batch_name(one)) not in self._done)
        for folder in node_folders(local_folder(self._lake)):
            names, committed = set(os.listdir(folder)), self._committed.setdefault(folder, set())
            if len(committed) > len(names):
                committed.intersection_update(names)  # retention removed some
            for name in names.difference(committed):
                segment = segment_of(folder / name)
                if segment is None:
                    continue
                is_done = (segment.run, batch_name(segment)) in self._done
                if is_done and segment.sealed:
                    committed.add(name)
                    if is_elsewhere(self._lake):
                        segment.path.unlink()  # a copy
                elif not is_done and (segment.sealed or not is_written(folder)):
                    found.append(segment)
                if not segment.sealed and folder not in self.written:
                    self.written.append(folder)
        return sorted(found, key=place_of)


def pending(lake: Lake, done: Container[tuple[str, str]]) -> list[Segment]:
    """The segments that are to be converted now."""
    return PendingSegments(lake, done).look()


def own_segments(found: Sequence[Segment]) -> tuple[list[Segment], list[str]]:
    """Those of the segments that were written in the folder where they are, and a line about each run that was renamed or copied."""
    own: list[Segment] = []
    others: dict[tuple[str, str], int] = {}
    for segment in found:
        about = written_by(segment.path)
        run, node = about.get("run_id", segment.run), about.get("node_id", str(segment.node))
        if (run, node) == (segment.run, str(segment.node)):
            own.append(segment)
        else:
            told, its = (f"run={segment.run}", f"run={run}") if run != segment.run else (f"run={run}/node={segment.node}", f"node={node}")
            others[told, its] = others.get((told, its), 0) + 1
    return own, [
        f"{told} is a copy of {its} or was renamed: {count} segments are left out; a folder keeps the name that its rows have"
        for (told, its), count in others.items()
    ]


def foreign_files(lake: Lake) -> list[Path]:
    """Files in the folders of brokers that do not belong to a journal."""
    known = {segment.path for segment in segments(local_folder(lake))}
    return sorted(
        path
        for folder in node_folders(local_folder(lake))
        for path in folder.iterdir()
        if path not in known and not is_part(path) and path.suffix != ".torn"
    )


def empty_files(lake: Lake) -> list[Path]:
    """The files of segments that are torn before their first whole batch."""
    return sorted(path for folder in node_folders(local_folder(lake)) for path in folder.iterdir() if path.suffix == ".torn")


def convert(lake: Lake, segment: Segment) -> Converted:
    """Write a segment's rows as a Parquet file, zstd. The same segment gives the same file.

    Raises PipelineFailed if rows get lost, or if a row belongs to another run or broker than its folder.
    """
    return convert_into(Store(lake), segment)


def convert_into(store: Store, segment: Segment) -> Converted:
    """The same, where the file gets its name in this store. Its end has `SEGMENT`: what else is known of the segment."""
    import pyarrow as pa

    path = f"bronze/{segment.table}/{folder_of_run(segment.run)}/node={segment.node}/{Path(segment.name).stem}.parquet"
    reader = open_segment(segment.path)
    groups, schema = RowGroups(store, path, GROUP_ROWS), None
    numbers = []
    for batch in reader:
        _same_journal(segment, batch)
        numbers.append(batch.select(["process", "seq"]))
        if schema is None:
            schema = batch.schema.append(pa.field("segment", pa.string(), nullable=False)).remove_metadata()
        column = pa.repeat(pa.scalar(segment.name), batch.num_rows)
        groups.add(pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema))
    spans = spans_of(pa.Table.from_batches(numbers)) if numbers else []
    known = spans if len(spans) <= SPANS else None
    writer = {name: reader.metadata.get(name) for name in WRITER}
    groups.close({SEGMENT: json.dumps({"torn": reader.torn, "spans": known, "rows": groups.rows, **writer})})
    written = groups.told
    if written.rows != groups.rows:
        store.delete(path)
        raise PipelineFailed(f"{segment.path}: {groups.rows} rows were read and {written.rows} written")
    return Converted(
        segment.table, segment.run, batch_name(segment), path, groups.rows, reader.torn,
        written.first_ts_ns, written.last_ts_ns, known, written.bytes, written.statistics,
    )


def _same_journal(segment: Segment, batch: pa.RecordBatch) -> None:
    """Raise PipelineFailed if a row belongs to another run or broker than its folder."""
    import pyarrow.compute as pc

    for name, own in (("run_id", segment.run), ("node_id", segment.node)):
        for other in pc.unique(batch.column(name)).to_pylist():
            if other != own:
                raise PipelineFailed(f"{segment.path}: a row has {name} {other}, its folder says {own}; a journal keeps its folder's name")


def convert_all(lake: Lake, found: Sequence[Segment], step: Callable[[int], None], workers: Choose = only_here) -> list[Converted]:
    """Convert segments; `step` is called with the number of segments that were converted since its last call. The copies that this machine
    has of objects are converted here, because other workers do not see them."""
    rows = sum(segment.path.stat().st_size for segment in found) // ROW_BYTES
    choose = workers if isinstance(lake, Path) else only_here
    return choose(rows).do(partial(convert, lake), found, step)
