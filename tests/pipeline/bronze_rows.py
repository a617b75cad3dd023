"""Journals as files of bronze without commits, for tests of what comes after bronze."""

from __future__ import annotations

from pathlib import Path

from klamm.journal.reading import segments
from klamm.pipeline.lake.bronze import convert
from klamm.pipeline.silver import Source


def bronze(lake: Path) -> list[Source]:
    """The files of bronze of all journals of a lake that have rows."""
    converted = [convert(lake, segment) for segment in segments(lake)]
    return [Source(one.table, one.run, one.path, one.rows) for one in converted if one.rows]
