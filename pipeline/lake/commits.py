"""The commits of bronze: which segments became valid together, and which rows of each journal are committed.

A commit is a file in `bronze/commits`; what makes silver reads these files and never looks for Parquet files. When silver has the rows
of commits they are folded: `bronze/committed.json` then says of each journal which numbers are committed, and the files are deleted. So
a journal that never ends does not cost more each day.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from klamm.journal.segments import segment_number
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.bronze import Converted
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import FROM_JOURNAL, Lake, PipelineFailed
from klamm.pipeline.lake.row_numbers import Span, has, merged
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import BRONZE

COMMITS = "bronze/commits"
COMMITTED = "bronze/committed.json"
COMMIT_ROWS = 4_000_000
"""Approximate number of rows of a commit."""

PURGED = (
    "another version of Klamm made the tables of {}, and bronze was purged: they cannot be made again from bronze. "
    f"Move bronze, silver, gold and _checkpoints away and repeat `klamm pipeline run`: {FROM_JOURNAL}"
)

_DAMAGED = f"is damaged; move bronze, silver, gold and _checkpoints away and repeat `klamm pipeline run`: {FROM_JOURNAL}"

Journal = tuple[str, int]
"""Run, node."""


@dataclass
class Committed:
    """What is committed of a broker's journal in a run."""

    spans: list[Span] = field(default_factory=list)
    """The numbers of the rows, as far as commits have them."""
    has_all_spans: bool = True
    """False if a commit of an older Klamm, or one with very many spans, has no numbers and is not folded."""
    segments: set[str] = field(default_factory=set)
    """Names of segments that are not folded, or whose first number is in no span."""
    torn: dict[str, str] = field(default_factory=dict)
    """Names of segments that lost rows at their end → why."""

    def has(self, segment: str) -> bool:
        """Whether a segment with this name is committed."""
        number = segment_number(segment)
        return segment in self.segments or (number is not None and has(self.spans, number))


class Commit(NamedTuple):
    """A commit that is not folded."""

    number: int
    name: str
    store: Store

    def lines(self) -> list[dict[str, Any]]:
        """Its segments. Raises PipelineFailed."""
        try:
            return [json.loads(line) for line in (self.store.read(self.name) or b"").splitlines()]
        except ValueError as problem:
            raise PipelineFailed(f"{self.store.address(self.name)} {_DAMAGED}") from problem


def waiting(lake: Lake, behind: int = -1) -> list[Commit]:
    """The commits with greater numbers than `behind`, in order."""
    store = Store(lake)
    found = ((name.removeprefix(f"{COMMITS}/").removesuffix(".json"), name) for name in store.names(COMMITS, ".json"))
    return [Commit(int(number), name, store) for number, name in found if number.isdigit() and int(number) > behind]


