"""Every rule has a journal that obeys it and one that breaks it, and judges both rightly; no other rule flags them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klamm.pipeline.gold_tables import queries as gold
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.record import JUDGED_COLUMNS
from klamm.pipeline.rules.runner import Judgement
from klamm.tests.pipeline.rules.fixtures import FIXTURES, Fixture

Flagged = tuple[Path, dict[str, frozenset[tuple[int, int]]]]


def test_every_rule_has_a_good_and_a_bad_journal() -> None:
    """And every fixture a rule."""
    with_fixtures = {(fixture.rule, fixture.kind) for fixture in FIXTURES.values()}
    assert {(rule, kind) for rule in runner.rules() for kind in ("good", "bad")} <= with_fixtures
    assert {rule for rule, _ in with_fixtures} <= set(runner.rules())


def test_every_query_names_the_columns_that_the_runner_reads() -> None:
    for rule in runner.rules().values():
        for part in rule.parts:
            assert part.query or part.tried is not None, rule.id
            assert all(column in part.query for column in JUDGED_COLUMNS if part.query), rule.id


def test_no_query_names_an_api_by_a_number() -> None:
    number = re.compile(r"(?:api_key|key_before) (?:=|<>|<=>|IN|NOT IN) \(?\d|messages_of\(\d")
    files = Path(runner.__file__).parents[1].rglob("*.py")
    assert [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if number.search(line)] == []


def test_queries_have_a_value_for_each_parameter() -> None:
    queries = [view.sql for view in runner.views().values()] + [gold.query_of(table) for table in gold.QUERIES]
    assert not [query for query in queries if re.search(r":[a-z_]", query)]
    assert any(":" in query for query in gold.QUERIES.values())


def test_a_rule_that_judges_rows_by_themselves_and_others_besides_has_two_parts() -> None:
    first, second = runner.rules()["W-03"].parts
    assert first.rows and not first.judged and not first.about
    assert second.judged and second.about and not second.rows
    assert {*first.reads, *second.reads} == set(runner.rules()["W-03"].reads)
    single = runner.rules()["W-01"]
    assert single.parts == [single]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", FIXTURES.values(), ids=FIXTURES)
def test_a_rule_flags_what_breaks_it_and_nothing_else(fixture: Fixture, judgement: Judgement, flagged: Flagged) -> None:
    mine = [verdict for verdict in judgement.verdicts if verdict.run_id == fixture.run_id]
    stat = next(stat for stat in judgement.stats if (stat.run_id, stat.rule) == (fixture.run_id, fixture.rule))
    assert (stat.checked > 0) == (fixture.kind != "silent"), "what is checked"
    by_rule = {(verdict.node_id, verdict.seq): verdict.detail for verdict in mine if verdict.rule == fixture.rule}
    assert set(by_rule) == flagged[1][fixture.run_id], by_rule
    assert bool(by_rule) == (fixture.kind == "bad")
    others = [verdict for verdict in mine if verdict.rule != fixture.rule and verdict.rule not in fixture.also]
    assert not others, "other rules"
