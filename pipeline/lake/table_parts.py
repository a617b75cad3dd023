"""Parts of tables: the folder `run=…/batch=…` that one batch writes.

A batch writes to a staging folder, which is moved to its place when it is complete. So a part has all files of its last complete writing.
The rows of a part are counted from the metadata of its files, without a job of Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm.machine.replaced_file import remove_temporaries, replacing
from klamm.pipeline.lake.folder import CHECKPOINTS, PipelineFailed
from klamm.pipeline.lake.manifest import Entry, Footers, append, files_of, footers, together
from klamm.pipeline.lake.parquet_files import WRITTEN
from klamm.pipeline.lake.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

STAGED = f"{CHECKPOINTS}/staged"
"""The staging folder."""

PUT = "part-0.parquet"
"""The file of a part that the driver writes."""

_ESCAPED = frozenset('"#%\'*/:=?\\{[]^\x7f') | frozenset(map(chr, range(1, 32)))
"""What Spark escapes in the name of a partition's folder."""


def part_path(table: Table, run: str, batch: str) -> str:
    """The folder of a batch, relative to the lake, named as Spark names it."""
    return f"{table.path}/{folder_of_run(run)}/batch={_escaped(batch)}"


def folder_of_run(run: str) -> str:
    """The name of the folder of a run."""
    return f"run={_escaped(run)}"


def _escaped(name: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in name)


def stage(lake: Path, table: Table, batch: str) -> Path:
    """The staging folder of a batch, with a folder for each run."""
    return lake / STAGED / f"{table.layer}-{table.name}-{_escaped(batch)}"


def clear(lake: Path, tables: Iterable[Table], batch: str) -> None:
    """Empty the staging folders of these tables: a killed run may have left files there."""
    for table in tables:
        shutil.rmtree(stage(lake, table, batch), ignore_errors=True)


def write(lake: Path, table: Table, rows: DataFrame, batch: str, runs: Sequence[str]) -> None:
    """Write rows of a DataFrame, all of these runs, to the staging folder."""
    from pyspark.sql import functions as F

    folder = stage(lake, table, batch)
    if len(runs) == 1:
        rows.write.mode("overwrite").option("compression", "zstd").parquet(str(folder / folder_of_run(runs[0])))
    else:
        placed = rows.withColumn("run", F.col("run_id"))
        placed.write.mode("overwrite").option("compression", "zstd").partitionBy("run").parquet(str(folder))


def write_few(lake: Path, table: Table, rows: DataFrame, batch: str, most: int) -> bool:
    """Write rows of a DataFrame to the staging folder from this process, which is cheaper than a job of Spark; False if they are more than
    `most`."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    here = rows.limit(most + 1).toArrow()
    if here.num_rows > most:
        return False
    for run in pc.unique(here.column("run_id")).to_pylist():
        folder = stage(lake, table, batch) / folder_of_run(run)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(here.filter(pc.equal(here.column("run_id"), run)), folder / PUT, **WRITTEN)
    return True


def put(lake: Path, table: Table, run: str, batch: str, rows: pa.Table) -> Entry:
    """Write a part of few rows, with the metadata of their schema, in place of an earlier one; its entry in the log, which is still to be
    appended."""
    import pyarrow.parquet as pq

    path = part_path(table, run, batch)
    (lake / path).mkdir(parents=True, exist_ok=True)
    with replacing(lake / path / PUT) as temporary:
        pq.write_table(rows, temporary, **WRITTEN)
    return Entry(table.path, run, batch, path, rows.num_rows)


class WrittenFile(NamedTuple):
    """A file in a staging folder, as its writer reports it."""

    table: str
    run: str
    name: str
    bytes: int
    told: Footers


Reported = Mapping[tuple[str, str], Sequence[WrittenFile]]
"""Table and run → the files that were written of it."""


def adopt(lake: Path, table: Table, batch: str, runs: Iterable[str], reported: Reported | None = None) -> list[Entry]:
    """Move the parts of these runs to their places, where they replace earlier ones; returns the entries of those with rows.

    The rows and their bounds are those that were reported, else those of the files' ends. Raises PipelineFailed if other files are there
    than were reported.
    """
    folder = stage(lake, table, batch)
    entries = []
    for run in sorted(runs):
        new, path = folder / folder_of_run(run), part_path(table, run, batch)
        told = footers(new) if reported is None else _reported(new, reported.get((table.path, run), ()))
        if told.rows > 0:
            place = lake / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                place.rename(folder / f".before-{new.name}")
            new.rename(place)
            entries.append(Entry(table.path, run, batch, path, *told))
    shutil.rmtree(folder, ignore_errors=True)
    return entries


def _reported(folder: Path, files: Sequence[WrittenFile]) -> Footers:
    there = {}
    if folder.exists():
        remove_temporaries(folder, {file.name for file in files})  # of tries that were killed: two tries of a task may run at once
        there = {file.name: file.stat().st_size for file in files_of(folder)}
    if there != {file.name: file.bytes for file in files}:
        raise PipelineFailed(f"{folder}: {len(there)} files are there, which are not the {len(files)} that were written; try again")
    return together(file.told for file in files)


def enter(lake: Path, entries: Sequence[Entry]) -> None:
    """Name parts in the manifests of their tables. Those that had rows before and have none now lose their files."""
    append(lake, entries)
    for entry in entries:
        if entry.rows == 0:
            shutil.rmtree(lake / entry.path, ignore_errors=True)
