"""The rules that are SQL judge all fixtures in DuckDB as Spark does, in a moment. Those whose SQL DuckDB cannot run are `ONLY_SPARK`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import duckdb
import pytest

from klamm.controller.decision_json import input_json, output_json
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.decisions import difference
from klamm.protocol.nouns import TopicPartition
from klamm.tests.pipeline.in_duckdb import judged, silver
from klamm.tests.pipeline.rules.fixtures import FIXTURES
from klamm.tests.pipeline.rules.fixtures_decisions import RULE, SITUATION

ONLY_SPARK = {"W-04", "C-03", "C-16"}
JUDGED = [rule.id for rule in runner.rules().values() if rule.function is None and rule.id not in ONLY_SPARK]

Flagged = dict[str, frozenset[tuple[int, int]]]


@pytest.fixture(scope="module")
def all_fixtures(tmp_path_factory: pytest.TempPathFactory) -> tuple[duckdb.DuckDBPyConnection, Flagged]:
    """Silver of all fixtures, and run id → (node id, seq) that its rule must flag."""
    lake = tmp_path_factory.mktemp("rules")
    flagged = {fixture.run_id: fixture.into(lake) for fixture in FIXTURES.values()}
    return silver(lake), flagged


@pytest.mark.parametrize("rule", JUDGED)
def test_a_rule_flags_the_rows_that_break_it_and_no_others(rule: str, all_fixtures: tuple[duckdb.DuckDBPyConnection, Flagged]) -> None:
    database, flagged = all_fixtures
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in judged(database, [rule]):
        rows[row["run_id"]].append(row)
    for fixture in FIXTURES.values():
        found = {(row["node_id"], row["seq"]) for row in rows[fixture.run_id] if row["detail"] is not None}
        if fixture.rule == rule:
            assert found == flagged[fixture.run_id], fixture.run_id
            assert bool(rows[fixture.run_id]) == (fixture.kind != "silent"), f"{fixture.run_id}: what is checked"
        elif rule not in fixture.also:
            assert not found, f"{fixture.run_id}: another rule"
    evidence = [row["evidence"] for each in rows.values() for row in each if row["detail"] is not None]
    assert all(isinstance(seq, int) for each in evidence for seq in each)


def test_a_decision_is_compared_with_what_the_rule_decides_again() -> None:
    given, decided = input_json(RULE, SITUATION, [TopicPartition("t", 0)]), output_json(RULE(SITUATION))
    assert difference(given, decided) is None
    assert difference(given, f" {decided} ") is None
    assert difference(None, decided) == "the decision has no input"
    for unreadable in ("{", given.replace('"ElectLeader"', '"ElectNobody"')):
        assert str(difference(unreadable, decided)).startswith("cannot be decided again: ")
    for other in (None, "{", decided.replace('"leader":2', '"leader":3')):
        assert difference(given, other) == f"decided {other}, and the rule says {decided}"
