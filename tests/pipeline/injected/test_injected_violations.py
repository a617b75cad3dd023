"""Each injected violation is found, and no rule names another one, with DuckDB and with Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from klamm.journal.reading import segments
from klamm.pipeline.bronze import convert
from klamm.pipeline.lake.tables import views
from klamm.pipeline.quick.judge import judge
from klamm.pipeline.rules import runner
from klamm.pipeline.silver import Source, build_silver
from klamm.tests.pipeline.in_duckdb import silver
from klamm.tests.pipeline.injected import all_violations  # noqa: F401 registers them
from klamm.tests.pipeline.injected.injections import INJECTIONS, Injection, inject, outcomes
from klamm.tests.pipeline.injected.other_rules import OTHER_RULES
from klamm.tests.pipeline.injected.recording import STORIES


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Injection], list[str]]:
    """A lake with all injections, which is which, and all its runs."""
    lake = tmp_path_factory.mktemp("injected")
    injections = inject(lake, INJECTIONS)
    return lake, injections, [*injections, *(f"true-{story}" for story in STORIES)]


@pytest.fixture(scope="module")
def quick(runs: tuple[Path, dict[str, Injection], list[str]]) -> runner.Judgement:
    """What DuckDB says of them."""
    with silver(runs[0]) as database:
        return judge(database, runs[2])


@pytest.mark.timeout(300)
def test_injected_violations_are_found_and_nothing_else_is_accused(
    runs: tuple[Path, dict[str, Injection], list[str]], quick: runner.Judgement
) -> None:
    wrong = [
        (one.injection.rule, one.injection.name, sorted(one.accused), sorted(one.injection.expected), one.details[:3])
        for one in outcomes(runs[1], quick.verdicts) if not one.is_as_expected
    ]
    assert wrong == []
    assert [verdict for verdict in quick.verdicts if verdict.run_id.startswith("true-")] == []


def test_each_rule_has_two_injections_and_one_at_the_edge() -> None:
    violations = [one for one in INJECTIONS if not one.is_allowed]
    assert {rule for rule, number in Counter(one.rule for one in violations).items() if number >= 2} == set(runner.rules())
    assert {one.rule for one in violations if one.is_edge} == set(runner.rules())
    assert len(violations) >= 96
    assert len({(one.rule, one.name) for one in INJECTIONS}) == len(INJECTIONS)
    assert set(OTHER_RULES) <= {(one.rule, one.name) for one in violations}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_says_the_same_of_some_violations_at_the_edge(
    spark: Any, runs: tuple[Path, dict[str, Injection], list[str]], quick: runner.Judgement
) -> None:
    """Of a violation at the edge of every third rule, and of the runs as they were: all of them would take Spark minutes, and it judges
    fixtures of all rules elsewhere."""
    lake, injections, every = runs
    edges = {one.rule: run for run, one in injections.items() if one.is_edge}
    names = sorted([*(edges[rule] for rule in sorted(edges)[::3]), *(run for run in every if run not in injections)])
    converted = [convert(lake, segment) for segment in segments(lake) if segment.run in names]
    build_silver(spark, lake, [Source(one.table, one.run, one.path, one.rows) for one in converted if one.rows], "0")
    views(spark, lake, names)
    judgement = runner.judge(spark, names)
    assert judgement.stats == [stat for stat in quick.stats if stat.run_id in names]
    assert judgement.verdicts == [verdict for verdict in quick.verdicts if verdict.run_id in names]
