"""Parts of tables: what one batch writes of a run, one file or several.

Each try of a batch writes files with names of its own, so nothing is moved or overwritten: a file is valid when the log of its table has
it (`delta_log.py`), and what a killed try left is swept.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.parquet_files import WRITTEN, told
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

REPORTED = "entry string"
"""Spark's schema of what tasks return: the entry of each file that they wrote, as JSON."""


def folder_of_run(run: str) -> str:
    """The name of the folder of a run."""
    return f"run={quote(run, safe='')}"


def part_path(table: Table, run: str, batch: str) -> str:
    """Where the files of a part are, relative to the lake."""
    return f"{table.path}/{folder_of_run(run)}/batch={quote(batch, safe='')}"


def new_file(table: Table, run: str, batch: str, task: int = 0) -> str:
    """The name of a new file of a part, relative to the lake."""
    return f"{part_path(table, run, batch)}/part-{task:05d}-{secrets.token_hex(6)}.parquet"


def put(lake: Lake, table: Table, run: str, batch: str, rows: pa.Table) -> Entry:
    """Write a file of few rows, also of none, with the metadata of their schema; its entry, which is still to be added to the log."""
    import pyarrow.parquet as pq

    name, about = new_file(table, run, batch), list[pq.FileMetaData]()
    file = Store(lake).create(name)
    pq.write_table(rows, file.sink, **WRITTEN, metadata_collector=about)
    return Entry(table.path, run, batch, name, *told(about[0], file.complete()))


def write(lake: Lake, table: Table, rows: DataFrame, batch: str) -> list[Entry]:
    """Write rows of a DataFrame from Spark's workers, a file for each partition and run."""
    reports = rows.mapInArrow(partial(_write_rows, lake, table, batch), REPORTED).collect()
    return [Entry(*json.loads(report.entry)) for report in reports]


def _write_rows(lake: Lake, table: Table, batch: str, some: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    files: dict[str, tuple[str, RowGroups]] = {}
    for rows in some:
        for run in pc.unique(rows.column("run_id")).to_pylist():
            if run not in files:
                name = new_file(table, run, batch)
                files[run] = name, RowGroups(Store(lake), name)
            files[run][1].add(rows.filter(pc.equal(rows.column("run_id"), run)))
    for run, (name, file) in files.items():
        file.close()
        yield pa.RecordBatch.from_pydict({"entry": [json.dumps(Entry(table.path, run, batch, name, *file.told))]})
