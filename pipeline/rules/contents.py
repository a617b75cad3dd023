"""What a lake contains, according to the files of its tables. A rule without anything to look at is not planned."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.tables import HEADERS, MESSAGES, QUARANTINE, SILVER, rows_seen, seen_parts
from klamm.pipeline.lake.windows import Window
from klamm.pipeline.rules.record import Need

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_ROWS = 1_000_000
"""The most rows of a partition on average: to sort a million takes some hundred megabytes."""


class Contents:
    """Of the tables of silver, in some runs, or in what rules see with a window of a run."""

    def __init__(self, lake: Path, runs: Collection[str], empty: Collection[str], window: Window | None = None) -> None:
        self._lake = lake
        self._runs = runs
        self._window = window
        self.empty = frozenset(empty)
        """The views that have no row."""
        self._holds = cache(self._look)
        self._values = cache(self._distinct)

    @cached_property
    def rows(self) -> dict[str, int]:
        """View of silver → its rows."""
        rows = {table.name: rows_seen(self._lake, table, self._runs, self._window) for table in SILVER}
        return rows | {HEADERS: rows[MESSAGES.name] + rows[QUARANTINE.name]}

    def partitions(self) -> int:
        """The least number of partitions for its largest view."""
        return -(-max(self.rows.values()) // PARTITION_ROWS)

    def lacks(self, needs: Collection[Need]) -> bool:
        """None of them holds, and there are some."""
        return bool(needs) and not any(map(self._holds, needs))

    def _look(self, need: Need) -> bool:
        import pyarrow.compute as pc

        if not need.part:
            return not need.values.isdisjoint(self._values(need.table, need.column))
        return any(pc.any(pc.match_substring(column, need.part)).as_py() for column in self._columns(need.table, need.column))

    def _distinct(self, name: str, column: str) -> frozenset[str | int]:
        """The values of a column: it is read once, whatever is asked about it."""
        import pyarrow.compute as pc

        return frozenset(value for each in self._columns(name, column) for value in pc.unique(each).to_pylist())

    def _columns(self, name: str, column: str) -> Iterator[pa.ChunkedArray]:
        """A column of each file."""
        (table,) = (table for table in SILVER if table.name == name)
        for entry in seen_parts(self._lake, table, self._runs, self._window):
            for file in manifest.part_files(self._lake, entry):
                yield opened(file).read([column]).column(0)
