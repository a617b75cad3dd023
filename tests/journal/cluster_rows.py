"""The rows of a cluster's journal, and gaps in their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klamm.journal import reading


def rows(lake: Path, table: str) -> list[dict[str, Any]]:
    return [row for s in reading.segments(lake) if s.table == table for batch in reading.open_segment(s.path) for row in batch.to_pylist()]


def gaps(lake: Path) -> dict[int, int]:
    """For each broker, how many numbers are missing."""
    seqs: dict[int, list[int]] = {}
    for table in ("frames", "events"):
        for row in rows(lake, table):
            seqs.setdefault(row["node_id"], []).append(row["seq"])
    return {node: max(found) - len(found) for node, found in seqs.items() if len(set(found)) == len(found)}
