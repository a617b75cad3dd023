"""Bronze to silver: decodes a batch of files once and writes all tables that they fill.

A batch has files of one or more runs. A task is a list of files of bronze, or of row groups in them, and the worker that does it reads and
writes Parquet itself (`silver_files.py`). Then the files are committed to the log of each table, with the
number of the batch: tables that have it already stay as they are. No row may get lost: the files of messages and quarantine must have as
many rows together as bronze has frames. What files have is what their tasks report; the driver reads no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.local_workers import TaskWorkers, nobody
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES, QUARANTINE, SILVER
from klamm.pipeline.silver_files import Piece, SilverTask, write_task

TASK_ROWS = 1 << 17
"""The most rows of a task, unless a row group has more. The files that it writes have as many."""
LEAST_ROWS = 1 << 16
"""A second task is worth the start of another worker only if both have this number of rows."""
BALANCE = 4
"""There are this number of tasks or more where there are rows for them, so that no core waits long for the last one."""

COMMITTED = (*(table for table in SILVER if table is not MESSAGES), MESSAGES)
"""The tables in the order in which a batch is committed: when the last one has its number, all have it."""


class RowsLostError(PipelineFailed):
    """Silver has fewer rows than bronze, or more."""


class Source(NamedTuple):
    """A file of bronze: `table` is frames or events, `path` is relative to the lake. All its rows are of one run."""

    table: str
    run: str
    path: str
    rows: int


Begin = Callable[[int], Callable[[int], None]]
"""Called with the number of tasks of a batch; what it returns is called with the number of tasks that have ended since its last call."""


def build_silver(workers: TaskWorkers, lake: Lake, sources: Sequence[Source], number: int, begin: Begin | None = None) -> list[Entry]:
    """Write the rows of these files to all tables of silver, as the batch of this number; returns the new files. Raises RowsLostError."""
    work = tasks(lake, sources)
    ended = begin(len(work)) if begin is not None and work else nobody
    files = [file for written in workers.do(partial(write_task, lake, str(number)), work, ended) for file in written]
    refuse_loss(sources, files)
    filled = {file.table for file in files}
    delta_log.append(lake, [table for table in COMMITTED if table is MESSAGES or table.path in filled], files, number)
    return files


def refuse_loss(sources: Sequence[Source], files: Sequence[Entry]) -> None:
    """Raise RowsLostError if the files of a batch have not each row of its sources once."""
    for table, whole in (("frames", (MESSAGES, QUARANTINE)), ("events", (EVENT_TABLE,))):
        expected, paths = Counter[str](), {one.path for one in whole}
        for source in sources:
            if source.table == table:
                expected[source.run] += source.rows
        for run, rows in expected.items():
            found = sum(file.rows for file in files if file.run == run and file.table in paths)
            if found != rows:
                names = " and ".join(one.name for one in whole)
                raise RowsLostError(f"run {run}: {rows} rows in bronze, {found} in {names}")


def tasks(lake: Lake, sources: Sequence[Source]) -> list[SilverTask]:
    """The files as tasks of similar size, the largest first. Files of a run stand together. The same files give the same tasks."""
    size = min(TASK_ROWS, max(LEAST_ROWS, sum(source.rows for source in sources) // BALANCE))
    found: list[tuple[int, list[Piece]]] = []
    rows, pieces = 0, list[Piece]()
    by_run = groupby(sorted(sources, key=lambda source: (source.run, source.table, source.path)), lambda source: source.run)
    for _, some in by_run:
        of_run = [piece for source in some for piece in _pieces(lake, source, size)]
        whole = sum(piece_rows for piece_rows, _ in of_run)
        for number, (piece_rows, piece) in enumerate(of_run):
            # A run that fits into a task is not divided between two: that would be another file of each table.
            if pieces and rows + (whole if number == 0 and whole <= size else piece_rows) > size:
                found.append((rows, pieces))
                rows, pieces = 0, []
            rows += piece_rows
            pieces.append(piece)
    if pieces:
        found.append((rows, pieces))
    return [SilverTask(place, pieces) for place, (_, pieces) in enumerate(sorted(found, key=lambda task: -task[0]))]


def _pieces(lake: Lake, source: Source, size: int) -> Iterator[tuple[int, Piece]]:
    """The rows and the place of a whole file; of a file with more than `size` rows those of each of its row groups."""
    if source.rows <= size:
        yield source.rows, Piece(source.table, source.run, source.path, None)
        return
    file = opened(Store(lake).address(source.path)).metadata
    for number in range(file.num_row_groups):
        yield file.row_group(number).num_rows, Piece(source.table, source.run, source.path, number)
