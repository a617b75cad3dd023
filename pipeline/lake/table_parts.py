"""Parts of tables: the folder `run=…/batch=…` that one batch writes, and how it takes its place.

What a batch writes grows in a folder of its own and is moved when it is whole, so a part has all its files or those of its last writing.
How many rows a part has is read from its files, which costs no job of Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from klamm.pipeline.lake.folder import CHECKPOINTS
from klamm.pipeline.lake.manifest import Entry, rows_on_disk
from klamm.pipeline.lake.tables import Table

STAGED = f"{CHECKPOINTS}/staged"
"""Where parts grow."""

AT_ONCE = 4
"""Tables that are written at the same time."""

SORTED_PAGE_ROWS = 1000
"""Rows of a page where rows are sorted."""

_ESCAPED = frozenset('"#%\'*/:=?\\{[]^\x7f') | frozenset(map(chr, range(1, 32)))
"""What Spark escapes in the name of a partition's folder."""


def at_once(parts: Sequence[Callable[[], list[Entry]]]) -> list[Entry]:
    """Write parts of tables at the same time; the entries of all, in order. The first error is raised when all have ended."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [entry for entries in pool.map(lambda part: part(), parts) for entry in entries]


def part_path(table: Table, run: str, batch: str) -> str:
    """The folder of a batch, relative to the lake, named as Spark names it."""
    return f"{table.path}/{folder_of_run(run)}/batch={_escaped(batch)}"


def folder_of_run(run: str) -> str:
    """The name of the folder of a run."""
    return f"run={_escaped(run)}"


def _escaped(name: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in name)


def stage(lake: Path, table: Table, batch: str) -> Path:
    """Where the folders of runs of this batch grow."""
    return lake / STAGED / f"{table.layer}-{table.name}-{_escaped(batch)}"


def clear(lake: Path, tables: Iterable[Table], batch: str) -> None:
    """Remove what a killed run left where these parts are to grow."""
    for table in tables:
        shutil.rmtree(stage(lake, table, batch), ignore_errors=True)


def write(lake: Path, table: Table, rows: Any, batch: str, runs: Sequence[str], sorted_by: Sequence[str] = ()) -> None:
    """Write rows of Spark, which are of these runs only, where the parts grow.

    In each file they are `sorted_by` these columns, in small pages: who asks for some values skips the pages of all others.
    """
    from pyspark.sql import functions as F

    folder = stage(lake, table, batch)
    one = len(runs) == 1
    placed = rows if one else rows.withColumn("run", F.col("run_id"))
    if sorted_by:
        placed = placed.sortWithinPartitions(*(() if one else ("run",)), *sorted_by)
    writer = placed.write.mode("overwrite").option("compression", "zstd")
    if sorted_by:
        writer = writer.option("parquet.page.row.count.limit", SORTED_PAGE_ROWS)
    if one:
        writer.parquet(str(folder / folder_of_run(runs[0])))
    else:
        writer.partitionBy("run").parquet(str(folder))


def write_here(lake: Path, table: Table, rows: Any, batch: str) -> None:
    """Write few rows of Spark where the parts grow, from this process: Spark's own writing costs more than they do."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    here = rows.toArrow()
    for run in pc.unique(here.column("run_id")).to_pylist():
        folder = stage(lake, table, batch) / folder_of_run(run)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(here.filter(pc.equal(here.column("run_id"), run)), folder / "part-0.parquet", compression="zstd")


def adopt(lake: Path, table: Table, batch: str, runs: Iterable[str]) -> list[Entry]:
    """Move the parts of these runs to their places, instead of those from before; the entries of those that have rows."""
    folder = stage(lake, table, batch)
    entries = []
    for run in sorted(runs):
        new, path = folder / folder_of_run(run), part_path(table, run, batch)
        rows = rows_on_disk(new)
        if rows > 0:
            place = lake / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                place.rename(folder / f".before-{new.name}")
            new.rename(place)
            entries.append(Entry(table.path, run, batch, path, rows))
    shutil.rmtree(folder, ignore_errors=True)
    return entries
