"""Retention: removes what is older than a limit from the journal, bronze, silver and gold together.

A run whose newest row is older is removed as a whole. Of a run that goes on the parts of silver are removed whose newest row is older, and
then the segments of the journal and of bronze that have no row in silver any more. So data stays until the whole part or segment is too
old, as in Kafka. What a broker has open is not touched, and the newest segment of each broker and table stays, because the broker goes on
with its numbers.

The whole removal is written to a plan first. If it is interrupted, `finish` continues it, before anything else is done with the lake.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from klamm.journal.reading import is_written, last_number, locked, retained_to, segments
from klamm.journal.segments import RETAINED, Segment, journal_folder
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.bronze import batch_name
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import CHECKPOINTS, Lake, PipelineFailed
from klamm.pipeline.lake.journal_copy import JOURNAL, copied, is_elsewhere, journal_stores, with_journal
from klamm.pipeline.lake.store import Store, local_folder
from klamm.pipeline.stream import account

PLAN = f"{CHECKPOINTS}/retention.json"
SILVER_ROWS = {"silver/messages": "frames", "silver/quarantine": "frames", "silver/events": "events"}
"""Table of silver → the table of bronze whose rows it has."""


@dataclass
class Removal:
    """What retention removes. Paths are relative to the lake."""

    runs: list[str] = field(default_factory=list)
    """Runs that are removed as a whole."""
    shortened: list[str] = field(default_factory=list)
    """Runs that go on, and lose their oldest rows."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of `frames` and `events` that are removed from silver."""
    left: dict[str, int] = field(default_factory=dict)
    """Rows of `frames` and `events` that stay."""
    paths: list[str] = field(default_factory=list)
    """Files of tables."""
    segments: list[str] = field(default_factory=list)
    """Segments of the journal, of runs that go on."""
    retained: dict[str, int] = field(default_factory=dict)
    """Folder of a broker in a run that goes on → the number up to which rows may be removed."""
    journal_files: int = 0
    """Number of segments of the journal that are removed, those of whole runs too."""
    bytes: int = 0
    """Size of all files."""

    @property
    def is_empty(self) -> bool:
        """Nothing is removed."""
        return not (self.runs or self.paths or self.segments)

    @property
    def line(self) -> str:
        """For people: what is removed, in numbers."""
        oldest = f" and the oldest rows of {len(self.shortened)} more" if self.shortened else ""
        frames, events = _counted(self.rows["frames"], "frame"), _counted(self.rows["events"], "event")
        journal, files = _counted(self.journal_files, "segment"), _counted(len(self.paths), "file")
        return (
            f"{_counted(len(self.runs), 'run')}{oldest}: {frames} and {events}, {journal} of the journal, {files} of tables, "
            f"{self.bytes / 1e6:,.1f} MB"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def retain(lake: Lake, commits: Commits, limit_ns: int | None, named: Collection[str] = (), *, dry_run: bool = False) -> Removal:
    """Remove what is older than `limit_ns` (nanoseconds since 1970), and the runs `named`; with `dry_run` only say what would be.

    The caller holds the lock of the lake, and no batch is being made. Raises PipelineFailed if silver lacks rows, for a run that does not
    exist, and for a named run that a broker writes.
    """
    account(lake, commits)
    if not commits.is_folded:
        raise PipelineFailed(f"{lake}: tables are not up to date with bronze; first repeat klamm pipeline run {lake}")
    plan = _Planning(lake, commits, limit_ns, named).plan
    if not dry_run and not plan.is_empty:
        Store(lake).put(PLAN, json.dumps(asdict(plan)).encode())
        _execute(lake, plan, commits)
    return plan


def finish(lake: Lake) -> None:
    """Finish a removal that was interrupted. The caller holds the lock of the lake, and no batch is being made."""
    plan = Store(lake).read(PLAN)
    if plan is not None:
        _execute(lake, Removal(**json.loads(plan)), Commits(lake))


def _execute(lake: Lake, plan: Removal, commits: Commits) -> None:
    """Each step can be repeated."""
    store, gone = Store(lake), set(plan.paths)
    commits.forget(plan.runs, plan.left)
    for table in delta_log.tables(lake):
        delta_log.drop(lake, table, [entry for entry in delta_log.entries(lake, table) if entry.path in gone])
    for place in journal_stores(lake):
        for folder, number in plan.retained.items():
            if place.has(folder):
                place.put(f"{folder}/{RETAINED}", str(number).encode())
        place.delete_files(plan.segments)
    for run in plan.runs:
        _remove_journal(journal_folder(local_folder(lake)) / f"run={run}")
        if is_elsewhere(lake):
            store.delete(f"{JOURNAL}/run={run}")
    delta_log.name_version(lake)
    store.delete_files(plan.paths)
    store.delete_files([PLAN])  # objects are deleted in any order, and segments that it forgot would be found again


def _remove_journal(folder: Path) -> None:
    """Remove the journal of a run, unless a broker began to write there meanwhile."""
    with ExitStack() as locks:
        if all(locks.enter_context(locked(node)) for node in folder.glob("node=*") if node.is_dir()):
            shutil.rmtree(folder, ignore_errors=True)


def _last_ns(entry: Entry) -> int | None:
    """The time of the newest row of a file; of gold only if it is final: then its batch says where it ends (`windows.WindowPart`)."""
    if not entry.table.startswith("gold/"):
        return entry.last_ts_ns
    number = entry.batch.rpartition("-")[2]
    return int(number) - 1 if number.isdigit() else None


class _Planning:
    """Finds what to remove. `plan` has the result."""

    def __init__(self, lake: Lake, commits: Commits, limit_ns: int | None, named: Collection[str]) -> None:
        self._lake, self._commits = lake, commits
        self.plan = Removal()
        by_run: dict[str, list[Entry]] = {}
        for table in delta_log.tables(lake):
            for entry in delta_log.entries(lake, table):
                by_run.setdefault(entry.run, []).append(entry)
        journals: dict[str, list[Segment]] = {}
        here = with_journal(lake, lambda one: (one.run, batch_name(one)) not in commits, stand_ins=True)
        for segment in segments(here):
            journals.setdefault(segment.run, []).append(segment)
        every = by_run.keys() | journals.keys() | commits.runs
        for run in named:
            if run not in every:
                raise PipelineFailed(f"no such run: {run}; there are {', '.join(sorted(every))}")
        for run in sorted(every):
            self._plan_run(run, by_run.get(run, []), journals.get(run, []), limit_ns, run in named)
        for table, of in SILVER_ROWS.items():
            gone = set(self.plan.paths)
            for entry in (entry for entries in by_run.values() for entry in entries if entry.table == table):
                rows = self.plan.rows if entry.path in gone else self.plan.left
                rows[of] = rows.get(of, 0) + entry.rows
        for rows in (self.plan.rows, self.plan.left):
            rows |= {of: rows.get(of, 0) for of in ("frames", "events")}

    def _plan_run(self, run: str, entries: Sequence[Entry], journal: Sequence[Segment], limit_ns: int | None, is_named: bool) -> None:
        folder = journal_folder(local_folder(self._lake)) / f"run={run}"
        is_live = any(is_written(node) for node in folder.glob("node=*"))
        if is_named and is_live:
            raise PipelineFailed(f"run {run} cannot be removed: a broker is writing its journal")
        if is_named:
            self._whole(run, entries, journal)
        elif limit_ns is not None:
            newest = [ns for entry in entries if (ns := _last_ns(entry)) is not None]
            newest += [segment.path.stat().st_mtime_ns for segment in journal if (run, batch_name(segment)) not in self._commits]
            if not is_live and newest and max(newest) < limit_ns:
                self._whole(run, entries, journal)
            elif newest:
                self._oldest(run, entries, journal, limit_ns)

    def _whole(self, run: str, entries: Iterable[Entry], journal: Iterable[Segment]) -> None:
        self.plan.runs.append(run)
        self._add(entries, journal)

    def _oldest(self, run: str, entries: Sequence[Entry], journal: Sequence[Segment], limit_ns: int) -> None:
        """Of a run that goes on. All parts that a batch of the stream wrote go together."""
        silver = [entry for entry in entries if entry.table.startswith("silver/")]
        kept = {entry.batch for entry in silver if entry.last_ts_ns is None or entry.last_ts_ns >= limit_ns}
        begin = [entry.first_ts_ns or 0 for entry in silver if entry.batch in kept and entry.rows]
        before = min([limit_ns, *begin])
        gone = [entry for entry in silver if entry.batch not in kept]
        newest = {(segment.node, segment.table): segment for segment in journal}  # they are sorted
        staying = {batch_name(segment) for segment in newest.values()}
        in_bronze = {entry.batch: entry for entry in entries if entry.table.startswith("bronze/")}
        old = [
            segment for segment in journal
            if batch_name(segment) not in staying and (run, batch_name(segment)) in self._commits
            and self._newest(segment, in_bronze) < before
        ]
        names = {batch_name(segment) for segment in journal} - {batch_name(segment) for segment in old}
        gone += [
            entry for entry in in_bronze.values() if entry.batch not in names and entry.last_ts_ns is not None and entry.last_ts_ns < before
        ]
        gone += [entry for entry in entries if entry.table.startswith("gold/") and (_last_ns(entry) or limit_ns) < limit_ns]
        if gone or old:
            self.plan.shortened.append(run)
            self._add(gone, old)
            self.plan.segments += [str(segment.path.relative_to(local_folder(self._lake))) for segment in old]
            self._note_numbers(old)

    def _newest(self, segment: Segment, in_bronze: dict[str, Entry]) -> int:
        """The time of the newest row of a segment; if bronze was purged, the time when it was sealed."""
        entry = in_bronze.get(batch_name(segment))
        told = None if entry is None else entry.last_ts_ns
        return segment.path.stat().st_mtime_ns if told is None else told

    def _note_numbers(self, old: Sequence[Segment]) -> None:
        """The number of the last row that is removed, of each broker: those behind it may be rows of the other table, or be lost."""
        for segment in old:
            folder = segment.path.parent
            name = str(folder.relative_to(local_folder(self._lake)))
            self.plan.retained[name] = max(self.plan.retained.get(name, retained_to(folder)), last_number(copied(self._lake, segment)))

    def _add(self, entries: Iterable[Entry], journal: Iterable[Segment]) -> None:
        for entry in entries:
            self.plan.paths.append(entry.path)
            self.plan.bytes += entry.bytes
        for segment in journal:
            self.plan.journal_files += 1
            self.plan.bytes += segment.path.stat().st_size
