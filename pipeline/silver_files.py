"""Writes all tables of silver in workers, which read the files of bronze themselves: Spark never sees a row.

A task writes one file per table and run. A task that is repeated writes files of its own, and those that are reported become valid. Tasks
have the rows of a run together and end its files before those of the next run begin, so a worker holds at most one row group of each table,
two of a table with frequent APIs apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.columns import EVENTS, FRAMES, Direction
from klamm.pipeline.decode.batches import joined
from klamm.pipeline.decode.silver_rows import decode_into, events_into
from klamm.pipeline.lake.column_types import with_columns
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.table_parts import new_file
from klamm.pipeline.lake.tables import FOR_PEOPLE, Table, direction_words
from klamm.protocol.apis import APIS

READ_ROWS = 8_192
"""Rows of bronze that are read at a time."""

READ = {"frames": FRAMES, "events": EVENTS}
"""Table of bronze → the columns that are read."""


class Piece(NamedTuple):
    """A file of bronze (`path` is relative to the lake), or one of its row groups. All rows are of one run."""

    table: str
    run: str
    path: str
    group: int | None


class Files:
    """The files of one run that a task writes. `close` completes them."""

    def __init__(self, lake: Lake, batch: str, run: str, task: int) -> None:
        self._lake, self._batch, self._run, self._task = lake, batch, run, task
        self._files: dict[Table, tuple[str, RowGroups]] = {}

    def add(self, table: Table, rows: pa.RecordBatch) -> None:
        """Add rows with the columns of a table but those for people, which are added here; at least one row."""
        if table not in self._files:
            name = new_file(table, self._run, self._batch, self._task)
            self._files[table] = name, RowGroups(Store(self._lake), name, frequent=table.frequent)
        self._files[table][1].add(with_names(table, rows))

    def close(self) -> list[Entry]:
        """Write the remaining rows and complete the files; what the logs of their tables are to say of them."""
        for _, file in self._files.values():
            file.close()
        return [Entry(table.path, self._run, self._batch, name, *file.told) for table, (name, file) in self._files.items()]


class SilverTask(NamedTuple):
    """Rows of bronze that a worker makes silver of. Pieces of a run stand together."""

    number: int
    pieces: list[Piece]


def write_task(lake: Lake, batch: str, task: SilverTask) -> list[Entry]:
    """Write all tables of silver that the rows of a task fill; the new files."""
    written = list[Entry]()
    for run, found in groupby(task.pieces, lambda piece: piece.run):
        files, chosen = Files(lake, batch, run, task.number), list(found)
        frames, events = (read_bronze(lake, [piece for piece in chosen if piece.table == table]) for table in READ)
        decode_into(files.add, frames)
        for rows in joined(events):
            events_into(files.add, rows)
        written += files.close()
    return written


def read_bronze(lake: Lake, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """The rows, some thousand at a time; a column that a file of an older Klamm lacks is null.

    Row groups are read one after the other: a batch over several of them would have no limit in bytes. Raises PipelineFailed.
    """
    for piece in pieces:
        columns = READ[piece.table]
        try:
            with opened(Store(lake).address(piece.path)) as file:
                present = [column.name for column in columns if column.name in file.schema_arrow.names]
                for group in range(file.num_row_groups) if piece.group is None else (piece.group,):
                    for rows in file.iter_batches(READ_ROWS, [group], present, use_threads=False):
                        yield with_columns(rows, columns)
        except (OSError, pa.ArrowException) as problem:
            raise PipelineFailed(f"{piece.path} cannot be read: {' '.join(str(problem).split())}") from problem


def with_names(table: Table, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the columns for people that the table has."""
    if len(table.judged) == len(table.columns):
        return rows
    arrays = [_NAMES[name](rows) if name in FOR_PEOPLE else rows.column(name) for name in table.names]
    return pa.RecordBatch.from_arrays(arrays, names=list(table.names))


def _words(column: str, words: Mapping[int, str]) -> Callable[[pa.RecordBatch], pa.Array]:
    """What makes words of the numbers in a column; null where a number has none."""

    @cache  # not when this module is imported: the first array of Arrow imports pandas, which takes a second
    def arrays() -> tuple[pa.Array, pa.Array]:
        return pa.array(words.keys(), pa.int16()), pa.array(words.values())

    def made(rows: pa.RecordBatch) -> pa.Array:
        keys, texts = arrays()
        return pa.DictionaryArray.from_arrays(pc.index_in(rows.column(column).cast(pa.int16()), keys), texts)

    return made


_NAMES: Mapping[str, Callable[[pa.RecordBatch], pa.Array]] = {
    "ts": lambda rows: pc.divide(rows.column("ts_ns"), 1000).cast(pa.timestamp("us", "UTC")),
    "direction": _words("dir", {int(one): direction_words(one) for one in Direction}),
    "api": _words("api_key", {int(key): api.name for key, api in APIS.items()}),
}
