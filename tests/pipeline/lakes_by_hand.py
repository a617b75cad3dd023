"""Lakes with silver that no Spark wrote: the columns of the journal that retention and merging look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake import table_parts as parts
from klamm.pipeline.lake import unjudged_rows as missing
from klamm.pipeline.lake.bronze import convert_all, pending
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.sql_views import TABLES
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES, Table
from klamm.pipeline.stream import account

COLUMNS = ["run_id", "node_id", "process", "seq", "ts_ns", "conn_id"]


def to_silver(lake: Path, batch: str) -> Commits:
    """What a run of the pipeline does: new segments to bronze, one batch to `messages` and `events`, commits folded."""
    commits = Commits(lake)
    converted = convert_all(lake, pending(lake, commits), lambda _: None)
    commits.add(converted)
    for table, source in ((EVENT_TABLE, "events"), (MESSAGES, "frames")):
        some = [one for one in converted if one.table == source and one.rows]
        files = [parts.put(lake, table, one.run, batch, pq.ParquetFile(lake / one.path).read(COLUMNS)) for one in some]
        delta_log.append(lake, [table], files, commits.last)
    account(lake, commits)
    commits.fold(lambda run: missing.numbers_by_node(missing.silver_numbers(lake, run)))
    return commits


def add(lake: Path, table: Table | str, run: str, batch: str, rows: pa.Table) -> Entry:
    """A part of one file, which is valid."""
    (its,) = (one for one in TABLES if table in (one, one.path))
    file = parts.put(lake, its, run, batch, rows)
    delta_log.append(lake, [its], [file])
    return file


def delta_statistics(table: Path) -> list[dict[str, Any]]:
    """What Delta's log of a table says of each file that was added."""
    lines = [json.loads(line) for file in sorted((table / "_delta_log").glob("*.json")) for line in file.read_text().splitlines()]
    return [json.loads(line["add"]["stats"]) for line in lines if "add" in line]
