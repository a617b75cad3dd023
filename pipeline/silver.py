"""Bronze to silver: decodes a batch of frames once and writes all tables that it fills.

A batch is one micro-batch of the stream, with rows of one or more runs. Each table gets a folder `run=<id>/batch=<id>`, and then a line in
its manifest. A batch that was interrupted comes again, and its folders are replaced.
There is one job for frames and one for events, because planning and starting a job takes longer than the rows of a small table: Spark
writes the messages, and the workers that decode write everything else (`silver_files.py`). No row may get lost: the files of messages and
quarantine must have as many rows together as bronze has frames.
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

Counts = Mapping[str, int]
"""Run → rows."""


class RowsLostError(PipelineFailed):
    """Silver has fewer rows than bronze, or more."""


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
    """Write one batch of bronze rows to all tables of silver; returns the new entries of the manifests.

    `frames` and `events` are DataFrames with the columns of bronze; either may be None. Without `variant` bodies are JSON in the column
    `body_json`. `expected` is the number of rows of each run in the two, if the caller knows it; otherwise they are counted. Raises
    RowsLostError.
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
    messages = decodable.selectExpr(*names, body, "bytes_left", "err", "error_code", "errors", "throttle_ms")
    parts.write(lake, MESSAGES, messages, batch, list(expected))
    return _adopted(lake, tables, (MESSAGES, QUARANTINE), batch, expected)


def _build_from_events(lake: Path, events: Any, batch: str, expected: Counts | None) -> list[Entry]:
    expected = _counted(events) if expected is None else expected
    parts.clear(lake, FROM_EVENTS, batch)
    events.select(*(column.name for column in EVENTS)).mapInArrow(partial(write_events, str(lake), batch), WRITTEN).collect()
    return _adopted(lake, FROM_EVENTS, (EVENT_TABLE,), batch, expected)


def _counted(rows: Any) -> dict[str, int]:
    return {row["run_id"]: row["count"] for row in rows.groupBy("run_id").count().collect()}


def _adopted(lake: Path, tables: tuple[Table, ...], whole: tuple[Table, ...], batch: str, expected: Counts) -> list[Entry]:
    """Move the parts to their places, if the tables `whole` together have all rows that came in."""
    for run, rows in expected.items():
        found = sum(manifest.rows_on_disk(parts.stage(lake, table, batch) / parts.folder_of_run(run)) for table in whole)
        if found != rows:
            names = " and ".join(table.name for table in whole)
            raise RowsLostError(f"run {run}: {rows} rows in bronze, {found} in {names}")
    return [entry for table in tables for entry in parts.adopt(lake, table, batch, expected)]
