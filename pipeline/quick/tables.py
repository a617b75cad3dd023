"""The journals of some runs as tables of silver in DuckDB, decoded by the same code as for Spark.

Frames are decoded some thousand at a time, so the process holds one such part of the journal beside DuckDB's tables. Those of long journals
are decoded by several processes (`decoders.py`). Bodies are left out: no rule reads them. DuckDB keeps to its memory limit and writes what
exceeds it to a temporary folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from klamm.journal.reading import open_segment
from klamm.journal.segments import Segment
from klamm.pipeline.decode.batches import joined
from klamm.pipeline.decode.silver_rows import decode_into, events_into
from klamm.pipeline.lake.bronze import KILLED, batch_name
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.tables import HEADER, HEADERS, HEADERS_VIEW, SILVER, Table
from klamm.pipeline.lake.unjudged_rows import Torn
from klamm.pipeline.quick import decoders
from klamm.pipeline.quick.macros import MACROS
from klamm.pipeline.quick.translations import translations

INSERT_ROWS = 122_880
INSERT_BYTES = 40_000_000
"""Rows of a table are inserted when they are so many, a group of rows of DuckDB, or so many bytes: with 64 MB the process that loads
a million frames has 0.4 GB more at most, and takes as much CPU time."""

_TABLES = {table.name: table for table in SILVER}


class Loaded(NamedTuple):
    """What was read."""

    rows: dict[str, int]
    """Rows of the journals: `frames` and `events`."""
    torn: list[Torn]


def opened(memory: str, folder: str) -> duckdb.DuckDBPyConnection:
    """A database in memory with all tables of silver, empty. What exceeds `memory`, such as `2g`, is written to `folder`."""
    database = duckdb.connect(config={"memory_limit": f"{memory}b", "temp_directory": folder, "preserve_insertion_order": False})
    for macro in MACROS:
        database.execute(f"CREATE MACRO {macro}")
    for table in SILVER:
        kinds = {column.name: arrow_type(column.type) for column in table.judged if column.name != decoders.BODY}
        database.register("part", pa.schema(kinds.items()).empty_table())
        database.execute(f"CREATE TABLE {table.name} AS SELECT * FROM part")
        database.unregister("part")
    names = ", ".join(column.name for column in HEADER)
    database.execute(f"CREATE VIEW {HEADERS} AS {translations().of(HEADERS_VIEW.format(names=names))}")
    return database


def load(database: duckdb.DuckDBPyConnection, found: Sequence[Segment]) -> Loaded:
    """Read segments into the tables. Raises PipelineFailed."""
    counts = {"frames": 0, "events": 0}
    torn: list[Torn] = []
    by_table = {name: [segment for segment in found if segment.table == name] for name in counts}
    places = {str(segment.path): segment for segment in found}

    def ended(path: str, reason: str | None) -> None:
        if reason is not None and reason != KILLED:
            segment = places[path]
            torn.append(Torn(segment.run, batch_name(segment), reason))

    def batches(table: str) -> Iterator[pa.RecordBatch]:
        for segment in by_table[table]:
            for batch in (reader := open_segment(segment.path)):
                counts[table] += batch.num_rows
                yield batch
            ended(str(segment.path), reader.torn)

    inserts = Inserts(database)
    processes = decoders.processes_for(by_table["frames"])
    if processes > 1:
        work = decoders.tasks(by_table["frames"], processes)
        (folder,) = database.execute("SELECT current_setting('temp_directory')").fetchall()[0]
        with closing(decoders.decoded_elsewhere(work, processes, Path(folder))) as done:
            for one in done:
                counts["frames"] += one.rows
                if one.task.part == 0:
                    ended(one.task.path, one.torn)
                for name, path in one.files.items():
                    inserts.add_file(_TABLES[name], Path(path))
    else:
        decode_into(decoders.without_bodies(inserts.add), batches("frames"))
    for events in joined(batches("events")):
        events_into(inserts.add, events)
    inserts.close()
    return Loaded(counts, torn)


class Inserts:
    """Inserts rows into tables, many at a time: for each INSERT DuckDB begins a new group of rows in each of up to 65 columns."""

    def __init__(self, database: duckdb.DuckDBPyConnection, wanted: Callable[[str], str] = lambda _: "true") -> None:
        """`wanted` says of a table, in SQL, which of its rows are inserted."""
        self._database, self._wanted = database, wanted
        self._waiting: dict[Table, list[pa.RecordBatch]] = {}
        self._sizes: dict[Table, tuple[int, int]] = {}

    def add(self, table: Table, rows: pa.RecordBatch) -> None:
        """Add rows with the columns of the table, in their order. They may be inserted later."""
        self._waiting.setdefault(table, []).append(rows)
        count, size = self._sizes.get(table, (0, 0))
        count, size = self._sizes[table] = count + rows.num_rows, size + rows.nbytes
        if count >= INSERT_ROWS or size >= INSERT_BYTES:
            self._insert(table)

    def add_file(self, table: Table, path: Path) -> None:
        """Add the rows of a file of Arrow, and remove the file: what waits stays readable."""
        with pa.ipc.open_file(pa.memory_map(str(path))) as file:
            for number in range(file.num_record_batches):
                self.add(table, file.get_batch(number))
        path.unlink()

    def close(self) -> None:
        """Insert what waits."""
        for table in list(self._waiting):
            self._insert(table)

    def _insert(self, table: Table) -> None:
        del self._sizes[table]
        self._database.register("part", pa.Table.from_batches(self._waiting.pop(table)))
        self._database.execute(f"INSERT INTO {table.name} SELECT * FROM part WHERE {self._wanted(table.name)}")
        self._database.unregister("part")
