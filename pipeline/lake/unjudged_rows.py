"""Finds the rows of journals that no rule can judge: rows that silver lacks, and frames in quarantine.

Rows are missing if their numbers have gaps, if a journal ended early, or if the end of a segment is torn.

Frames and events of a broker share one sequence of numbers in a run: 1, 2, 3, … The numbers of one file at a time are read, and only the
bounds of what follows without a gap are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from klamm.journal.reading import early_ends
from klamm.journal.segments import node_folder
from klamm.pipeline.bronze import Commits
from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES, QUARANTINE

SHOWN = 20
"""Number of gaps of one broker that are named; one more line has the number of others."""


Span = tuple[int, int]
"""The first and the last of numbers that follow each other."""


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


def missing_rows(lake: Path, runs: Collection[str], numbers_of: Callable[[str], Iterable[Any]] | None = None) -> list[Missing]:
    """The rows of these runs that silver lacks, by broker. `numbers_of` gives Arrow tables with `node_id`, `process` and `seq` of the rows
    of a run that are there; by default those of silver."""
    found: list[Missing] = []
    for run in sorted(runs):
        present: dict[int, dict[int, list[Span]]] = {}
        for numbers in _numbers(lake, run) if numbers_of is None else numbers_of(run):
            for node, process, spans in _spans(numbers):
                present.setdefault(node, {}).setdefault(process, []).extend(spans)
        for node in sorted(present):
            spans = sorted(span for each in present[node].values() for span in each)
            found += [Missing(run, node, first, last) for first, last in _gaps(spans)]
            for process, reason in early_ends(node_folder(lake, run, node)).items():
                last = max((span[1] for earlier, each in present[node].items() if earlier <= process for span in each), default=0)
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


def _numbers(lake: Path, run: str) -> Iterator[Any]:
    """Broker, process and `seq` of the rows of a run, one file at a time."""
    import pyarrow.parquet as pq

    for table in (MESSAGES, QUARANTINE, EVENT_TABLE):
        for file in manifest.files(lake, table.path, {run}):
            yield pq.ParquetFile(file).read(columns=["node_id", "process", "seq"])


def _spans(numbers: Any) -> Iterator[tuple[int, int, list[Span]]]:
    """Broker, process, and the numbers of their rows, as spans without a gap."""
    import pyarrow.compute as pc

    for owner in numbers.group_by(["node_id", "process"]).aggregate([]).to_pylist():
        node, process = owner["node_id"], owner["process"]
        own = numbers.filter(pc.and_(pc.equal(numbers["node_id"], node), pc.equal(numbers["process"], process)))["seq"].combine_chunks()
        ordered = own.take(pc.sort_indices(own))
        steps = pc.subtract(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
        ends = [*pc.indices_nonzero(pc.greater(steps, 1)).to_pylist(), len(ordered) - 1]
        firsts = [0, *(end + 1 for end in ends[:-1])]
        yield node, process, list(zip(ordered.take(firsts).to_pylist(), ordered.take(ends).to_pylist(), strict=True))


def _gaps(spans: Iterable[Span]) -> list[Span]:
    """What no span has, from 1 on, up to the last one. `spans` are sorted."""
    found, reached = [], 0
    for first, last in spans:
        if first > reached + 1:
            found.append((reached + 1, first - 1))
        reached = max(reached, last)
    return found
