"""The views by which Spark reads the tables of a lake: of the files that their logs name, because others are not part of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.column_types import arrow_schema, spark_type
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import BRONZE, GOLD, HEADER, HEADERS, HEADERS_VIEW, MESSAGES, QUARANTINE, SILVER, Table, ddl
from klamm.pipeline.lake.windows import Window

READ_ROWS = 8_192
"""Rows that are read at a time."""

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def views(
    spark: SparkSession, lake: Lake, runs: Collection[str] | None = None, names: Collection[str] | None = None, window: Window | None = None
) -> frozenset[str]:
    """Register a temporary view for each table of silver and gold, and for `frames` of bronze, under the table's name.

    A table without rows is an empty view. `headers` has the frames of `messages` and of `quarantine` together: the columns of the journal
    but `frame`, then frame_bytes, length_prefix, bytes_left, err, error_code, errors, throttle_ms, `reason`, null where the frame decodes,
    and session_id, session_epoch, replica_id. `runs` limits all views to these run ids, `window` to the rows that rules see with it. With
    `names` only these views are registered. The names of those that have no row are returned.
    """
    tables: tuple[Table, ...] = (BRONZE[0], *SILVER, *GOLD)
    if names is not None:
        behind = {*names, *((MESSAGES.name, QUARANTINE.name) if HEADERS in names else ())}
        tables = tuple(table for table in tables if table.name in behind)
    empty = {table.name for table in tables if delta_log.rows(lake, table.path, runs) == 0}
    for table in tables:
        read(spark, lake, table, runs, window).createOrReplaceTempView(table.name)
    if MESSAGES in tables and QUARANTINE in tables:
        if {MESSAGES.name, QUARANTINE.name} <= empty:
            empty.add(HEADERS)
        names = ", ".join(column.name for column in HEADER)
        spark.sql(HEADERS_VIEW.format(names=names)).createOrReplaceTempView(HEADERS)
    return frozenset(empty)


def read(spark: SparkSession, lake: Lake, table: Table, runs: Collection[str] | None = None, window: Window | None = None) -> DataFrame:
    """The rows of a table, from the files that its log names, as a DataFrame with exactly its columns."""
    rows = _read(spark, lake, table, seen_parts(lake, table, runs, window))
    return rows.where(window.sees(table.name)) if window is not None and table.layer == "silver" else rows


def rows_seen(lake: Lake, table: Table, runs: Collection[str] | None = None, window: Window | None = None) -> int:
    """Number of rows in the files that `views` reads."""
    return sum(entry.rows for entry in seen_parts(lake, table, runs, window))


def seen_parts(lake: Lake, table: Table, runs: Collection[str] | None, window: Window | None) -> list[Entry]:
    """The files with rows that `views` reads."""
    entries = [entry for entry in delta_log.entries(lake, table.path, runs) if entry.rows > 0]
    return entries if window is None or table.layer != "silver" else [entry for entry in entries if window.reads(entry)]


def _read(spark: SparkSession, lake: Lake, table: Table, entries: Collection[Entry]) -> DataFrame:
    if not entries:
        nulls = ", ".join(f"CAST(NULL AS {spark_type(column.type)}) AS {column.name}" for column in table.columns)
        return spark.sql(f"SELECT {nulls} LIMIT 0")  # which Spark knows to be empty when it plans
    if isinstance(lake, str) and not (spark.conf.get("spark.master") or "").startswith("local"):
        names = [entry.path for entry in entries]
        return spark.range(0, len(names), 1, len(names)).mapInArrow(partial(_rows, lake, table, names), ddl(table.columns))
    return spark.read.schema(ddl(table.columns)).parquet(*(str(Store(lake).local(entry.path)) for entry in entries))


def _rows(lake: Lake, table: Table, names: Sequence[str], numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of files with these numbers. Workers read objects themselves: Spark needs no jars for it, but reads all columns."""
    import pyarrow as pa

    schema = arrow_schema(table.columns)
    for some in numbers:
        for number in some.column(0).to_pylist():
            for rows in opened(Store(lake).address(names[number])).iter_batches(READ_ROWS, use_threads=False):
                there = rows.schema.names
                count = rows.num_rows
                arrays = [rows.column(one.name).cast(one.type) if one.name in there else pa.nulls(count, one.type) for one in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
