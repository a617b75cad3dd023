"""The rows that prove a verdict, as lines that a person can read: frames decoded, events as journaled. Read from bronze without Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from klamm.journal.columns import EVENTS, FRAMES, Direction
from klamm.pipeline.decode.frame_decoder import decode_frame
from klamm.pipeline.lake import manifest
from klamm.pipeline.lake import parquet_rows as plain
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


def evidence_lines(lake: Path, verdicts: Sequence[Verdict]) -> dict[Place, str]:
    """One line for each row that the verdicts name, where bronze has it."""
    wanted: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for verdict in verdicts:
        wanted[verdict.run_id] |= {(verdict.node_id, seq) for seq in (*verdict.evidence, verdict.seq)}
    lines: dict[Place, str] = {}
    for run, places in wanted.items():
        for row in _rows(lake, "bronze/frames", run, places, [column.name for column in FRAMES]):
            lines[run, row["node_id"], row["seq"]] = frame_line(row)
        for row in _rows(lake, "bronze/events", run, places, [column.name for column in EVENTS]):
            lines[run, row["node_id"], row["seq"]] = event_line(row)
    return lines


def _rows(lake: Path, table: str, run: str, places: Iterable[tuple[int, int]], columns: list[str]) -> list[dict[str, Any]]:
    wanted = set(places)
    rows = plain.rows_where(manifest.files(lake, table, [run]), {"seq": {seq for _, seq in wanted}}, columns)
    return [row for row in rows if (row["node_id"], row["seq"]) in wanted]


def frame_line(row: dict[str, Any]) -> str:
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
        f"seq {row['seq']}  {_WAYS[Direction(row['dir'])]}  connection {row['conn_id']}  {name} v{row['api_version']}  "
        f"correlation id {row['correlation_id']}  client {row['client_id']}  {text}{surplus}"
    )


def event_line(row: dict[str, Any]) -> str:
    """An event: its kind and what it says."""
    known = ("conn_id", "topic", "partition", "broker", "controller_epoch", "leader_epoch", "partition_epoch")
    columns = "  ".join(f"{name} {row[name]}" for name in known if row[name] is not None)
    texts = "  ".join(f"{name} {_short(row[name])}" for name in ("input", "output") if row[name] is not None)
    return "  ".join(part for part in (f"seq {row['seq']}  {row['kind']}", columns, texts) if part)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
