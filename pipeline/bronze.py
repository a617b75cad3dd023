"""Converts sealed segments of the journal to bronze: one Parquet file per segment, with its rows unchanged and the name of the segment.

A file is written under a temporary name, so a run that was killed leaves no half-written table. When the file is complete, the manifest
names it. Then a file in `bronze/commits` lists the segments that became valid together. The stream to silver reads these commits and never
looks for Parquet files; the rows of the lake are counted from them too. Of a segment with a torn end, all complete batches are converted.
A small journal is converted in this process while the JVM starts, a large one by Spark's workers, with the same function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from klamm.journal.reading import is_written, open_segment, segments, written_by
from klamm.journal.segments import Segment, is_part
from klamm.machine.replaced_file import replacing
from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.manifest import Entry
from klamm.pipeline.lake.row_groups import RowGroups

COMMITS = "bronze/commits"
COMMIT_COLUMNS = "table string, run string, batch string, path string, rows bigint"
LOCAL_BYTES = 256 << 20
"""Above this number of bytes, segments are converted by Spark's workers."""
COMMIT_ROWS = 4_000_000
"""Approximate number of rows of a commit, and so of a micro-batch."""


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

    @property
    def lost(self) -> str | None:
        """Why rows at its end are lost; None if none are."""
        return None if self.torn == KILLED else self.torn

    @property
    def entry(self) -> Entry:
        """Its line of the manifest."""
        return Entry(f"bronze/{self.table}", self.run, self.batch, self.path, self.rows)


def batch_name(segment: Segment) -> str:
    """The name of a segment in manifests and commits, beside that of its run."""
    return f"node={segment.node}/{segment.name}"


def pending(lake: Path, done: set[tuple[str, str]]) -> list[Segment]:
    """Segments to convert: sealed ones, and those that a dead writer left open in a folder where they cannot be renamed."""
    return [
        segment
        for segment in segments(lake)
        if (segment.run, batch_name(segment)) not in done and (segment.sealed or not is_written(segment.path.parent))
    ]


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


def foreign_files(lake: Path) -> list[Path]:
    """Files in the folders of brokers that do not belong to a journal."""
    known = {segment.path for segment in segments(lake)}
    return sorted(
        path
        for path in (lake / "journal").glob("run=*/node=*/*")
        if path not in known and not is_part(path) and path.suffix != ".torn"
    )


def convert(lake: Path, segment: Segment) -> Converted:
    """Write a segment's rows as a Parquet file, zstd. The same segment gives the same file.

    Raises PipelineFailed if rows get lost, or if a row belongs to another run or broker than its folder.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = lake / "bronze" / segment.table / f"run={segment.run}" / f"node={segment.node}" / (Path(segment.name).stem + ".parquet")
    reader = open_segment(segment.path)
    groups, schema = RowGroups(target), None
    for batch in reader:
        _same_journal(segment, batch)
        if schema is None:
            schema = batch.schema.append(pa.field("segment", pa.string(), nullable=False)).remove_metadata()
        column = pa.repeat(pa.scalar(segment.name), batch.num_rows)
        groups.add(pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema))
    groups.close()
    if groups.rows:
        there = pq.read_metadata(target).num_rows
        if there != groups.rows:
            target.unlink()
            raise PipelineFailed(f"{segment.path}: {groups.rows} rows were read and {there} written")
    return Converted(segment.table, segment.run, batch_name(segment), str(target.relative_to(lake)), groups.rows, reader.torn)


def _same_journal(segment: Segment, batch: Any) -> None:
    """Raise PipelineFailed if a row belongs to another run or broker than its folder."""
    import pyarrow.compute as pc

    for name, own in (("run_id", segment.run), ("node_id", segment.node)):
        for other in pc.unique(batch.column(name)).to_pylist():
            if other != own:
                raise PipelineFailed(f"{segment.path}: a row has {name} {other}, its folder says {own}; a journal keeps its folder's name")


def convert_here(lake: Path, found: Sequence[Segment], step: Callable[[int], None]) -> list[Converted]:
    """Convert segments in this process; `step` is called with the number of segments that were converted since its last call."""
    result = []
    for segment in found:
        result.append(convert(lake, segment))
        step(1)
    return result


def convert_by_workers(spark: Any, lake: Path, found: Sequence[Segment]) -> list[Converted]:
    """Convert segments in Spark's workers, which see the lake under the same path."""
    listed, folder = list(found), str(lake)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            done = [json.dumps(convert(Path(folder), listed[number])) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(done, pa.string())], names=["done"])

    tasks = min(len(listed), 200)
    frame = spark.range(0, len(listed), 1, tasks).mapInArrow(work, "done string")
    return [Converted(*json.loads(row.done)) for row in frame.collect()]


class Commits:
    """The commits of bronze, in order. `rows` is the number of rows that silver must have."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._folder = lake / COMMITS
        self.done: set[tuple[str, str]] = set()
        """(run, batch) of all segments that are committed."""
        self.rows = {"frames": 0, "events": 0}
        self.runs: set[str] = set()
        self.torn: dict[tuple[str, str], str] = {}
        """(run, batch) of segments that lost rows at their end → why."""
        self.last = -1
        for path in sorted(self._folder.glob("[0-9]*.json")):
            self.last = int(path.stem)
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self._count(Converted(row["table"], row["run"], row["batch"], row["path"], row["rows"], row.get("torn")))

    def add(self, converted: Sequence[Converted]) -> None:
        """Make segments valid: first their lines of the manifest, then commits of about COMMIT_ROWS rows each."""
        new = [one for one in converted if (one.run, one.batch) not in self.done]
        manifest.append(self._lake, [one.entry for one in new])
        chunk: list[Converted] = []
        for one in sorted(new, key=lambda one: (one.run, one.batch.partition("-")[2], one.batch)):
            chunk.append(one)
            if sum(each.rows for each in chunk) >= COMMIT_ROWS:
                self._write(chunk)
                chunk = []
        if chunk:
            self._write(chunk)

    def _write(self, chunk: Sequence[Converted]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self.last + 1:010d}.json"
        lines = (
            json.dumps(
                {"table": one.table, "run": one.run, "batch": one.batch, "path": one.path, "rows": one.rows}
                | ({} if one.lost is None else {"torn": one.lost})
            )
            + "\n"
            for one in chunk
        )
        with replacing(path) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")
        self.last += 1
        for one in chunk:
            self._count(one)

    def _count(self, one: Converted) -> None:
        self.done.add((one.run, one.batch))
        self.rows[one.table] += one.rows
        self.runs.add(one.run)
        if one.lost is not None:
            self.torn[one.run, one.batch] = one.lost
