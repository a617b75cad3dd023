"""`klamm pipeline check --quick`: the verdicts of the rules on the journals of a lake, without Spark and without tables.

The journals themselves are read, so it does not matter whether the pipeline has run. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from klamm.journal.reading import open_segment
from klamm.journal.segments import Segment
from klamm.pipeline.lake.access.driver import existing
from klamm.pipeline.lake.access.journals import frames, journals
from klamm.pipeline.lake.folder import Lake, PipelineFailed
from klamm.pipeline.quick import loading
from klamm.pipeline.quick.judge import judge
from klamm.pipeline.quick.tables import load
from klamm.pipeline.rules.check import Checked, asked_for
from klamm.pipeline.rules.evidence import RowsOf, Wanted

LIMIT = 3_000_000
"""Frames of the runs that are judged together: a minute with two cores. What is larger comes again, and Spark keeps what it decoded."""


def check_quickly(
    lake: Lake, *, runs: Sequence[str] = (), chosen: Sequence[str] = (), limit: int | None = LIMIT, memory: str = "2g"
) -> Checked:
    """The verdicts of all rules, or the chosen ones, on all runs of the journals of a lake, or these.

    Brokers that run finish their segments first. `limit` is the greatest number of frames; None is no limit. `memory` is DuckDB's: what
    exceeds it is written to a temporary folder. Raises PipelineFailed for an unknown run or rule, and for more frames than the limit.
    """
    lake = existing(lake)
    written = journals(lake)
    if not written.runs:
        raise PipelineFailed(f"{lake} has no journal yet: brokers write one with `klamm serve --journal {lake}`")
    judging, rules = asked_for(sorted(written.runs), runs, chosen)
    found = written.of(judging)
    _keep_to(limit, found, lake)
    with loading.database(partial(load, found=found), memory, "--memory gives it more") as (database, loaded):
        checked = Checked(judging, rules, judge(database, judging, rules.values()))
        checked.missing, checked.torn = loading.lost_rows(lake, judging, database, loaded)
        counted = database.execute("SELECT run_id, count(*) FROM quarantine GROUP BY run_id ORDER BY run_id").fetchall()
        checked.quarantined = dict(counted)
    checked.notes += written.notes
    checked.note_what_is_not_judged()
    checked.read_evidence(journal_rows(found))
    return checked


def _keep_to(limit: int | None, found: Sequence[Segment], lake: Lake) -> None:
    """Raise PipelineFailed if the segments have more frames than the limit."""
    if limit is None:
        return
    count = frames(found)
    if count > limit:
        raise PipelineFailed(
            f"{count:,} frames, and --quick judges at most {limit:,}: choose runs with --run, let Spark judge them "
            f"(klamm pipeline run {lake}), or add --any-size"
        )


def journal_rows(found: Sequence[Segment]) -> RowsOf:
    """The rows of segments."""

    def rows_of(table: str, wanted: Wanted) -> Iterator[Mapping[str, Any]]:
        for segment in found:
            numbers = {seq for node, seq in wanted.get(segment.run, ()) if node == segment.node}
            if segment.table == table and numbers:
                sought = pa.array(sorted(numbers), pa.int64())
                for batch in open_segment(segment.path):
                    rows = batch.filter(pc.is_in(batch.column("seq"), sought))
                    yield from rows.to_pylist()

    return rows_of
