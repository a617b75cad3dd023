"""Compaction: the many small parts of a table become one part for each run, sorted by broker, connection and row.

The new part is written whole under a name that no batch has; then one line of the manifest puts it in the place of the old ones, which are
deleted last. A compaction that was killed leaves files that no line names, or old parts that no line names any more: the next one removes
both. Bronze is never rewritten. With `purge` it is deleted where all its rows are in silver; the journal itself is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from klamm.pipeline.bronze import Commits
from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.manifest import Entry
from klamm.pipeline.lake.table_parts import part_path
from klamm.pipeline.lake.tables import SILVER, Table
from klamm.pipeline.stream import account

SORTED_BY = ("node_id", "conn_id", "seq")
PREFIX = "compact-"
ROWS_A_FILE = 4_000_000


class Compacted(NamedTuple):
    """What became of one run of one table."""

    table: str
    run: str
    parts: int
    rows: int


def compact(spark: Any, lake: Path) -> list[Compacted]:
    """Compact silver. The caller holds the lake (`lake.written`). Raises PipelineFailed when rows got lost; then nothing was replaced."""
    done = []
    for table in SILVER:
        manifest.sweep(lake, table.path)
        parts = manifest.entries(lake, table.path)
        for run in sorted({part.run for part in parts}):
            of_run = [part for part in parts if part.run == run]
            if len(of_run) > 1:
                done.append(_compact_run(spark, lake, table, of_run))
        if parts:
            manifest.rewrite(lake, table.path)
            manifest.sweep(lake, table.path)
    return done


def purge(lake: Path) -> int:
    """Delete the Parquet files of bronze, whose rows are all in silver; returns how many. Raises PipelineFailed when they are not."""
    account(lake, Commits(lake))
    removed = 0
    for name in ("frames", "events"):
        table = f"bronze/{name}"
        parts = manifest.entries(lake, table)
        if parts:
            manifest.drop(lake, table, parts)
            removed += len(manifest.sweep(lake, table))
    return removed


def _compact_run(spark: Any, lake: Path, table: Table, parts: Sequence[Entry]) -> Compacted:
    run, rows = parts[0].run, sum(part.rows for part in parts)
    number = 1 + max((int(part.batch.removeprefix(PREFIX)) for part in parts if part.batch.startswith(PREFIX)), default=-1)
    batch = f"{PREFIX}{number}"
    entry = Entry(table.path, run, batch, part_path(table, run, batch), rows)
    filled = [str(lake / part.path) for part in parts if part.rows > 0]
    if filled:
        frame = spark.read.option("mergeSchema", "true").parquet(*filled)
        by = [name for name in SORTED_BY if name in frame.columns]
        files = 1 + rows // ROWS_A_FILE
        ordered = frame.repartitionByRange(files, *by) if files > 1 else frame.coalesce(1)
        ordered.sortWithinPartitions(*by).write.mode("overwrite").option("compression", "zstd").parquet(str(lake / entry.path))
        written = manifest.rows_on_disk(lake / entry.path)
        if written != rows:
            raise PipelineFailed(f"{table.path} of run {run}: {len(parts)} parts have {rows} rows, their compaction {written}")
    manifest.replace(lake, entry, parts)
    return Compacted(table.path, run, len(parts), rows)
