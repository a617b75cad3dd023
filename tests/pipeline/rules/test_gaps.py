"""Rules that a missing row could mislead say nothing of journals that lack rows: the journals that break them, with a row missing."""

from __future__ import annotations

import pytest

from klamm.pipeline.rules import runner
from klamm.tests.pipeline.in_duckdb import judged, silver
from klamm.tests.pipeline.rules.fixtures import FIXTURES, Run
from klamm.tests.pipeline.rules.test_rules_in_duckdb import JUDGED

CAREFUL = {rule.id for rule in runner.rules().values() if {"gappy", "ends"} & set(rule.inputs) and rule.id in JUDGED}
"""Rules that look at gaps."""

SURE = {"W-02", "W-05", "W-08", "W-09", "W-11"}
"""Rules of them, or some of their conditions, that no row which is missing could mislead."""

RIGHTLY = {"W-03-bad-a_request_is_answered_twice"}
"""Runs that are flagged all the same: what proves the violation is there."""


@pytest.fixture(scope="module")
def flagged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Rule → the runs that it still flags, where each journal lacks a row."""
    lake = tmp_path_factory.mktemp("gaps")
    for fixture in FIXTURES.values():
        if fixture.kind == "bad" and fixture.rule in CAREFUL:
            run = Run(lake, fixture.run_id)
            fixture.write(run)
            for journal in run.journals:
                journal.skip()
                journal.event("broker_stopped")
            run.close()
    database = silver(lake)
    return {rule: {row["run_id"] for row in judged(database, [rule]) if row["detail"] is not None} for rule in sorted(CAREFUL)}


@pytest.mark.parametrize("rule", sorted(CAREFUL - SURE))
def test_a_rule_accuses_nobody_whose_journal_lacks_rows(rule: str, flagged: dict[str, set[str]]) -> None:
    assert {run for run in flagged[rule] if run.startswith(f"{rule}-")} <= RIGHTLY
