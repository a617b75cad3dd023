"""Gold of runs, or of a window of a run, made by DuckDB of the files of silver: a task of the pipeline.

The files are read by pyarrow, which compares the checksums of their pages, into tables of DuckDB.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from klamm.pipeline.gold_tables.parts import GoldTask, Made, batch_of
from klamm.pipeline.gold_tables.queries import INPUTS, NEEDS, QUERIES
from klamm.pipeline.lake import table_parts
from klamm.pipeline.lake.column_types import arrow_schema, with_columns
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.local_workers import cores
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.spark_views import seen_parts
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import SILVER, WINDOW, Table
from klamm.pipeline.lake.windows import Window, WindowPart
from klamm.pipeline.quick import gold, loading
from klamm.pipeline.quick.decoders import BODY
from klamm.pipeline.quick.judge import TableContents, judge
from klamm.pipeline.quick.tables import Inserts
from klamm.pipeline.rules.record import Rule
from klamm.pipeline.rules.runner import Begin, Judgement, Reader, no_steps

MEMORY = "800m"
"""DuckDB's, in each worker. What exceeds it is written to a temporary folder."""

READ_ROWS = 1 << 16


def made_by_duckdb(lake: Lake, tasks: int, task: GoldTask, begin: Begin = no_steps) -> Made:
    """Make the parts of a task, one of this number that are done at the same time. `begin` is called with the number of steps.

    Raises PipelineFailed where memory or disk are too small.
    """
    with _opened(lake, task.runs, task.window) as (database, _):
        database.execute(f"SET threads = {max(1, cores() // tasks)}")
        contents, entries = TableContents(database, task.window), list[Entry]()
        made = [table for table in QUERIES if not contents.lacks(NEEDS.get(table, ()))]
        others = [Reader(INPUTS[table], partial(_make, database, lake, task, table, entries)) for table in made]
        judgement = judge(database, task.runs, contents=contents, others=others, window=task.window, begin=begin)
    return Made(entries, judgement)


def judged_by_duckdb(lake: Lake, rules: Collection[Rule], runs: Sequence[str], window: Window | None) -> Judgement:
    """Judge runs, or a window of one, by these rules. Raises PipelineFailed where memory or disk are too small."""
    with _opened(lake, runs, window) as (database, _):
        return judge(database, runs, rules, window=window)


def _opened(lake: Lake, runs: Sequence[str], window: Window | None) -> AbstractContextManager[tuple[duckdb.DuckDBPyConnection, None]]:
    read = partial(load, lake=lake, runs=runs, window=window)
    return loading.database(read, MEMORY, "a disk with more room holds what exceeds it")


def load(database: duckdb.DuckDBPyConnection, lake: Lake, runs: Collection[str], window: Window | None) -> None:
    """Read silver's rows of some runs, or those that rules see with a window."""
    store, inserts = Store(lake), Inserts(database) if window is None else Inserts(database, window.sees)
    for table in SILVER:
        columns = [column for column in table.judged if column.name != BODY]
        names = [column.name for column in columns]
        for entry in seen_parts(lake, table, runs, window):
            with opened(store.address(entry.path)) as file:
                for rows in file.iter_batches(READ_ROWS, columns=names, use_threads=False):
                    inserts.add(table, with_columns(rows, columns))
    inserts.close()


def _make(database: duckdb.DuckDBPyConnection, lake: Lake, task: GoldTask, table: Table, entries: list[Entry]) -> None:
    for part in task.parts(table):
        rows = _rows(database, table, part)
        for run in pc.unique(rows.column("run_id")).to_pylist():
            of_run = rows.filter(pc.equal(rows.column("run_id"), run)) if len(task.runs) > 1 else rows
            entries.append(table_parts.put(lake, table, run, batch_of(part), of_run))


def _rows(database: duckdb.DuckDBPyConnection, table: Table, part: WindowPart | None) -> pa.Table:
    """Exactly the columns of the table, in its types."""
    since_ns = "NULL" if part is None or part.since_ns is None else part.since_ns
    names = ", ".join(f"{since_ns} AS {name}" if name == WINDOW.name else name for name in table.names)
    rows = database.sql(f"SELECT {names} FROM ({gold.query(table, part)})").to_arrow_table()
    return rows.cast(arrow_schema(table.columns))
