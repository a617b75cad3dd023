"""From bronze to silver, by one stream that runs up to the last commit of bronze, or continues with later ones.

The stream reads the commits of bronze; a micro-batch has the segments of a few commits. Spark stores which commits a batch has before it
begins. So a batch that was killed is repeated with the same number and the same rows, and its files and its lines in the manifests replace
what was left: each row counts once. The state of the stream is valid for one path of the lake. If the lake was moved or the state is
missing, or silver has other tables or columns now, silver and gold are built again from bronze.

After each run the rows are counted: frames of bronze = messages + quarantine, events of bronze = events of silver.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.pipeline.lake import layout, manifest
from klamm.pipeline.lake.commits import COMMIT_COLUMNS, COMMITS, PURGED, Commits
from klamm.pipeline.lake.folder import CHECKPOINTS, PipelineFailed
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.table_parts import STAGED
from klamm.pipeline.lake.tables import SILVER
from klamm.pipeline.silver import Begin, Source, build_silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

COMMITS_A_BATCH = 8
STREAM = f"{CHECKPOINTS}/silver"
DERIVED = ("silver", "gold")


def prepare(lake: Path) -> bool:
    """Check the state of the stream. Returns True if silver and gold have to be built again; then they have been removed."""
    is_rebuilt = not layout.is_current(lake) or not Store(lake).has(f"{STREAM}/metadata")
    if is_rebuilt:
        _refuse_to_lose(lake)
        for folder in (STREAM, *DERIVED):
            Store(lake).delete(folder)
        Commits(lake).begin_again()
        layout.keep(lake)
    return is_rebuilt


def _refuse_to_lose(lake: Path) -> None:
    """Raise PipelineFailed if silver has rows that bronze lost by `compact --purge`."""
    for table, of_silver in (("frames", ("messages", "quarantine")), ("events", ("events",))):
        if manifest.rows(lake, f"bronze/{table}") < sum(manifest.rows(lake, f"silver/{name}") for name in of_silver):
            raise PipelineFailed(PURGED.format(lake))


def remove_remains(lake: Path) -> None:
    """Delete what a killed run left in silver, so that programs that read whole folders find only valid files."""
    Store(lake).delete(STAGED)
    for table in SILVER:
        manifest.sweep(lake, table.path)


def start(spark: SparkSession, lake: Path, *, every_s: float | None, begin: Begin | None = None) -> StreamingQuery:
    """Start the stream: to the end of the commits there are (None), or with a micro-batch each `every_s` seconds. Returns Spark's query.

    `begin` is called for each micro-batch, unless a Spark Connect server makes them.
    """
    store = Store(lake)
    commits = spark.readStream.schema(COMMIT_COLUMNS).option("maxFilesPerTrigger", COMMITS_A_BATCH).json(str(store.folder(COMMITS)))
    trigger: dict[str, bool | str] = {"availableNow": True}
    if every_s is not None:
        trigger = {"processingTime": f"{round(every_s * 1000)} milliseconds"}
    if spark.__module__.startswith("pyspark.sql.connect"):
        begin = None  # the server calls `do_batch`
    writer = commits.writeStream.foreachBatch(partial(do_batch, str(lake), begin=begin))
    writer = writer.option("checkpointLocation", str(store.address(STREAM)))
    return writer.trigger(**trigger).start()


def do_batch(lake: str, commits: DataFrame, batch_id: int, begin: Begin | None = None) -> None:
    """A micro-batch: the segments that these commits list, from bronze to silver."""
    spark = commits.sparkSession
    listed = [row for row in commits.collect() if row.rows > 0]
    sources = [Source(row.table, row.run, row.path, row.rows) for row in listed]
    build_silver(spark, Path(lake), sources, batch_id, begin)


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
