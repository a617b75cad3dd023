"""Without Spark every rule judges all fixtures as with it. A rule whose SQL DuckDB cannot execute fails here."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import duckdb
import pytest

from klamm.controller.event_loop.decision_json import input_json, output_json
from klamm.journal.reading import segments
from klamm.pipeline.quick import tables
from klamm.pipeline.quick.judge import TableContents, judge
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.decisions import difference
from klamm.pipeline.rules.record import Need
from klamm.pipeline.rules.runner import Judgement
from klamm.protocol.nouns import TopicPartition
from klamm.tests.pipeline.in_duckdb import silver
from klamm.tests.pipeline.rules.fixtures import FIXTURES, Fixture
from klamm.tests.pipeline.rules.fixtures_decisions import RULE, SITUATION


class Whatever(TableContents):
    """Contents that lack nothing."""

    def lacks(self, needs: Collection[Need]) -> bool:
        return False


Flagged = dict[str, frozenset[tuple[int, int]]]
"""Run id → (node id, seq) that its rule must flag."""


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> tuple[duckdb.DuckDBPyConnection, Flagged]:
    """Silver of all fixtures of this directory's neighbour."""
    lake = tmp_path_factory.mktemp("rules")
    flagged = {fixture.run_id: fixture.into(lake) for fixture in FIXTURES.values()}
    return silver(lake), flagged


@pytest.fixture(scope="module")
def quick_judgement(fixtures: tuple[duckdb.DuckDBPyConnection, Flagged]) -> Judgement:
    return judge(fixtures[0], sorted(FIXTURES), contents=Whatever(fixtures[0]))


@pytest.mark.parametrize("rule", runner.rules())
def test_a_rule_flags_the_rows_that_break_it_and_no_others(
    rule: str, quick_judgement: Judgement, fixtures: tuple[duckdb.DuckDBPyConnection, Flagged]
) -> None:
    judgement = quick_judgement.by([rule])
    checked = {stat.run_id: stat.checked for stat in judgement.stats}

    def found(fixture: Fixture) -> set[tuple[int, int]]:
        return {(one.node_id, one.seq) for one in judgement.verdicts if one.run_id == fixture.run_id}

    for fixture in FIXTURES.values():
        if fixture.rule == rule:
            assert found(fixture) == fixtures[1][fixture.run_id], fixture.run_id
            assert (checked[fixture.run_id] > 0) == (fixture.kind != "silent"), f"{fixture.run_id}: what is checked"
        elif rule not in fixture.also:
            assert not found(fixture), f"{fixture.run_id}: another rule"
    assert all(isinstance(seq, int) for verdict in judgement.verdicts for row in verdict.evidence for seq in row)


def test_what_a_rule_needs_is_there_wherever_it_was_exercised(
    quick_judgement: Judgement, fixtures: tuple[duckdb.DuckDBPyConnection, Flagged]
) -> None:
    assert judge(fixtures[0], sorted(FIXTURES)) == quick_judgement


@pytest.mark.slow
def test_spark_says_the_same_of_all_fixtures_and_faults(judgement: Judgement, flagged: tuple[Path, Flagged]) -> None:
    """Each count, each violation with its text, and its evidence."""
    with tables.opened("1g", str(flagged[0])) as database:
        tables.load(database, segments(flagged[0]))
        quick = judge(database, [*sorted(FIXTURES), "faults"])
    assert quick.stats == judgement.stats
    assert quick.verdicts == judgement.verdicts
    assert {stat.rule for stat in quick.stats if stat.violated} == set(runner.rules())


def test_a_decision_is_compared_with_what_the_rule_decides_again() -> None:
    given, decided = input_json(RULE, SITUATION, [TopicPartition("t", 0)]), output_json(RULE(SITUATION))
    assert difference(given, decided) is None
    assert difference(given, f" {decided} ") is None
    assert difference(None, decided) == "the decision has no input"
    for unreadable in ("{", given.replace('"ElectLeader"', '"ElectNobody"')):
        assert str(difference(unreadable, decided)).startswith("cannot be decided again: ")
    for other in (None, "{", decided.replace('"leader":2', '"leader":3')):
        assert difference(given, other) == f"decided {other}, and the rule says {decided}"
