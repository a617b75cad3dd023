"""Finds the rows of journals that no rule can judge: rows that silver lacks, and frames in quarantine.

Rows are missing if their numbers have gaps, if a journal ended early, or if the end of a segment is torn.

Frames and events of a broker share one sequence of numbers in a run: 1, 2, 3, … So if the count of rows equals the greatest number, none is
missing. Only otherwise the numbers are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from klamm.journal.reading import early_ends
from klamm.journal.segments import node_folder
from klamm.pipeline.bronze import Commits
from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES, QUARANTINE

SHOWN = 20
"""Number of gaps of one broker that are named; one more line has the number of others."""


class Missing(NamedTuple):
    """Rows that a broker's journal of a run lacks."""

    run: str
    node: int
    first: int
    """The first `seq`."""
    last: int | None
    """The last `seq`; None if all later rows of a process are missing."""
    why: str | None = None

    @property
    def line(self) -> str:
        """For people."""
        rows = f"seq {self.first}" if self.last == self.first else f"seq {self.first} to {self.last}"
        what = f"seq {self.first} and what follows" if self.last is None else rows
        return f"run {self.run}, broker {self.node}: {what} missing{'' if self.why is None else f', {self.why}'}"


class Torn(NamedTuple):
    """A segment whose end is lost."""

    run: str
    segment: str
    why: str

    @property
    def line(self) -> str:
        """For people."""
        return f"run {self.run}: rows of {self.segment} are lost: {self.why}"


def torn_segments(lake: Path, runs: Collection[str]) -> list[Torn]:
    """The segments of these runs that lost their last rows, or all rows."""
    ends = [Torn(run, batch, why) for (run, batch), why in Commits(lake).torn.items()]
    return sorted(one for one in ends + empty_segments(lake) if one.run in runs)


def empty_segments(lake: Path) -> list[Torn]:
    """The segments of all runs that lost all their rows."""
    return [
        Torn(path.parent.parent.name.removeprefix("run="), f"{path.parent.name}/{path.name}", "it has no whole batch")
        for path in (lake / "journal").glob("run=*/node=*/*.torn")
    ]


def quarantined_rows(lake: Path, runs: Collection[str]) -> dict[str, int]:
    """Run → number of its frames in quarantine, for runs that have any."""
    counts = manifest.rows_by_run(lake, QUARANTINE.path)
    return {run: counts[run] for run in sorted(runs) if counts[run] > 0}


def missing_rows(lake: Path, runs: Collection[str], numbers_of: Callable[[str], Any] | None = None) -> list[Missing]:
    """The rows of these runs that silver lacks, by broker. `numbers_of` gives `node_id`, `process` and `seq` of the rows of a run that are
    there, or None without rows; by default those of silver."""
    found: list[Missing] = []
    for run in sorted(runs):
        numbers = _numbers(lake, run) if numbers_of is None else numbers_of(run)
        if numbers is None:
            continue
        totals = numbers.group_by(["node_id", "process"]).aggregate([("seq", "count"), ("seq", "min"), ("seq", "max")]).to_pylist()
        for node in sorted({each["node_id"] for each in totals}):
            parts = [each for each in totals if each["node_id"] == node]
            found += _gaps(run, node, numbers, sum(each["seq_count"] for each in parts), max(each["seq_max"] for each in parts))
            for process, reason in early_ends(node_folder(lake, run, node)).items():
                last = max((each["seq_max"] for each in parts if each["process"] <= process), default=0)
                found.append(Missing(run, node, last + 1, None, f"the journal of process {process} ended early: {reason}"))
    return found


def notes(missing: Iterable[Missing]) -> list[str]:
    """A line for each gap; if a broker has many, the first ones and the number of others."""
    lines: list[str] = []
    counts: dict[tuple[str, int], int] = {}
    for one in missing:
        counts[one.run, one.node] = count = counts.get((one.run, one.node), 0) + 1
        if count <= SHOWN or one.last is None:
            lines.append(one.line)
    more = (f"run {run}, broker {node}: {count - SHOWN} more gaps" for (run, node), count in counts.items() if count > SHOWN)
    return [*lines, *more]


def _numbers(lake: Path, run: str) -> Any:
    """Broker, process and `seq` of each row of a run; None if it has no rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = ["node_id", "process", "seq"]
    schema = pa.schema([("node_id", pa.int32()), ("process", pa.int32()), ("seq", pa.int64())])
    tables = [
        pq.ParquetFile(file).read(columns=columns).cast(schema)
        for table in (MESSAGES, QUARANTINE, EVENT_TABLE)
        for file in manifest.files(lake, table.path, {run})
    ]
    return pa.concat_tables(tables) if sum(table.num_rows for table in tables) else None


def _gaps(run: str, node: int, numbers: Any, count: int, greatest: int) -> list[Missing]:
    """The gaps in one broker's numbers."""
    import pyarrow.compute as pc

    if count == greatest:
        return []
    own = pc.unique(numbers.filter(pc.equal(numbers["node_id"], node))["seq"])
    ordered = own.take(pc.sort_indices(own)).to_pylist()
    return [Missing(run, node, a + 1, b - 1) for a, b in zip([0, *ordered], ordered, strict=False) if b > a + 1]
