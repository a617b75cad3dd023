"""Where the report has the tables of a run from.

They are those of the lake, if the pipeline has made them of all that was journaled. Otherwise they are made from the journal, which takes
seconds. Of a journal that is too long for that the tables of the lake are shown, and what they lack is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.damage import damage_named, refuse_missing
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.journals import Journals, frames, journals
from klamm.pipeline.lake.layout import is_current
from klamm.pipeline.lake.tables import BRONZE, GOLD, SILVER
from klamm.pipeline.report.reading import FRAMES, RunTables, StoredTables
from klamm.pipeline.rules.verdict_tables import read_judgement

LIMIT = 300_000
"""Frames of a run whose tables are made for a report: 15 s with two cores. What is larger comes again, and the lake keeps its tables."""

MEMORY = "2g"


class NothingToReport(PipelineFailed):
    """The lake has no such run, or nothing that can be reported; the text is one line."""


class ReportSource(NamedTuple):
    """What a report is made from."""

    lake: Path
    tables: RunTables
    runs: list[str]
    """All runs of the lake, the latest last."""
    engine: str
    """What made the tables: a few words."""
    notes: list[str]
    """About what is not in the tables, one line each."""


@contextmanager
def source(lake: Path, run: str | None = None, limit: int = LIMIT) -> Iterator[ReportSource]:
    """The tables of a run, of the latest one where none is named. `limit` is the greatest number of frames of which tables are made here.

    Raises NothingToReport, and PipelineFailed if a table of the lake is damaged.
    """
    if not lake.is_dir():
        raise NothingToReport(f"{lake} is not a folder")
    lake = lake.resolve()
    stored = list(dict.fromkeys(entry.run for entry in manifest.entries(lake, FRAMES.path) if entry.rows > 0))
    written = journals(lake)
    journaled = [name for name in written.runs if frames(written.of([name])) > 0]
    runs = [*(name for name in stored if name not in journaled), *journaled]
    if not runs:
        raise NothingToReport(f"{lake} has no frames: brokers journal them with `klamm serve --journal {lake}`")
    if run is None:
        run = runs[-1]
    elif run not in runs:
        raise NothingToReport(f"{lake} has no run {run!r}; it has {', '.join(runs[-5:])}")
    late = _late(lake, run, written) if run in stored else frames(written.of([run]))
    count = frames(written.of([run]))
    if late is None or (run in stored and count > limit):
        notes = [] if not late else [f"run {run}: {late:,} frames are not in the tables: klamm pipeline run {lake}"]
        with damage_named(lake):
            refuse_missing(lake, [table.path for table in (*BRONZE, *SILVER, *GOLD)], [run])
            yield ReportSource(lake, StoredTables(lake, run), runs, "from the tables of the lake, by Spark", notes)
    elif count > limit:
        raise NothingToReport(f"{count:,} frames, and a report without tables has at most {limit:,}: klamm pipeline run {lake}")
    else:
        from klamm.pipeline.quick.run_tables import run_tables

        with run_tables(written.of([run]), run, MEMORY) as made:
            yield ReportSource(lake, made, runs, "from the journal, by DuckDB", written.notes)


def _late(lake: Path, run: str, written: Journals) -> int | None:
    """How many frames of a run are not in its tables; None if these are those of all its frames, made by this Klamm."""
    commits = Commits(lake)
    found = written.of([run])
    late = [segment for segment in found if (segment.run, f"node={segment.node}/{segment.name}") not in commits]
    is_whole = frames(found) >= manifest.rows(lake, FRAMES.path, [run])
    if late and is_whole:
        return frames(late)
    is_old = not is_current(lake) or read_judgement(lake, [run]) is None
    return 0 if is_old and is_whole else None
