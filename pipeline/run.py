"""`klamm pipeline run` and `watch`: from the journal of a lake to its tables.

Brokers that run are asked to seal their segments; segments that dead brokers left are sealed here. Then sealed segments are converted to
bronze, and brought into silver in batches (`pipeline/stream.py`). Segments that were shipped are bronze already (`pipeline/shipped.py`).
`watch` does the first part each second, also while a batch is made.

Work on few rows is done by processes of this machine, and no JVM starts; the same work on many rows is done by Spark's workers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from klamm.journal.reading import ask_to_seal, seal_leftovers
from klamm.journal.segments import SEAL, Segment
from klamm.pipeline import stream
from klamm.pipeline.gold import build_gold
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake import unjudged_rows as missing
from klamm.pipeline.lake.access.driver import written
from klamm.pipeline.lake.access.older_lake import take_over
from klamm.pipeline.lake.bronze import (
    Converted,
    PendingSegments,
    convert_all,
    empty_files,
    foreign_files,
    own_segments,
    pending,
)
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.damage import damage_named, refuse_missing
from klamm.pipeline.lake.folder import Lake, spark_failures
from klamm.pipeline.lake.layout import is_older as is_older_layout
from klamm.pipeline.lake.local_workers import Choose, LocalWorkers, TaskWorkers, processes_for
from klamm.pipeline.lake.store import local_folder
from klamm.pipeline.lake.tables import EVENT_TABLE, GOLD, MESSAGES, QUARANTINE, SILVER
from klamm.pipeline.retention import finish
from klamm.pipeline.rules.runner import Judgement
from klamm.pipeline.rules.verdict_tables import old_gold
from klamm.pipeline.shipped import waiting as shipped_segments
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.pipeline.spark.workers import cluster_failures
from klamm.pipeline.upkeep import upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REBUILT = "another version of Klamm made silver of {}: silver and gold are made again from bronze"

LOCAL_ROWS = 1_500_000
"""Work on up to this number of rows is not given to Spark: half a minute with two cores."""

PROCESS_ROWS = 80_000
"""Rows that another process pays for: decoding them takes two seconds."""

UPKEEP_S = 600.0
"""Seconds between two times when commits are folded, old rows removed and small parts merged, while a lake is watched."""


class Progress(Protocol):
    """Shows the progress of long work."""

    def begin(self, what: str, total: int | None) -> None:
        """Begin a piece of work, with its number of steps if it is known."""

    def step(self, steps: int) -> None:
        """`steps` more steps are done."""


class Share(NamedTuple):
    """How many rows silver has, of all that are in bronze."""

    done: int
    total: int


class RunOutcome(NamedTuple):
    """The result of a run. `rows` are the rows of the whole lake, by table; `notes` are lines for people."""

    rows: dict[str, int]
    segments: int
    runs: tuple[str, ...]
    notes: tuple[str, ...]
    judgement: Judgement | None = None
    """The verdicts on the runs that have new rows."""


def run(
    folder: Lake, session: Callable[[], SparkSession], progress: Progress, *, gold: bool = True, keep_ns: int | None = None,
    local_rows: int = LOCAL_ROWS,
) -> RunOutcome:
    """Bring all tables of a lake up to date. `session` opens Spark, if there is work on more than `local_rows` rows. With `keep_ns`, what
    is older is removed (`retention.py`).

    Raises PipelineFailed, also if rows got lost.
    """
    session = _once(session)
    workers = workers_by_size(session, local_rows)
    with written(folder, may_be_older=True) as lake, spark_failures(), damage_named(lake), cluster_failures():
        taken_over = take_over(lake) if isinstance(lake, Path) else []
        finish(lake)
        late = ask_to_seal(local_folder(lake))
        seal_leftovers(local_folder(lake))
        is_older = is_older_layout(lake) and not taken_over
        is_rebuilt = stream.prepare(lake)
        commits = Commits(lake)
        stream.remove_remains(lake)
        refuse_missing(lake, [table.path for table in SILVER])
        shipped = shipped_segments(lake, commits)
        commits.add(shipped)
        found, copies = own_segments(pending(lake, commits))
        rebuilt = [REBUILT.format(lake)] if is_older else []
        unsealed = [f"{path.relative_to(local_folder(lake))}: not sealed in time" for path in late]
        notes = [*taken_over, *rebuilt, *copies, *unsealed, *_left_out(lake)]
        if not found and not commits.journals:
            nothing = dict.fromkeys(("frames", "messages", "quarantine", "events"), 0)
            return RunOutcome(nothing, 0, (), (*notes, "no segment: nobody journaled here yet"))
        converted = _bronze_and_silver(lake, commits, found, workers, progress) if found or not commits.is_folded else []
        converted += shipped
        torn = [one for one in converted if one.lost is not None]
        notes += [f"{one.run}/{one.batch}: rows are lost, {one.rows} are there: {one.lost}" for one in torn]
        runs = sorted(commits.runs) if is_rebuilt else sorted({one.run for one in converted})
        upkept = upkeep(lake, commits, keep_ns)
        rows = stream.account(lake, commits)
        runs = sorted({*runs, *upkept.shortened}.difference(upkept.removed))
        notes += upkept.notes
        notes += missing.notes(missing.missing_rows(lake, runs))
        judgement = _gold(session, workers, lake, progress) if gold else None
        delta_log.name_version(lake)
        return RunOutcome(rows, len(found) + len(shipped), tuple(runs), tuple(notes), judgement)


def watch(
    folder: Lake,
    session: Callable[[], SparkSession],
    progress: Progress,
    *,
    every_s: float,
    stop: threading.Event,
    keep_ns: int | None = None,
    upkeep_s: float = UPKEEP_S,
    local_rows: int = LOCAL_ROWS,
    looked: Callable[[Sequence[Converted], Share], None] = lambda *_: None,
    said: Callable[[str], None] = lambda _: None,
) -> RunOutcome:
    """Keep bronze and silver up to date until `stop` is set; then make gold. With `keep_ns`, what is older is removed.

    `session` opens Spark, if there is work on more than `local_rows` rows; at once if that is none: a cluster that is not there is told
    before anything waits for it. `looked` is called with the segments that a look for new ones has found and converted, if there are any,
    and how far silver is; `said` with a line for people.

    Raises PipelineFailed.
    """
    session = _once(session)
    workers = workers_by_size(session, local_rows)
    with written(folder, may_be_older=True) as lake, spark_failures(), damage_named(lake), cluster_failures():
        for line in take_over(lake) if isinstance(lake, Path) else ():
            said(line)
        finish(lake)
        seal_leftovers(local_folder(lake))
        stream.prepare(lake)
        commits = Commits(lake)
        if not local_rows:
            session()
        silver = stream.Silver(lake)

        def batch() -> None:
            if silver.catch_up(workers):
                delta_log.name_version(lake)

        progress.begin("watching", None)
        segments = PendingSegments(lake, commits)
        kept_at = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            batches = pool.submit(batch)
            while not stop.is_set():
                shipped = shipped_segments(lake, commits)
                commits.add(shipped)
                found, _ = own_segments(segments.look())
                _want_seals(segments.written)
                converted = convert_all(lake, found, progress.step, workers)
                commits.add(converted)
                converted += shipped
                if converted:
                    looked(converted, Share(rows_of_silver(lake), sum(commits.rows.values())))
                is_due = time.monotonic() - kept_at >= upkeep_s
                if batches.done() or is_due:
                    batches.result()
                    batches = pool.submit(batch)
                if is_due:
                    batches.result()
                    upkeep(lake, commits, keep_ns)
                    kept_at = time.monotonic()
                stop.wait(every_s)
            batches.result()
    outcome = run(folder, session, progress, keep_ns=keep_ns, local_rows=local_rows)
    return outcome._replace(segments=commits.added + outcome.segments)


def _once(session: Callable[[], SparkSession]) -> Callable[[], SparkSession]:
    """The same, which opens Spark once, whichever thread needs it first."""
    opened, lock = cache(session), threading.Lock()

    def once() -> SparkSession:
        with lock:
            return opened()

    return once


def workers_by_size(session: Callable[[], SparkSession], local_rows: int) -> Choose:
    """This machine for work on up to this number of rows, Spark's workers for more."""

    def choose(rows: int) -> TaskWorkers:
        return LocalWorkers(processes_for(rows, PROCESS_ROWS)) if rows <= local_rows else SparkWorkers(session())

    return choose


