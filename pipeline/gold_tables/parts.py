"""The parts of gold's tables that are made at once, by whichever engine."""

from __future__ import annotations

from typing import NamedTuple

from klamm.pipeline.gold_tables.queries import OF_ROWS, SUMS, THAT_END
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.tables import Table
from klamm.pipeline.lake.windows import Window, WindowPart
from klamm.pipeline.rules.runner import Judgement

BATCH = "gold"
"""The batch of all parts: a run has one of each table. That of a final part has a number behind it."""


class GoldTask(NamedTuple):
    """What is judged at once: some runs as a whole, or one window of a run."""

    runs: tuple[str, ...]
    window: Window | None = None

    def parts(self, table: Table) -> list[WindowPart | None]:
        """The parts of a table that are made; None is the whole."""
        if self.window is None:
            return [None]
        if table in (*SUMS, *OF_ROWS, *THAT_END):
            return list(self.window.parts)
        return [None] if self.window.end is None else []


def batch_of(part: WindowPart | None) -> str:
    """The batch of a part."""
    return BATCH if part is None else part.batch(BATCH)


class Made(NamedTuple):
    """What a task has made: files that no log has yet, and verdicts."""

    entries: list[Entry]
    judgement: Judgement
