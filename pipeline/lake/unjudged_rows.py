"""Finds the rows of journals that no rule can judge: rows that silver lacks, and frames in quarantine.

Rows are missing if their numbers have gaps, if a journal ended early, or if the end of a segment is torn.

Frames and events of a broker share one sequence of numbers in a run: 1, 2, 3, … The commits of bronze have the numbers of their rows. Only
for those of an older Klamm they are read from silver, one file at a time. Numbers up to which retention removed rows are not missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from klamm.journal.reading import early_ends, retained_to
from klamm.journal.segments import node_folder
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.bronze import empty_files
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.journal_copy import with_journal
from klamm.pipeline.lake.parquet_files import opened
from klamm.pipeline.lake.row_numbers import Span, gaps, merged, spans_by_node
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES, QUARANTINE

if TYPE_CHECKING:
    import pyarrow as pa

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


def torn_segments(lake: Lake, runs: Collection[str]) -> list[Torn]:
    """The segments of these runs that lost their last rows, or all rows."""
    ends = [Torn(run, batch, why) for (run, batch), why in Commits(lake).torn.items()]
    return sorted(one for one in ends + empty_segments(lake) if one.run in runs)


def empty_segments(lake: Lake) -> list[Torn]:
    """The segments of all runs that lost all their rows."""
    with_journal(lake, lambda _: False)
    return [
        Torn(path.parent.parent.name.removeprefix("run="), f"{path.parent.name}/{path.name}", "it has no whole batch")
        for path in empty_files(lake)
    ]


def quarantined_rows(lake: Lake, runs: Collection[str]) -> dict[str, int]:
    """Run → number of its frames in quarantine, for runs that have any."""
    counts = delta_log.rows_by_run(lake, QUARANTINE.path)
    return {run: counts[run] for run in sorted(runs) if counts[run] > 0}


def missing_rows(lake: Lake, runs: Collection[str], numbers_of: Callable[[str], Iterable[pa.Table]] | None = None) -> list[Missing]:
    """The rows of these runs that silver lacks, by broker. `numbers_of` gives Arrow tables with `node_id`, `process` and `seq` of the rows
    of a run that are there; by default they are those that are committed."""
    found: list[Missing] = []
    commits = Commits(lake) if numbers_of is None else None
    here = with_journal(lake, lambda _: False)
    for run in sorted(runs):
        present = _committed(commits, run) if commits is not None else None
        if present is None:
            present = numbers_by_node(silver_numbers(lake, run) if numbers_of is None else numbers_of(run))
        for node, spans in sorted(present.items()):
            folder = node_folder(here, run, node)
            found += [Missing(run, node, first, last) for first, last in gaps(spans, retained_to(folder))]
            for process, reason in early_ends(folder).items():
                last = max((span.last for span in spans if span.process <= process), default=0)
                found.append(Missing(run, node, last + 1, None, f"the journal of process {process} ended early: {reason}"))
    return found


def _committed(commits: Commits, run: str) -> dict[int, list[Span]] | None:
    """The numbers of a run by node; None if a commit lacks them."""
    journals = {node: one for (each, node), one in commits.journals.items() if each == run}
    return {node: one.spans for node, one in journals.items()} if journals and all(one.has_all_spans for one in journals.values()) else None


def numbers_by_node(tables: Iterable[pa.Table]) -> dict[int, list[Span]]:
    """Node → the numbers of its rows, of Arrow tables with `node_id`, `process` and `seq`."""
    found: dict[int, list[Span]] = {}
    for table in tables:
        for node, spans in spans_by_node(table):
            found[node] = merged([*found.get(node, ()), *spans])
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


def lines(missing: Iterable[Missing], torn: Iterable[Torn]) -> list[str]:
    """A line for each gap and each segment whose end is lost."""
    return [*notes(missing), *(one.line for one in torn)]


def silver_numbers(lake: Lake, run: str) -> Iterator[pa.Table]:
    """Broker, process and `seq` of the rows of a run, one file at a time."""
    for table in (MESSAGES, QUARANTINE, EVENT_TABLE):
        for file in delta_log.files(lake, table.path, {run}):
            yield opened(file).read(columns=["node_id", "process", "seq"])
