"""Bronze to silver: decodes a batch of frames once and writes all tables that come of it.

A batch is what one micro-batch of the stream brings, of one run or of many. Each table gets a folder `run=<id>/batch=<id>`, which is
overwritten when the same batch comes again, and then one line in its manifest; so a batch that was interrupted is simply written again.
The decoded rows are kept in Spark's cache while the tables are written, because decoding costs more than all the rest; the tables are
written side by side, because planning and committing a small one takes longer than its rows do. Rows in are rows out: the frames of bronze
are counted against messages and quarantine, and a difference is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from klamm.journal.columns import EVENTS
from klamm.pipeline import manifest
from klamm.pipeline.decode_batches import DECODED, INPUT, LISTS, decode_batches
from klamm.pipeline.manifest import Entry
from klamm.pipeline.tables import (
    API_ERRORS,
    BROKER_STATE,
    DECISIONS,
    EVENT_TABLE,
    HEADER,
    MESSAGES,
    PARTITION_STATE,
    QUARANTINE,
    REASSIGN,
    SIZES,
    Table,
)

_ESCAPED = frozenset('"#%\'*/:=?\\{[]^\x7f') | frozenset(map(chr, range(1, 32)))
"""What Spark escapes in the name of a partition's folder."""

REASSIGN_KINDS = ("reassign_phase", "assignment", "throttle_step", "throttle_set", "throttle_removed")

AT_ONCE = 4
"""Tables that are written at the same time."""

Select = Callable[[Any], Any]


class RowsLostError(Exception):
    """Frames of bronze are neither in messages nor in quarantine, or there are more than there were."""


def build_silver(spark: Any, lake: Path, frames: Any, events: Any, batch_id: int | str, *, variant: bool = True) -> list[Entry]:
    """Write one batch of bronze rows to all tables of silver; the entries that the manifests got.

    `frames` and `events` are DataFrames with the columns of bronze; either may be None. Without `variant` bodies are JSON in the column
    `body_json`. Raises RowsLostError.
    """
    parts: list[Callable[[], list[Entry]]] = []
    if frames is not None:
        parts.append(lambda: _build_from_frames(lake, frames, str(batch_id), variant))
    if events is not None:
        parts.append(lambda: _build_from_events(lake, events, str(batch_id)))
    entries = at_once(parts)
    manifest.append(lake, entries)
    return entries


