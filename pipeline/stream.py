"""From bronze to silver, by one stream that runs up to the last commit of bronze, or continues with later ones.

The stream reads the commits of bronze; a micro-batch has the segments of a few commits. Spark stores which commits a batch has before it
begins. So a batch that was killed is repeated with the same number and the same rows, and its files and its lines in the manifests replace
what was left: each row counts once. The state of the stream is valid for one path of the lake. If the lake was moved or the state is
missing, or silver has other tables or columns now, silver and gold are built again from bronze.

After each run the rows are counted: frames of bronze = messages + quarantine, events of bronze = events of silver.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from klamm.journal.columns import Column
from klamm.machine.replaced_file import replacing
from klamm.pipeline.commits import COMMIT_COLUMNS, COMMITS, PURGED, Commits
from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.folder import CHECKPOINTS, PipelineFailed
from klamm.pipeline.lake.table_parts import STAGED
from klamm.pipeline.lake.tables import BRONZE, SILVER, ddl
from klamm.pipeline.silver import build_silver
from klamm.pipeline.spark.session import few_rows
from klamm.pipeline.spark.settings import FEW

COMMITS_A_BATCH = 8
STREAM = f"{CHECKPOINTS}/silver"
PLACE = f"{CHECKPOINTS}/place.json"
DERIVED = ("silver", "gold")
LAYOUT = 2
"""The version of the columns of silver. A lake with another one gets silver and gold again from bronze."""


def prepare(lake: Path) -> bool:
    """Check the state of the stream. Returns True if silver and gold have to be built again; then they have been removed."""
    place = lake / PLACE
    now = {"path": str(lake), "silver": [table.name for table in SILVER], "layout": LAYOUT}
    try:
        same = json.loads(place.read_text()) == now
    except (OSError, ValueError):
        same = False
    is_rebuilt = not same or not (lake / STREAM / "metadata").exists()
    if is_rebuilt:
        _refuse_to_lose(lake)
        for folder in (STREAM, *DERIVED):
            shutil.rmtree(lake / folder, ignore_errors=True)
        Commits(lake).begin_again()
        with replacing(place) as temporary:
            temporary.write_text(json.dumps(now))
    return is_rebuilt


def _refuse_to_lose(lake: Path) -> None:
    """Raise PipelineFailed if silver has rows that bronze lost by `compact --purge`."""
    for table, of_silver in (("frames", ("messages", "quarantine")), ("events", ("events",))):
        if manifest.rows(lake, f"bronze/{table}") < sum(manifest.rows(lake, f"silver/{name}") for name in of_silver):
            raise PipelineFailed(PURGED.format(lake))


def remove_remains(lake: Path) -> None:
    """Delete what a killed run left in silver, so that programs that read whole folders find only valid files."""
    shutil.rmtree(lake / STAGED, ignore_errors=True)
    for table in SILVER:
        manifest.sweep(lake, table.path)


def start(spark: Any, lake: Path, *, every_s: float | None, variant: bool = True) -> Any:
    """Start the stream: to the end of the commits there are (None), or with a micro-batch each `every_s` seconds. Returns Spark's query.

    Without `variant` bodies of messages are JSON.
    """
    (lake / COMMITS).mkdir(parents=True, exist_ok=True)
    commits = spark.readStream.schema(COMMIT_COLUMNS).option("maxFilesPerTrigger", COMMITS_A_BATCH).json(str(lake / COMMITS))
    trigger: dict[str, Any] = {"availableNow": True} if every_s is None else {"processingTime": f"{round(every_s * 1000)} milliseconds"}
    writer = commits.writeStream.foreachBatch(partial(do_batch, str(lake), variant)).option("checkpointLocation", str(lake / STREAM))
    return writer.trigger(**trigger).start()


def do_batch(lake: str, variant: bool, commits: Any, batch_id: int) -> None:
    """A micro-batch: the segments that these commits list, from bronze to silver."""
    spark = commits.sparkSession
    with few_rows(spark):
        listed = [row for row in commits.collect() if row.rows > 0]
    frames, events = (_read(spark, Path(lake), table.columns, [row.path for row in listed if row.table == table.name]) for table in BRONZE)
    expected = _rows_by_run(listed, "frames"), _rows_by_run(listed, "events")
    with few_rows(spark, sum(expected[0].values()) <= FEW):
        entries = build_silver(spark, Path(lake), frames, events, batch_id, variant=variant, expected=expected)
    for entry in entries:
        there = manifest.rows_on_disk(Path(lake) / entry.path)
        if there != entry.rows:
            raise PipelineFailed(f"{entry.path}: {entry.rows} rows were to be written, {there} are there")


def _rows_by_run(listed: Sequence[Any], table: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for row in listed:
        if row.table == table:
            counts[row.run] += row.rows
    return counts


def _read(spark: Any, lake: Path, columns: Sequence[Column], paths: list[str]) -> Any:
    """The rows of these files; None without files."""
    if not paths:
        return None
    return spark.read.schema(ddl(columns)).parquet(*(str(lake / path) for path in paths))


def account(lake: Path, commits: Commits) -> dict[str, int]:
    """The rows of each table of silver, from its manifests. Raises PipelineFailed if rows of bronze are missing there."""
    silver = {name: manifest.rows(lake, f"silver/{name}") for name in ("messages", "quarantine", "events")}
    frames, events = commits.rows["frames"], commits.rows["events"]
    if frames != silver["messages"] + silver["quarantine"]:
        raise PipelineFailed(
            f"{frames} frames in bronze, but {silver['messages']} messages and {silver['quarantine']} frames in quarantine"
        )
    if events != silver["events"]:
        raise PipelineFailed(f"{events} events in bronze, but {silver['events']} in silver")
    return {"frames": frames, **silver}
