"""Where the report has the tables of a run from.

They are those of the lake, if the pipeline has made them of all that was journaled. Otherwise they are made from the journal, which takes
seconds. Of a journal that is too long for that the tables of the lake are shown, and what they lack is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from klamm.journal.segments import Segment
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.access.driver import refuse_manifests
from klamm.pipeline.lake.access.journals import Journals, frames, has_frames, journals
from klamm.pipeline.lake.bronze import batch_name
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.damage import damage_named, refuse_missing
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.lake.layout import is_current
from klamm.pipeline.lake.tables import BRONZE, GOLD, SILVER
from klamm.pipeline.lake.unjudged_rows import empty_segments, lines, missing_rows, torn_segments
from klamm.pipeline.report.reading import FRAMES, RunTables, StoredTables
from klamm.pipeline.rules.verdict_tables import old_gold, old_gold_notes, read_judgement

LIMIT = 300_000
"""Frames of a run whose tables are made for a report: 15 s with two cores. What is larger comes again, and the lake keeps its tables."""

MEMORY = "2g"

PURGED = "klamm pipeline compact --purge deleted"


class NothingToReport(PipelineFailed):
    """The lake has no such run, or nothing that can be reported; the text is one line."""


class ReportSource(NamedTuple):
    """What a report is made from."""

    lake: Lake
    tables: RunTables
    runs: list[str]
    """All runs of the lake, the latest last."""
    engine: str
    """What made the tables: a few words."""
    notes: list[str]
    """About what is not in the tables, one line each."""


@contextmanager
def source(lake: Lake, run: str | None = None, limit: int = LIMIT) -> Iterator[ReportSource]:
    """The tables of a run, of the latest one where none is named. `limit` is the greatest number of frames of which tables are made here.

    Raises NothingToReport, and PipelineFailed if a table of the lake is damaged.
    """
    if isinstance(lake, Path):
        if not lake.is_dir():
            raise NothingToReport(f"{lake} is not a folder")
        lake = lake.resolve()
        refuse_manifests(lake)
    with delta_log.one_version(lake):
        yield from _source(lake, run, limit)


def _source(lake: Lake, run: str | None, limit: int) -> Iterator[ReportSource]:
    stored = list(dict.fromkeys(entry.run for entry in delta_log.entries(lake, FRAMES.path) if entry.rows > 0))
    written = journals(lake, Commits(lake))
    journaled = [name for name in written.runs if has_frames(written.of([name]))]
    runs = [*(name for name in stored if name not in journaled), *journaled]
    if not runs:
        raise NothingToReport(_no_frames(lake, written))
    if run is None:
        run = runs[-1]
    elif run not in runs:
        raise NothingToReport(f"{lake} has no run {run!r}; it has {', '.join(runs[-5:])}")
    found = written.of([run])
    late, count = _late(lake, found), frames(found)
    if run in stored and (count > limit or not _makes_more(lake, run, found, late)):
        with damage_named(lake):
            refuse_missing(lake, [table.path for table in (*BRONZE, *SILVER, *GOLD)], [run])
            notes = lines(missing_rows(lake, [run]), torn_segments(lake, [run])) + old_gold_notes(lake, [run])
            if late:
                rows = frames(late)
                what = f"{rows:,} frames" if rows else "events"
                notes.append(f"run {run}: {what} are not in the tables: klamm pipeline run {lake}")
            yield ReportSource(lake, StoredTables(lake, run), runs, "from the tables of the lake", notes)
    elif count > limit:
        advice = f"{PURGED} its bronze" if run in Commits(lake).runs else f"klamm pipeline run {lake}"
        raise NothingToReport(f"{count:,} frames, and a report without tables has at most {limit:,}: {advice}")
    else:
        from klamm.pipeline.quick.run_tables import run_tables

        with run_tables(lake, found, run, MEMORY) as (made, lost):
            yield ReportSource(lake, made, runs, "from the journal, by DuckDB", [*written.notes, *lost])


def _no_frames(lake: Lake, written: Journals) -> str:
    """Why there is nothing to report."""
    if written.segments or empty_segments(lake):
        return f"no journal of {lake} has a whole frame"
    if Commits(lake).runs:
        return f"{lake} has no frames any more, which a report shows: {PURGED} its bronze, and its journal is gone"
    return f"{lake} has no frames: brokers journal them with `klamm serve --journal {lake}`"


def _late(lake: Lake, found: Sequence[Segment]) -> list[Segment]:
    """The segments whose rows are not in the tables."""
    commits = Commits(lake)
    return [segment for segment in found if (segment.run, batch_name(segment)) not in commits]


def _makes_more(lake: Lake, run: str, found: Sequence[Segment], late: Sequence[Segment]) -> bool:
    """Whether tables of these segments have all of a run, and those of the lake have not, or were made by another Klamm."""
    names = {batch_name(segment) for segment in found}
    if not names.issuperset(entry.batch for entry in delta_log.entries(lake, FRAMES.path, [run]) if entry.rows):
        return False
    return bool(late) or not is_current(lake) or bool(old_gold(lake, [run])) or read_judgement(lake, [run]) is None
