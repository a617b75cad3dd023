"""The journals of some runs as tables of silver in DuckDB, decoded by the same code as for Spark.

Frames are decoded some thousand at a time, so the process holds one such part of the journal beside DuckDB's tables. DuckDB keeps to its
memory limit and writes what exceeds it to a temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from klamm.journal.reading import open_segment
from klamm.journal.segments import Segment
from klamm.pipeline.bronze import KILLED, batch_name
from klamm.pipeline.decode.batches import INPUT, joined
from klamm.pipeline.lake.column_types import arrow_type
from klamm.pipeline.lake.tables import HEADER, HEADERS, HEADERS_VIEW, SILVER, Table
from klamm.pipeline.lake.unjudged_rows import Torn
from klamm.pipeline.quick.macros import MACROS
from klamm.pipeline.quick.translations import translations
from klamm.pipeline.silver_files import decode_into, events_into

INSERT_ROWS = 122_880
INSERT_BYTES = 64_000_000
"""Rows of a table are inserted when they are so many, which is a group of rows of DuckDB, or so many bytes."""

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
        kinds = {column.name: arrow_type(column.type) for column in table.judged}
        database.register("part", pa.schema(kinds.items()).empty_table())
        database.execute(f"CREATE TABLE {table.name} AS SELECT * FROM part")
        database.unregister("part")
    names = ", ".join(column.name for column in HEADER)
    database.execute(f"CREATE VIEW {HEADERS} AS {translations().of(HEADERS_VIEW.format(names=names))}")
    return database


def load(database: duckdb.DuckDBPyConnection, found: Sequence[Segment]) -> Loaded:
    """Read segments into the tables."""
    counts = {"frames": 0, "events": 0}
    torn: list[Torn] = []

    def batches(table: str) -> Iterator[Any]:
        for segment in found:
            if segment.table == table:
                reader = open_segment(segment.path)
                for batch in reader:
                    counts[table] += batch.num_rows
                    yield batch
                if reader.torn is not None and reader.torn != KILLED:
                    torn.append(Torn(segment.run, batch_name(segment), reader.torn))

    inserts = Inserts(database)
    decode_into(inserts.add, joined(batch.select(list(INPUT)) for batch in batches("frames")))
    for events in joined(batches("events")):
        events_into(inserts.add, events)
    inserts.close()
    return Loaded(counts, torn)


class Inserts:
    """Inserts rows into tables, many at a time: for each INSERT DuckDB begins a new group of rows in each of up to 65 columns."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self._waiting: dict[Table, list[Any]] = {}

    def add(self, table: Table, rows: Any) -> None:
        """Add rows with the columns of the table, in their order. They may be inserted later."""
        waiting = self._waiting.setdefault(table, [])
        waiting.append(rows)
        if sum(each.num_rows for each in waiting) >= INSERT_ROWS or sum(each.nbytes for each in waiting) >= INSERT_BYTES:
            self._insert(table)

    def close(self) -> None:
        """Insert what waits."""
        for table in list(self._waiting):
            self._insert(table)

    def _insert(self, table: Table) -> None:
        self._database.register("part", pa.Table.from_batches(self._waiting.pop(table)))
        self._database.execute(f"INSERT INTO {table.name} SELECT * FROM part")
        self._database.unregister("part")