class Commits:
    """The commits of bronze. `(run, batch) in commits` says whether a segment is committed."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._store = Store(lake)
        self.journals: dict[Journal, Committed] = {}
        self.rows = {"frames": 0, "events": 0}
        """The rows that silver must have."""
        self.added = 0
        """Number of segments that `add` committed."""
        self.last = -1
        """Number of the last commit."""
        self._stamp: str | None = None
        self._read_folded()
        for commit in waiting(lake, self.last):
            self.last = commit.number
            self._count(commit.lines())

    def __contains__(self, segment: object) -> bool:
        if not isinstance(segment, tuple):
            return False
        run, batch = segment
        node, name = _parts(batch)
        committed = self.journals.get((run, node))
        return committed is not None and committed.has(name)

    @property
    def is_folded(self) -> bool:
        """No commit waits for being folded."""
        return not waiting(self._lake)

    @property
    def runs(self) -> set[str]:
        """The runs that have a committed segment."""
        return {run for run, _ in self.journals}

    @property
    def torn(self) -> dict[tuple[str, str], str]:
        """(run, batch) of segments that lost rows at their end → why."""
        journals = self.journals.items()
        return {(run, f"node={node}/{name}"): why for (run, node), one in journals for name, why in one.torn.items()}

    def add(self, converted: Sequence[Converted]) -> None:
        """Make segments valid: first their files in the logs of bronze, then commits of about COMMIT_ROWS rows each."""
        new = [one for one in converted if (one.run, one.batch) not in self]
        delta_log.append(self._lake, BRONZE, [one.entry for one in new])
        self._commit(new)
        self.added += len(new)

    def fold(self, spans_of: Callable[[str], Mapping[int, Sequence[Span]]]) -> None:
        """Put all commits into `committed.json` and delete their files. Silver has their rows.

        `spans_of` reads the numbers of the rows of a run by node; it is called for runs whose commits lack them.
        """
        files = waiting(self._lake)
        if not files:
            return
        for run in sorted({run for (run, _), one in self.journals.items() if not one.has_all_spans}):
            by_node = spans_of(run)
            for (each, node), one in self.journals.items():
                if each == run:
                    one.spans, one.has_all_spans = merged(by_node.get(node, ())), True
        for one in self.journals.values():
            one.segments = {name for name in one.segments if (number := segment_number(name)) is None or not has(one.spans, number)}
        self._write_folded()
        for commit in files:
            self._store.delete(commit.name)

    def begin_again(self) -> None:
        """Commit all segments of bronze again, for a stream from the beginning. Raises PipelineFailed if bronze was purged."""
        if not self.journals:
            return
        entries = [entry for table in self.rows for entry in delta_log.entries(self._lake, f"bronze/{table}")]
        entries = [entry for entry in entries if (entry.run, entry.batch) in self]
        for table, rows in self.rows.items():
            if sum(entry.rows for entry in entries if entry.table == f"bronze/{table}") < rows:
                raise PipelineFailed(PURGED.format(self._lake))
        files = waiting(self._lake)
        self.rows = dict.fromkeys(self.rows, 0)
        self._write_folded()
        for commit in files:
            self._store.delete(commit.name)
        self._commit([_of(entry) for entry in entries], with_numbers=False)

    def forget(self, runs: Iterable[str], rows: Mapping[str, int]) -> None:
        """Forget these runs, which retention removes; silver must have `rows` afterwards. All commits are folded."""
        if not self.journals:
            return
        gone = set(runs)
        self.journals = {journal: one for journal, one in self.journals.items() if journal[0] not in gone}
        self.rows = dict(rows)
        self._write_folded()

    def _commit(self, converted: Sequence[Converted], *, with_numbers: bool = True) -> None:
        chunk: list[Converted] = []
        rows = 0
        for one in sorted(converted, key=lambda one: (one.run, one.batch.partition("-")[2], one.batch)):
            chunk.append(one)
            rows += one.rows
            if rows >= COMMIT_ROWS:
                self._write(chunk, with_numbers)
                chunk, rows = [], 0
        if chunk:
            self._write(chunk, with_numbers)

    def _write(self, chunk: Sequence[Converted], with_numbers: bool) -> None:
        rows = list(_lines(chunk, with_numbers))
        name = f"{COMMITS}/{self.last + 1:010d}.json"
        if not self._store.put_new(name, "".join(json.dumps(row) + "\n" for row in rows).encode()):
            raise PipelineFailed(f"{self._store.address(name)} is there already: another process of the pipeline works on the lake")
        self.last += 1
        self._count(rows)

    def _count(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the lines of one commit."""
        counted = set()
        for row in rows:
            node, name = _parts(row["batch"])
            committed = self.journals.setdefault((row["run"], node), Committed())
            committed.segments.add(name)
            self.rows[row["table"]] += row["rows"]
            if row.get("torn") is not None:
                committed.torn[name] = row["torn"]
            if "spans" in row:
                counted.add((row["run"], node))
                committed.spans = merged([*committed.spans, *(Span(*span) for span in row["spans"])])
        for run, node in {(row["run"], _parts(row["batch"])[0]) for row in rows} - counted:
            self.journals[run, node].has_all_spans = False

    def _read_folded(self) -> None:
        found = self._store.stamped(COMMITTED)
        if found is None:
            return
        content, self._stamp = found
        try:
            folded = json.loads(content)
        except ValueError as problem:
            raise PipelineFailed(f"{self._store.address(COMMITTED)} {_DAMAGED}") from problem
        self.last, self.rows = folded["last"], folded["rows"]
        for one in folded["journals"]:
            self.journals[one["run"], one["node"]] = Committed(
                [Span(*span) for span in one["spans"]], one.get("has_all_spans", True), set(one.get("segments", ())), one.get("torn", {})
            )

    def _write_folded(self) -> None:
        journals = [
            {"run": run, "node": node, "spans": one.spans}
            | ({} if one.has_all_spans else {"has_all_spans": False})
            | ({"segments": sorted(one.segments)} if one.segments else {})
            | ({"torn": one.torn} if one.torn else {})
            for (run, node), one in sorted(self.journals.items())
        ]
        folded = json.dumps({"last": self.last, "rows": self.rows, "journals": journals}).encode()
        self._stamp = self._store.put_over(COMMITTED, folded, self._stamp)


def _lines(chunk: Sequence[Converted], with_numbers: bool) -> Iterator[dict[str, Any]]:
    """The lines of a commit. The first line of each journal has the numbers of all its segments, if they are known."""
    by_journal: dict[tuple[str, int], list[Converted]] = {}
    for one in chunk:
        by_journal.setdefault((one.run, _parts(one.batch)[0]), []).append(one)
    for one in chunk:
        line: dict[str, Any] = {"table": one.table, "run": one.run, "batch": one.batch, "path": one.path, "rows": one.rows}
        if one.lost is not None:
            line["torn"] = one.lost
        of_journal = by_journal.pop((one.run, _parts(one.batch)[0]), ())
        if not with_numbers and of_journal:
            line["spans"] = []  # they are folded already
        elif of_journal and all(each.spans is not None for each in of_journal):
            line["spans"] = merged(span for each in of_journal for span in each.spans or ())
        yield line


def _of(entry: Entry) -> Converted:
    return Converted(entry.table.removeprefix("bronze/"), entry.run, entry.batch, entry.path, entry.rows, None)


def _parts(batch: str) -> tuple[int, str]:
    """Node and name of the segment with this name in logs."""
    node, _, name = batch.removeprefix("node=").partition("/")
    return int(node), name
