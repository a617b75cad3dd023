"""Rules that a missing row could mislead say nothing of journals that lack rows: the journals that break them, with a row missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.pipeline.quick.judge import judge
from klamm.pipeline.rules import runner
from klamm.tests.pipeline.in_duckdb import silver
from klamm.tests.pipeline.rules.fixtures import FIXTURES, Run

CAREFUL = {rule.id for rule in runner.rules().values() if {"gappy", "ends"} & set(rule.reads)}
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


BEFORE = ("C-16-bad-metadata_shows_brokers_too_early",)
"""What a broker was told before the journal begins may explain these."""


def test_a_rule_accuses_nobody_of_what_the_journal_does_not_show_because_it_begins_in_the_middle(tmp_path: Path) -> None:
    runs = [fixture for fixture in FIXTURES.values() if fixture.run_id in BEFORE]
    assert len(runs) == len(BEFORE)
    for first, lake in ((1, tmp_path / "whole"), (2, tmp_path / "middle")):
        for fixture in runs:
            run = Run(lake, fixture.run_id)
            run.journal().next_seq = first
            fixture.write(run)
            run.close()
        flagged = {one.run_id for one in judge(silver(lake), list(BEFORE)).verdicts if one.run_id.startswith(one.rule)}
        assert flagged == (set(BEFORE) if first == 1 else set())