def at_once(parts: Sequence[Callable[[], list[Entry]]]) -> list[Entry]:
    """Write parts of tables at the same time; the entries of all, in order. The first error is raised when all have ended."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [entry for entries in pool.map(lambda part: part(), parts) for entry in entries]


def decode(frames: Any) -> Any:
    """The frames of bronze, decoded: rows of the schema `DECODED`."""
    return frames.select(*INPUT).mapInArrow(decode_batches, DECODED)


def _build_from_frames(lake: Path, frames: Any, batch: str, variant: bool) -> list[Entry]:
    decoded = decode(frames).cache()
    try:
        with ThreadPoolExecutor(1) as pool:
            expected = pool.submit(frames.groupBy("run_id").count().collect)
            counts = {row["run_id"]: row for row in decoded.groupBy("run_id").agg(*_counts()).collect()}
            _check_counts(expected.result(), counts)
        return at_once([
            partial(write_parts, lake, table, select(decoded), batch, rows)
            for table, select in _from_frames(variant).items()
            if (rows := {run: row[table.name] for run, row in counts.items() if row[table.name] > 0})
        ])
    finally:
        decoded.unpersist()


def _counts() -> list[Any]:
    """How many rows each table gets."""
    from pyspark.sql import functions as F

    counted = {
        MESSAGES: "count_if(reason IS NULL)",
        QUARANTINE: "count_if(reason IS NOT NULL)",
        PARTITION_STATE: "sum(size(states))",
        BROKER_STATE: "sum(size(brokers))",
        API_ERRORS: "sum(size(codes))",
    }
    return [F.expr(f"{text} AS {table.name}") for table, text in counted.items()]


def _check_counts(expected: Sequence[Any], counts: dict[str, Any]) -> None:
    """Every frame is in one of the two tables."""
    for row in expected:
        found = counts.get(row["run_id"])
        out = 0 if found is None else found["messages"] + found["quarantine"]
        if out != row["count"]:
            raise RowsLostError(f"run {row['run_id']}: {row['count']} frames in bronze, {out} in messages and quarantine")


def _from_frames(variant: bool) -> dict[Table, Select]:
    """Table → its rows from decoded ones."""
    header = [column.name for column in (*HEADER, *SIZES)]
    body = "parse_json(body_json) AS body" if variant else "body_json"
    return {
        MESSAGES: lambda rows: rows.where("reason IS NULL").selectExpr(*header, body, "left", "err", "error_code", "errors"),
        QUARANTINE: lambda rows: rows.where("reason IS NOT NULL").selectExpr(*header, "reason", "detail", "left", "frame"),
        PARTITION_STATE: lambda rows: _exploded(rows, PARTITION_STATE, "states"),
        BROKER_STATE: lambda rows: _exploded(rows, BROKER_STATE, "brokers"),
        API_ERRORS: lambda rows: _exploded(rows, API_ERRORS, "codes"),
    }


def _exploded(rows: Any, table: Table, column: str) -> Any:
    """A row for each structure in a list, with the columns of its frame."""
    own = {field.name for field in LISTS[column]}
    place = [name for name in table.names if name not in own]
    frame = ["CASE WHEN dir IN (1, 3) THEN cause_seq END AS request_seq" if name == "request_seq" else name for name in place]
    flat = rows.where(f"size({column}) > 0").selectExpr(*frame, f"explode({column}) AS one")
    return flat.selectExpr(*(f"one.{name} AS {name}" if name in own else name for name in table.names))


def _build_from_events(lake: Path, events: Any, batch: str) -> list[Entry]:
    kinds = ", ".join(f"'{kind}'" for kind in REASSIGN_KINDS)
    counts = events.groupBy("run_id").agg(*_event_counts(kinds)).collect()
    tables: dict[Table, Select] = {EVENT_TABLE: _events, DECISIONS: _decisions, REASSIGN: lambda rows: _reassign(rows, kinds)}
    return at_once([
        partial(write_parts, lake, table, select(events), batch, rows)
        for table, select in tables.items()
        if (rows := {row["run_id"]: row[table.name] for row in counts if row[table.name] > 0})
    ])


def _event_counts(kinds: str) -> list[Any]:
    from pyspark.sql import functions as F

    return [
        F.expr(f"count(*) AS {EVENT_TABLE.name}"),
        F.expr(f"count_if(kind = 'decision') AS {DECISIONS.name}"),
        F.expr(f"count_if(kind IN ({kinds})) AS {REASSIGN.name}"),
    ]


def _events(rows: Any) -> Any:
    return rows.select(*(column.name for column in EVENTS))


def _decisions(rows: Any) -> Any:
    own = {
        "rule": "coalesce(get_json_object(input, '$.rule.name'), '') AS rule",
        "partition_count": "coalesce(json_array_length(get_json_object(input, '$.partitions')), 0) AS partition_count",
        "partitions": "get_json_object(input, '$.partitions') AS partitions",
        "input": "coalesce(input, '') AS input",
    }
    return rows.where("kind = 'decision'").selectExpr(*(own.get(name, name) for name in DECISIONS.names))


def _reassign(rows: Any, kinds: str) -> Any:
    ids = "from_json(get_json_object(output, '$.{0}'), 'array<int>') AS {0}"
    own = {
        "phase": "get_json_object(output, '$.phase') AS phase",
        "step": "try_cast(get_json_object(output, '$.step') AS BIGINT) AS step",
        "request": "get_json_object(output, '$.request') AS request",
        **{name: ids.format(name) for name in ("replicas", "adding", "removing")},
    }
    return rows.where(f"kind IN ({kinds})").selectExpr(*(own.get(name, name) for name in REASSIGN.names))


def write_parts(lake: Path, table: Table, rows: Any, batch: str, counts: dict[str, int]) -> list[Entry]:
    """Write the rows of a table below `run=…/batch=…`, in place of what this batch wrote before; the entries for the manifest."""
    from pyspark.sql import functions as F

    marked = rows.withColumn("run", F.col("run_id")).withColumn("batch", F.lit(batch))
    writer = marked.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
    writer.partitionBy("run", "batch").parquet(str(lake / table.path))
    return [Entry(table.path, run, batch, part_path(table, run, batch), count) for run, count in sorted(counts.items())]


def part_path(table: Table, run: str, batch: str) -> str:
    """The folder of a batch, relative to the lake, named as Spark names it."""
    return f"{table.path}/run={_escaped(run)}/batch={_escaped(batch)}"


def _escaped(name: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in name)
