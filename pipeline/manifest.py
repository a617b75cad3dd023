"""The manifests of the lake: which folders and files are parts of a table.

Each table has a file `_manifest.jsonl`, one JSON object a line, written after the files that it names. A folder without a line is what a
killed run left; a second line for the same run and batch replaces the first, so a batch that is written again counts once. A torn last
line is ignored: its batch is written again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

NAME = "_manifest.jsonl"


class Entry(NamedTuple):
    """A part of a table: `path` is a folder or a file, relative to the lake; `table` is as `silver/messages`."""

    table: str
    run: str
    batch: str
    path: str
    rows: int


def append(lake: Path, entries: Sequence[Entry]) -> None:
    """Add parts to their tables. All their files are complete."""
    by_table: dict[str, list[Entry]] = {}
    for entry in entries:
        by_table.setdefault(entry.table, []).append(entry)
    for table, added in by_table.items():
        (lake / table).mkdir(parents=True, exist_ok=True)
        with (lake / table / NAME).open("a+b") as file:
            torn = b""
            if file.tell() > 0:
                file.seek(-1, 2)
                torn = b"" if file.read(1) == b"\n" else b"\n"
            file.write(torn + b"".join(json.dumps(entry._asdict()).encode() + b"\n" for entry in added))


def entries(lake: Path, table: str, runs: Collection[str] | None = None) -> list[Entry]:
    """The parts of a table, in the order of their last writing; only of these runs, where some are given."""
    path = lake / table / NAME
    latest: dict[tuple[str, str], Entry] = {}
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            entry = Entry(**json.loads(line))
        except (ValueError, TypeError):
            continue
        latest.pop((entry.run, entry.batch), None)
        latest[entry.run, entry.batch] = entry
    return [entry for entry in latest.values() if runs is None or entry.run in runs]
