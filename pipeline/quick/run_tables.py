"""The tables of one run for the report, made from its journal: neither Java nor Spark, and nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.reading import open_segment
from klamm.journal.segments import Segment
from klamm.pipeline.gold_tables.queries import QUERIES
from klamm.pipeline.lake import unjudged_rows
from klamm.pipeline.lake.column_types import arrow_schema
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.tables import BRONZE, EVENT_TABLE, HEADERS, SILVER, Table
from klamm.pipeline.quick import gold, loading
from klamm.pipeline.quick.judge import TableContents, judge
from klamm.pipeline.quick.tables import load
from klamm.pipeline.rules.verdict_tables import judgement_rows

FRAMES, EVENTS = BRONZE
BATCH_ROWS = 100_000


class QuickTables:
    """Silver and gold are in a database, bronze are the segments of the journal."""

    def __init__(self, database: duckdb.DuckDBPyConnection, run: str, found: Sequence[Segment]) -> None:
        self.run = run
        self._database = database
        self._segments = found
        contents = TableContents(database)
        self._verdicts = judgement_rows(judge(database, [run], contents=contents, others=gold.makers(database, contents)))

    def read(self, table: Table, columns: Iterable[str]) -> pa.Table:
        """These columns of a table."""
        names = list(columns)
        if table in self._verdicts:
            return self._verdicts[table].select(names)
        return self._of(table, self._database.sql(f"SELECT {', '.join(names)} FROM {_place(table)}").to_arrow_table())

    def by_file(self, table: Table, columns: Iterable[str]) -> Iterator[pa.Table]:
        """These columns of a table that may have many rows, some rows at a time."""
        question = f"SELECT {', '.join(columns)} FROM {_place(table)}"
        for batch in self._database.sql(question).to_arrow_reader(BATCH_ROWS):
            yield self._of(table, pa.Table.from_batches([batch]))

    def where(self, table: Table, names: Collection[str] | None = None, **wanted: Collection[Any]) -> list[dict[str, Any]]:
        """The rows that have one of the wanted values in each of these columns; with `names` only these columns."""
        if not all(wanted.values()):
            return []
        if names is None and table in BRONZE:
            return [row for batch in self._journaled(table, wanted) for row in batch.to_pylist()]
        columns = "*" if names is None else ", ".join(names)
        conditions = " AND ".join(f"{name} IN (SELECT unnest(${name}))" for name in wanted)
        question = f"SELECT {columns} FROM {_place(table)} WHERE {conditions}"
        found = self._database.sql(question, params={name: list(values) for name, values in wanted.items()}).to_arrow_table()
        return self._of(table, found).to_pylist()

    def rows(self, table: Table) -> int:
        """How many rows a table has."""
        ((count,),) = self._database.sql(f"SELECT count(*) FROM {_place(table)}").fetchall()
        return int(count)

    def _journaled(self, table: Table, wanted: dict[str, Collection[Any]]) -> Iterator[Any]:
        """Rows of bronze, whole."""
        for segment in self._segments:
            if segment.table == table.name and segment.node in wanted.get("node_id", (segment.node,)):
                for batch in open_segment(segment.path):
                    rows = batch
                    for name, values in wanted.items():
                        column = rows.column(name)
                        rows = rows.filter(pc.is_in(column, pa.array(sorted(values), column.type)))
                    if rows.num_rows:
                        yield rows

    def _of(self, table: Table, rows: pa.Table) -> pa.Table:
        """The rows with the types of the table."""
        kinds = {column.name: column for column in table.columns}
        return rows.cast(arrow_schema(kinds[name] for name in rows.column_names))


def _place(table: Table) -> str:
    """Where the rows of a table are. Bronze's columns but the frames themselves are in silver too."""
    if table == FRAMES:
        return HEADERS
    if table == EVENTS:
        return EVENT_TABLE.name
    assert table in SILVER or table in QUERIES, table
    return f"{gold.SCHEMA}.{table.name}" if table in QUERIES else table.name


@contextmanager
def run_tables(lake: Lake, found: Sequence[Segment], run: str, memory: str) -> Iterator[tuple[QuickTables, list[str]]]:
    """The tables of a run, judged by all rules, from its segments; and lines about the rows that its journals lack.

    Raises PipelineFailed where memory or disk are too small.
    """
    advice = f"klamm pipeline run {lake} makes the tables with less of it"
    with loading.database(partial(load, found=found), memory, advice) as (database, loaded):
        notes = unjudged_rows.lines(*loading.lost_rows(lake, [run], database, loaded))
        yield QuickTables(database, run, found), notes
