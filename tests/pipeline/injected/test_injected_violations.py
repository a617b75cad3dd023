"""Each injected violation is found, and no rule names another one, with DuckDB and with Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from klamm.journal.reading import segments
from klamm.pipeline.lake.bronze import convert
from klamm.pipeline.lake.spark_views import views
from klamm.pipeline.quick.judge import judge
from klamm.pipeline.rules import runner
from klamm.pipeline.silver import Source, build_silver
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.tests.pipeline.evidence_parts import lacking
from klamm.tests.pipeline.in_duckdb import silver
from klamm.tests.pipeline.injected import all_violations  # noqa: F401 registers them
from klamm.tests.pipeline.injected.injections import INJECTIONS, Injection, inject, outcomes
from klamm.tests.pipeline.injected.other_rules import NO_COUNTERPART, NOT_INJECTED, OTHER_RULES
from klamm.tests.pipeline.injected.recording import STORIES

INJECTED = set(runner.rules()) - NOT_INJECTED.keys()


class Injected(NamedTuple):
    """A lake with injections, and what DuckDB says of all its runs."""

    lake: Path
    injections: dict[str, Injection]
    """By run."""
    true: list[str]
    """The runs as they were."""
    quick: runner.Judgement
    lacking: list[str]
    """What the evidence of violations lacks."""


ALONE = ("C-02", "C-05", "C-06", "C-20", "K-03", "R-04", "T-06", "W-01", "W-03", "W-05", "W-08")
"""Rules that may find one row which contradicts itself, or what should follow a row and never comes."""


def judged(lake: Path, chosen: Sequence[Injection]) -> Injected:
    injections = inject(lake, chosen)
    true = [f"true-{story}" for story in STORIES]
    with silver(lake) as database:
        judgement = judge(database, [*injections, *true])
        return Injected(lake, injections, true, judgement, lacking(database, judgement.verdicts, ALONE))


def assert_found(injected: Injected) -> None:
    """All injected violations are found and shown, and nothing else is accused."""
    wrong = [
        (one.injection.rule, one.injection.name, sorted(one.accused), sorted(one.injection.expected), one.details[:3])
        for one in outcomes(injected.injections, injected.quick.verdicts) if not one.is_as_expected
    ]
    assert wrong == []
    assert [verdict for verdict in injected.quick.verdicts if verdict.run_id in injected.true] == []
    assert not injected.lacking, "\n".join(injected.lacking)


def test_some_injected_violations_are_found(tmp_path: Path) -> None:
    assert_found(judged(tmp_path, INJECTIONS[::48]))


@pytest.mark.slow
def test_all_injected_violations_are_found(tmp_path: Path) -> None:
    assert_found(judged(tmp_path, INJECTIONS))


def test_each_rule_has_two_injections_and_one_at_the_edge() -> None:
    violations = [one for one in INJECTIONS if not one.is_allowed]
    assert {rule for rule, number in Counter(one.rule for one in violations).items() if number >= 2} == INJECTED
    assert {one.rule for one in violations if one.is_edge} == INJECTED
    assert len(violations) >= 96
    assert len({(one.rule, one.name) for one in INJECTIONS}) == len(INJECTIONS)
    assert set(OTHER_RULES) <= {(one.rule, one.name) for one in INJECTIONS}


def test_each_rule_has_a_counterpart_or_a_reason_why_not() -> None:
    allowed = {one.rule for one in INJECTIONS if one.is_allowed}
    assert allowed | set(NO_COUNTERPART) == INJECTED
    assert not allowed & set(NO_COUNTERPART)


@pytest.mark.slow
def test_spark_says_the_same_of_some_violations_at_the_edge(spark: Any, tmp_path: Path) -> None:
    """Of a violation at the edge of every third rule, and of the runs as they were: all of them would take Spark minutes, and it judges
    fixtures of all rules elsewhere."""
    edges = {one.rule: one for one in INJECTIONS if one.is_edge}
    some = judged(tmp_path, [edges[rule] for rule in sorted(edges)[::3]])
    names = sorted([*some.injections, *some.true])
    converted = [convert(some.lake, segment) for segment in segments(some.lake)]
    build_silver(SparkWorkers(spark), some.lake, [Source(one.table, one.run, one.path, one.rows) for one in converted if one.rows], 0)
    views(spark, some.lake, names)
    judgement = runner.judge(spark, names)
    assert judgement.stats == some.quick.stats
    assert judgement.verdicts == some.quick.verdicts
