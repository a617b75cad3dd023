"""What a lake contains, according to the files of its tables, and what the journals of a run show.

A rule without anything to look at is not planned. A rule that needs what the journals do not show is *not applicable* in the run, which is
not *passed*: those of Klamm's brokers show all of it, those of `klamm proxy` and of captures have frames of clients alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING

from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.spark_views import rows_seen, seen_parts
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import HEADERS, MESSAGES, QUARANTINE, SILVER
from klamm.pipeline.lake.windows import Window
from klamm.pipeline.rules.record import Need, View

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_ROWS = 1_000_000
"""The most rows of a partition on average: to sort a million takes some hundred megabytes."""


class Contents:
    """Of the tables of silver, in some runs, or in what rules see with a window of a run."""

    def __init__(self, lake: Lake, runs: Collection[str], empty: Collection[str], window: Window | None = None) -> None:
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
            yield opened(Store(self._lake).address(entry.path)).read([column]).column(0)


class Input(StrEnum):
    """A part of what journals may show."""

    CLIENTS = "frames of clients"
    BROKERS = "frames between brokers"
    CONTROLLER = "events of the controller"
    EXTRAS = "events of brokers"
    SEVERAL = "journals of several brokers"


_C, _B, _D, _E, _S = ((each,) for each in Input)
_TOLD = (Input.BROKERS, Input.CONTROLLER, Input.EXTRAS)
"""What a broker was told is known, or its journal shows that it was told nothing."""

_NEEDS: dict[str, tuple[tuple[Input, ...], ...]] = {
    "W": (), "X": (_C,), "K": (_C,), "P": (_C,), "F": (_C,), "M": (_C,), "O": (_C,), "V": (_C,), "G": (_C,), "T": (_C,), "E": (_C,),
    "L": (_C, _B), "C": (_B,), "D": (_D,), "B": (_D,), "R": (_D,),
    "W-13": (_B, _S), "C-05": (_TOLD,), "C-09": (_D,), "C-14": (_TOLD,), "C-16": (_C, _TOLD), "C-23": (_C, _TOLD), "C-24": (_C, _TOLD),
    "C-25": (_B, _S), "E-01": (_C, _TOLD), "E-04": (_C, _TOLD), "L-04": (_C,), "R-04": (_TOLD,), "T-01": (_B,), "T-02": (_B,),
    "T-06": (_D,),
}
"""Rule, or the letter of its family → its inputs; of several in one place one is enough."""

_OF_CONNECTIONS = "'conn_open', 'conn_close', 'authenticated'"
_OF_BROKERS = "'broker_started', 'broker_stopped', 'advertised'"

SEEN_INPUTS = View(
    "seen_inputs",
    ("frame_counts", "peers", "events"),
    f"""
SELECT DISTINCT run_id, input FROM (
    SELECT run_id, if(dir IN (0, 1), '{Input.CLIENTS}', '{Input.BROKERS}') AS input FROM frame_counts
    UNION ALL SELECT run_id, '{Input.BROKERS}' FROM peers WHERE is_broker
    UNION ALL SELECT run_id, if(kind IN ({_OF_BROKERS}), '{Input.EXTRAS}', '{Input.CONTROLLER}') FROM events
    WHERE kind NOT IN ({_OF_CONNECTIONS})
    UNION ALL SELECT run_id, '{Input.SEVERAL}' FROM (SELECT run_id, node_id FROM frame_counts UNION SELECT run_id, node_id FROM events)
    GROUP BY run_id HAVING count(DISTINCT node_id) > 1)""",
)
"""The inputs that each run has."""

VIEWS = (SEEN_INPUTS,)

Seen = Mapping[str, frozenset[str]]
"""Run → its inputs."""


def needed_inputs(rule: str) -> tuple[str, ...]:
    """What a rule needs, in words; empty if any frames are enough."""
    return tuple(" or ".join(some) for some in _needs(rule))


def lacking(rule: str, seen: frozenset[str]) -> str:
    """What a run lacks for a rule, in words; empty if the rule is applicable."""
    return ", ".join(" or ".join(some) for some in _needs(rule) if seen.isdisjoint(some))


def _needs(rule: str) -> tuple[tuple[Input, ...], ...]:
    return _NEEDS.get(rule, _NEEDS.get(rule.partition("-")[0], ()))


def seen_of(rows: Iterable[tuple[str, str]]) -> Seen:
    """The rows of SEEN_INPUTS: run and input."""
    found: dict[str, set[str]] = {}
    for run, name in rows:
        found.setdefault(run, set()).add(name)
    return {run: frozenset(names) for run, names in found.items()}