def _bronze_and_silver(lake: Lake, commits: Commits, found: Sequence[Segment], workers: Choose, progress: Progress) -> list[Converted]:
    """Convert segments to bronze and commit them; then silver gets the rows of all commits that it lacks."""
    progress.begin("bronze", len(found))
    converted = convert_all(lake, found, progress.step, workers)
    commits.add(converted)
    progress.begin("silver", None)

    def begin(tasks: int) -> Callable[[int], None]:
        progress.begin("silver", tasks)
        return progress.step

    stream.Silver(lake).catch_up(workers, begin)
    return converted


def _gold(session: Callable[[], SparkSession], workers: Choose, lake: Lake, progress: Progress) -> Judgement | None:
    """Make gold for the runs whose gold was not made of all rows that silver has now; of the others no part may be gone."""
    chosen = old_gold(lake)
    every = {entry.run for table in GOLD for entry in delta_log.entries(lake, table.path)}
    refuse_missing(lake, [table.path for table in GOLD], every.difference(chosen))
    if not chosen:
        return None

    def begin(steps: int) -> Callable[[], None]:
        progress.begin("gold", steps)
        return lambda: progress.step(1)

    return build_gold(lake, chosen, workers, session, begin=begin)


def rows_of_silver(lake: Lake) -> int:
    """The rows of bronze that silver has: frames and events."""
    return sum(delta_log.rows(lake, table.path) for table in (MESSAGES, QUARANTINE, EVENT_TABLE))


def _want_seals(folders: Sequence[Path]) -> None:
    for folder in folders:
        try:
            (folder / SEAL).touch()
        except OSError:
            return


def _left_out(lake: Lake) -> list[str]:
    """One line about files that are not segments, and one about segments without a complete row."""
    foreign, empty = foreign_files(lake), empty_files(lake)
    notes = [f"{len(foreign)} files of the journal are not segments and were left out, the first is {foreign[0]}"] if foreign else []
    return notes + ([f"{len(empty)} segments are torn before their first whole batch, the first is {empty[0]}"] if empty else [])
