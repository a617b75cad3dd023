"""Bronze to silver: decodes a batch of frames once and writes all tables that come of it.

A batch is what one micro-batch of the stream brings, of one run or of many. Each table gets a folder `run=<id>/batch=<id>`, which is
replaced when the same batch comes again, and then one line in its manifest; so a batch that was interrupted is simply written again.
There is one job for frames and one for events, because planning and starting a job takes longer than the rows of a small table: Spark
writes the messages, and the workers that decode write everything else (`silver_files.py`). Rows in are rows out: the frames of bronze are
counted against the rows of the files of messages and quarantine, and a difference is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from klamm.journal.columns import EVENTS
from klamm.pipeline.decode.batches import DECODED, INPUT, decode_batches
from klamm.pipeline.lake import manifest
from klamm.pipeline.lake import table_parts as parts
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.manifest import Entry
from klamm.pipeline.lake.tables import EVENT_TABLE, HEADER, MESSAGES, QUARANTINE, SIZES, Table
from klamm.pipeline.silver_files import DECODABLE, FROM_EVENTS, FROM_FRAMES, WRITTEN, decode_and_write, write_events
from klamm.pipeline.spark.settings import FEW

SORTED_BY = ("api_key", "dir")
"""Many messages are sorted by these columns: most frames are of few APIs, and most rules ask for the bodies of the rest."""

Counts = Mapping[str, int]
"""Run → rows."""


class RowsLostError(PipelineFailed):
    """Rows of bronze are not in silver, or there are more than there were."""


def build_silver(
    spark: Any,
    lake: Path,
    frames: Any,
    events: Any,
    batch_id: int | str,
    *,
    variant: bool = True,
    expected: tuple[Counts, Counts] | None = None,
) -> list[Entry]:
    """Write one batch of bronze rows to all tables of silver; the entries that the manifests got.

    `frames` and `events` are DataFrames with the columns of bronze; either may be None. Without `variant` bodies are JSON in the column
    `body_json`. `expected` has how many rows of each run the two have, where that is known; else they are counted. Raises RowsLostError.
    """
    batch = str(batch_id)
    work: list[Callable[[], list[Entry]]] = []
    if frames is not None:
        work.append(lambda: _build_from_frames(lake, frames, batch, variant, None if expected is None else expected[0]))
    if events is not None:
        work.append(lambda: _build_from_events(lake, events, batch, None if expected is None else expected[1]))
    entries = parts.at_once(work)
    manifest.append(lake, entries)
    return entries


def decode(frames: Any) -> Any:
    """The frames of bronze, decoded: rows of the schema `DECODED`."""
    return frames.select(*INPUT).mapInArrow(decode_batches, DECODED)


def _build_from_frames(lake: Path, frames: Any, batch: str, variant: bool, expected: Counts | None) -> list[Entry]:
    expected = _counted(frames) if expected is None else expected
    tables = (MESSAGES, *FROM_FRAMES)
    parts.clear(lake, tables, batch)
    decodable = frames.select(*INPUT).mapInArrow(partial(decode_and_write, str(lake), batch), DECODABLE)
    names = [column.name for column in (*HEADER, *SIZES)]
    body = "parse_json(body_json) AS body" if variant else "body_json"
    messages = decodable.selectExpr(*names, body, "left", "err", "error_code", "errors")
    parts.write(lake, MESSAGES, messages, batch, list(expected), SORTED_BY if sum(expected.values()) > FEW else ())
    return _adopted(lake, tables, (MESSAGES, QUARANTINE), batch, expected)


def _build_from_events(lake: Path, events: Any, batch: str, expected: Counts | None) -> list[Entry]:
    expected = _counted(events) if expected is None else expected
    parts.clear(lake, FROM_EVENTS, batch)
    events.select(*(column.name for column in EVENTS)).mapInArrow(partial(write_events, str(lake), batch), WRITTEN).collect()
    return _adopted(lake, FROM_EVENTS, (EVENT_TABLE,), batch, expected)


def _counted(rows: Any) -> dict[str, int]:
    return {row["run_id"]: row["count"] for row in rows.groupBy("run_id").count().collect()}


def _adopted(lake: Path, tables: tuple[Table, ...], whole: tuple[Table, ...], batch: str, expected: Counts) -> list[Entry]:
    """Put the parts into their places when the tables `whole` together have as many rows as came in."""
    for run, rows in expected.items():
        found = sum(manifest.rows_on_disk(parts.stage(lake, table, batch) / parts.folder_of_run(run)) for table in whole)
        if found != rows:
            names = " and ".join(table.name for table in whole)
            raise RowsLostError(f"run {run}: {rows} rows in bronze, {found} in {names}")
    return [entry for table in tables for entry in parts.adopt(lake, table, batch, expected)]
