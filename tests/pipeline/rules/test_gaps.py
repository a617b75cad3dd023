"""Rules that a missing row could mislead say nothing of journals that lack rows: the journals that break them, with a row missing."""

from __future__ import annotations

import pytest

from klamm.pipeline.quick.judge import judge
from klamm.pipeline.rules import runner
from klamm.tests.pipeline.in_duckdb import silver
from klamm.tests.pipeline.rules.fixtures import FIXTURES, Run

CAREFUL = {rule.id for rule in runner.rules().values() if {"gappy", "ends"} & set(rule.inputs)}
"""Rules that look at gaps."""

SURE = {"W-02", "W-05", "W-07", "W-08", "W-09", "W-11"}
"""Rules of them, or some of their conditions, that no row which is missing could mislead."""

RIGHTLY = {
    "W-03-bad-a_request_is_answered_twice",
    "W-04-bad-versions_answered_in_a_flexible_body",
    "W-04-bad-versions_answered_with_another_error",
    "W-04-bad-versions_answered_with_every_api",
}
"""Runs that are flagged all the same: what proves the violation is there."""


@pytest.fixture(scope="module")
def flagged(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Rule and run of each violation, where each journal lacks a row."""
    lake = tmp_path_factory.mktemp("gaps")
    runs = [fixture for fixture in FIXTURES.values() if fixture.kind == "bad" and fixture.rule in CAREFUL]
    for fixture in runs:
        run = Run(lake, fixture.run_id)
        fixture.write(run)
        for journal in run.journals:
            journal.skip()
            journal.event("broker_stopped")
        run.close()
    chosen = [rule for rule in runner.rules().values() if rule.id in CAREFUL]
    return {(one.rule, one.run_id) for one in judge(silver(lake), [fixture.run_id for fixture in runs], chosen).verdicts}


@pytest.mark.parametrize("rule", sorted(CAREFUL - SURE))
def test_a_rule_accuses_nobody_whose_journal_lacks_rows(rule: str, flagged: set[tuple[str, str]]) -> None:
    assert {run for which, run in flagged if which == rule and run.startswith(f"{rule}-")} <= RIGHTLY
