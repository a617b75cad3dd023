"""The rows that prove a verdict, as lines that a person can read: frames decoded, events as journaled. Read without Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from klamm.journal.columns import Direction
from klamm.journal.segments import TABLES
from klamm.pipeline.decode.frame_decoder import decode_frame
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake import parquet_files as plain
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.rules.runner import Verdict
from klamm.protocol.apis import APIS

LONGEST = 400
"""Characters of a body that are shown."""

Place = tuple[str, int, int]
"""Run id, node id, seq."""

_WAYS = {
    Direction.REQUEST_IN: "request in",
    Direction.RESPONSE_OUT: "response out",
    Direction.REQUEST_OUT: "request out",
    Direction.RESPONSE_IN: "response in",
}


Wanted = Mapping[str, Collection[tuple[int, int]]]
"""Run id → (node id, seq) of rows."""

RowsOf = Callable[[str, Wanted], Iterable[Mapping[str, Any]]]
"""Rows of a table of the journal, `frames` or `events`, those that are wanted."""


def evidence_lines(verdicts: Sequence[Verdict], rows_of: RowsOf) -> dict[Place, str]:
    """One line for each row that the verdicts name and that is there."""
    wanted: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for verdict in verdicts:
        wanted[verdict.run_id] |= {*verdict.evidence, (verdict.node_id, verdict.seq)}
    kinds = (("frames", frame_line), ("events", event_line))
    return {(row["run_id"], row["node_id"], row["seq"]): line(row) for table, line in kinds for row in rows_of(table, wanted)}


def bronze_rows(lake: Lake) -> RowsOf:
    """The rows of the tables of bronze."""

    def rows_of(table: str, wanted: Wanted) -> Iterator[Mapping[str, Any]]:
        columns = [column.name for column in TABLES[table]]
        for run, places in wanted.items():
            numbers = {seq for _, seq in places}
            rows = plain.rows_where(delta_log.files(lake, f"bronze/{table}", [run]), {"seq": numbers}, columns)
            yield from (row for row in rows if (row["node_id"], row["seq"]) in places)

    return rows_of


def frame_line(row: Mapping[str, Any]) -> str:
    """A frame: where it went, its API, its body or its bytes."""
    api = APIS.get(row["api_key"])
    name = api.name if api is not None else f"key {row['api_key']}"
    body, left, reason, detail = decode_frame(row["dir"], row["api_key"], row["api_version"], row["flags"], row["frame"])
    if reason is not None:
        text = f"{reason}: {detail}  {row['frame'][:64].hex()}"
    elif body is None:
        text = row["frame"].hex()
    else:
        text = _short(json.dumps(body, separators=(",", ":"), ensure_ascii=False, default=str))
    surplus = f"  {left} bytes over" if left else ""
    return (
        f"{_WAYS[Direction(row['dir'])]}  connection {row['conn_id']}  {name} v{row['api_version']}  "
        f"correlation id {row['correlation_id']}  client {row['client_id']}  {text}{surplus}"
    )


def event_line(row: Mapping[str, Any]) -> str:
    """An event: its kind and what it says."""
    known = ("conn_id", "topic", "partition", "broker", "controller_epoch", "leader_epoch", "partition_epoch")
    columns = "  ".join(f"{name} {row[name]}" for name in known if row[name] is not None)
    texts = "  ".join(f"{name} {_short(row[name])}" for name in ("input", "output") if row[name] is not None)
    return "  ".join(part for part in (row["kind"], columns, texts) if part)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
