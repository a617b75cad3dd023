"""Frames of long journals are decoded by several processes of this machine, because Python decodes on one core only.

Each task writes the rows of each table to a file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm.journal.reading import open_segment
from klamm.journal.segments import Segment
from klamm.pipeline.decode.silver_rows import Add, decode_into
from klamm.pipeline.lake import local_workers
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.local_workers import each
from klamm.pipeline.lake.tables import MESSAGES, Table

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_BYTES = 24_000_000
"""Bytes of segments that another process pays for: about 80,000 frames, which take two seconds."""

BODY = "body_json"

STRIDE = 16
"""Batches of a segment that stand together when several processes decode it."""


def without_bodies(add: Add) -> Add:
    """What takes rows of a table, and passes them to `add` without the column that no rule reads, the largest one."""

    def added(table: Table, rows: pa.RecordBatch) -> None:
        add(table, rows.drop_columns([BODY]) if table is MESSAGES else rows)

    return added


class Task(NamedTuple):
    """A part of a segment: of each `parts` * STRIDE batches those at place `part`."""

    path: str
    part: int
    parts: int


class Decoded(NamedTuple):
    """What became of one task."""

    task: Task
    rows: int
    torn: str | None
    """What the segment says of its end; each part of a segment tells it."""
    files: dict[str, str]
    """Table → a file of Arrow with its rows."""


def processes_for(found: Sequence[Segment]) -> int:
    """How many processes decode these segments; 1 means this process alone."""
    return local_workers.processes_for(sum(segment.path.stat().st_size for segment in found), LEAST_BYTES)


def tasks(found: Sequence[Segment], processes: int) -> list[Task]:
    """The parts of segments, so many that all processes end at about the same time; the largest first."""
    parts = max(1, -(-2 * processes // max(1, len(found))))
    largest = sorted(found, key=lambda segment: -segment.path.stat().st_size)
    return [Task(str(segment.path), part, parts) for segment in largest for part in range(parts)]


def batches_of(task: Task, tell: Callable[[str | None], None] = lambda torn: None) -> Iterator[pa.RecordBatch]:
    """The batches of a task; `tell` is called at the end with what the segment says of its end."""
    reader = open_segment(Path(task.path))
    for number, batch in enumerate(reader):
        if number // STRIDE % task.parts == task.part:
            yield batch
    tell(reader.torn)


def decoded_elsewhere(work: Sequence[Task], processes: int, folder: Path) -> Generator[Decoded]:
    """The tasks as this number of processes has done them; files in `folder` are the caller's to remove. Raises PipelineFailed."""
    with closing(each(partial(decode, folder), list(enumerate(work)), processes)) as done:
        for _, decoded in done:
            yield decoded


class _Files:
    """The files of one task."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._writers: dict[str, pa.RecordBatchFileWriter] = {}
        self.paths: dict[str, str] = {}

    def add(self, table: Table, rows: pa.RecordBatch) -> None:
        import pyarrow as pa

        writer = self._writers.get(table.name)
        if writer is None:
            path = self.paths[table.name] = str(self._folder / f"{self._number}-{table.name}.arrow")
            writer = self._writers[table.name] = pa.ipc.new_file(path, rows.schema)
        writer.write(rows)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def decode(folder: Path, numbered: tuple[int, Task]) -> Decoded:
    """Decode the frames of a task into files in a folder. Raises PipelineFailed."""
    (number, task), count, torn = numbered, 0, None

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches_of(task, tell):
            count += batch.num_rows
            yield batch

    def tell(said: str | None) -> None:
        nonlocal torn
        torn = said

    files = _Files(folder, number)
    try:
        decode_into(without_bodies(files.add), counted())
    except OSError as problem:
        raise PipelineFailed(f"frames cannot be decoded: {' '.join(str(problem).split())}") from problem
    finally:
        files.close()
    return Decoded(task, count, torn, files.paths)
