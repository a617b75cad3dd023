"""Lakes with silver that no Spark wrote: the columns of the journal that retention and merging look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from klamm.pipeline.lake import manifest
from klamm.pipeline.lake import table_parts as parts
from klamm.pipeline.lake import unjudged_rows as missing
from klamm.pipeline.lake.bronze import convert_here, pending
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES
from klamm.pipeline.stream import account

COLUMNS = ["run_id", "node_id", "process", "seq", "ts_ns", "conn_id"]


def to_silver(lake: Path, batch: str) -> Commits:
    """What a run of the pipeline does: new segments to bronze, one batch to `messages` and `events`, commits folded."""
    commits = Commits(lake)
    converted = convert_here(lake, pending(lake, commits), lambda _: None)
    commits.add(converted)
    runs = {one.run for one in converted}
    for table, source in ((MESSAGES, "frames"), (EVENT_TABLE, "events")):
        for number, one in enumerate(one for one in converted if one.table == source and one.rows):
            folder = parts.stage(lake, table, batch) / parts.folder_of_run(one.run)
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pq.ParquetFile(lake / one.path).read(COLUMNS), folder / f"part-{number:05d}.parquet")
        manifest.append(lake, parts.adopt(lake, table, batch, runs))
    account(lake, commits)
    commits.fold(lambda run: missing.numbers_by_node(missing.silver_numbers(lake, run)))
    return commits


def delta_statistics(table: Path) -> list[dict[str, Any]]:
    """What Delta's log of a table says of each file that was added; nothing if the table was not published."""
    lines = [json.loads(line) for file in sorted((table / "_delta_log").glob("*.json")) for line in file.read_text().splitlines()]
    return [json.loads(line["add"]["stats"]) for line in lines if "add" in line]
