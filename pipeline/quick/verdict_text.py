"""The verdict on the journal of a test, as lines for the report of a test that failed."""

from __future__ import annotations

from pathlib import Path

from klamm.journal.reading import segments
from klamm.pipeline.quick.check import check_quickly
from klamm.pipeline.rules.check import Checked

SHOWN = 3
"""Violations of a rule that are shown."""


def newest_run(lake: Path) -> str | None:
    """The run of a lake that was written last; None without journals."""
    found = segments(lake)
    return max(found, key=lambda segment: segment.path.stat().st_mtime_ns).run if found else None


def verdict_lines(lake: Path) -> list[str]:
    """What the rules say of the run of a lake that was written last. Raises PipelineFailed if it has too many frames."""
    run = newest_run(lake)
    if run is None:
        return [f"{lake}: no journal"]
    return [f"run {run} of {lake}:", *(f"  {line}" for line in _lines(check_quickly(lake, runs=[run])))]


def _lines(checked: Checked) -> list[str]:
    lines: list[str] = []
    for (run, rule), verdicts in checked.by_rule().items():
        violated = checked.stat(run, rule).violated
        lines.append(f"{rule} {verdicts[0].severity}: {checked.rules[rule].statement}")
        for verdict in verdicts[:SHOWN]:
            lines.append(f"  broker {verdict.node_id}, seq {verdict.seq}: {verdict.detail}")
            lines += [f"    {line}" for line in checked.evidence(verdict)]
        lines += [f"  … and {violated - SHOWN} more"] if violated > SHOWN else []
    absent = len(checked.not_applicable())
    judged = f"{checked.exercised()} of {len(checked.rules)} rules exercised" + (f", {absent} not applicable" if absent else "")
    errors, warnings = checked.violations("error"), checked.violations("warn")
    return [*checked.notes, *lines, f"{judged}, {errors} errors, {warnings} warnings"]
