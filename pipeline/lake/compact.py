"""Compaction: merges the many small parts of a table into one part per run, sorted by broker, connection and row.

The new part is written under a name that no batch has. Then one line of the manifest replaces the old parts by it, and the old files are
deleted. A compaction that was killed leaves files that no line names; the next one removes them. Bronze is never rewritten. `purge` deletes
it if all its rows are in silver. The journal itself is never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from klamm.pipeline.commits import Commits
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
    """The compaction of one run of one table."""

    table: str
    run: str
    parts: int
    rows: int


def compact(spark: Any, lake: Path) -> list[Compacted]:
    """Compact silver. The caller holds the lock of the lake (`folder.written`).

    Raises PipelineFailed, and replaces nothing, if rows get lost.
    """
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
    """Delete the Parquet files of bronze; returns their number. Raises PipelineFailed if not all their rows are in silver."""
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
        written = manifest.footers(lake / entry.path)
        if written.rows != rows:
            raise PipelineFailed(f"{table.path} of run {run}: {len(parts)} parts have {rows} rows, their compaction {written.rows}")
        entry = entry._replace(first_ts_ns=written.first_ts_ns, last_ts_ns=written.last_ts_ns)
    manifest.replace(lake, entry, parts)
    return Compacted(table.path, run, len(parts), rows)
