"""Makes the report of a run: facts, evidence and an incident, on one page."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from importlib.metadata import version
from typing import NamedTuple

from klamm.machine.cache_folder import cache_folder, keep
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.report import evidence, facts, page
from klamm.pipeline.report.source import ReportSource, source


class Report(NamedTuple):
    """A page, and lines about what it does not show."""

    page: str
    engine: str
    notes: list[str]


def report(lake: Lake, run: str | None = None) -> Report:
    """The page about a run of the lake, of the latest where none is named.

    Raises NothingToReport, and PipelineFailed if a table is damaged.
    """
    with source(lake, run) as given:
        return Report(rendered(given, page.rule_texts()), given.engine, given.notes)


def rendered(given: ReportSource, rules: Mapping[str, page.RuleText]) -> str:
    """The page about these tables."""
    collected = facts.collect(given)
    shown = evidence.evidence(given.tables, evidence.places(collected))
    incident = evidence.incident(given.tables, collected, shown)
    proved = {each.place for each in shown}
    shown += evidence.evidence(given.tables, [place for place in evidence.frames_of_errors(collected) if place not in proved])
    return page.render(collected, rules, shown, incident, _vega())


def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs nothing else: about 0.9 MB. To make it takes a second, so it is kept."""
    path = cache_folder("spark") / f"vega-{version('vl-convert-python')}.js"
    with contextlib.suppress(OSError):  # it was not made yet
        return path.read_text(encoding="utf-8")
    import vl_convert

    script = str(vl_convert.javascript_bundle())  # type: ignore[call-arg] # its stub does not know that everything has a default
    with contextlib.suppress(OSError):  # without a place to keep it, it is made each time
        keep(path, script.encode())
    return script
