"""Rules that a missing row could mislead say nothing of journals that lack rows: the journals that break them, with a row missing; or
of what a request that is too long to be decoded may have said."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.pipeline.decode import batches
from klamm.pipeline.quick.judge import judge
from klamm.pipeline.rules import runner
from klamm.tests.pipeline.in_duckdb import judged, silver
from klamm.tests.pipeline.rules.controllers import State
from klamm.tests.pipeline.rules.fixtures import FIXTURES, Run
from klamm.tests.pipeline.rules.fixtures_controller_answers import create, led

OF_FETCHES = {"F-05", "K-10", "K-11"}
CAREFUL = {rule.id for rule in runner.rules().values() if {"gappy", "ends"} & set(rule.reads)} | OF_FETCHES
"""Rules that look at gaps."""

SURE = {"W-02", "W-05", "W-07", "W-08", "W-09", "W-11"}
"""Rules of them, or some of their conditions, that no row which is missing could mislead."""

RIGHTLY = {
    "W-03-bad-a_request_is_answered_twice", "W-04-bad-a_broker_with_kip_511_names_no_range",
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


def test_nobody_is_accused_of_what_a_long_request_may_have_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of the new partition is in a long UpdateMetadata."""
    monkeypatch.setattr(batches, "MAX_BODY", 10_000)
    run = Run(tmp_path, "r")
    channel = led(run)
    many = [State(topic=f"t{number}", topic_id=number.to_bytes(16, "big")) for number in range(1, 100)]
    create(channel.journal, 1, between=lambda: channel.update(State(), *many))
    run.close()
    said = judged(silver(tmp_path), ["C-24"])
    assert [row["detail"] for row in said if row["detail"] is not None] == []
