"""`klamm chaos` runs clean, ends in order when it is interrupted, and finds a fault that was planted in a broker."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from klamm.chaos.run import Run
from klamm.chaos.scenes import RULE
from klamm.chaos.schedule import Options, Schedule
from klamm.chaos.summary import as_lines
from klamm.tests.chaos.early_acknowledgements import FOUND_BY
from klamm.tests.chaos.ends_early import EXIT_CODE
from klamm.tests.chaos.stale_high_watermark import FOUND_BY as CUT
from klamm.tests.cli.running import Running

ENDS_S = 240.0


def started(folder: Path, *options: object) -> Running:
    return Running(folder, "chaos", "--json", "--verbose", "--no-shrink", "--output", folder / "schedule.json", *options)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_run_in_one_process_violates_no_rule(tmp_path: Path) -> None:
    run = started(tmp_path, "--seed", 225, "--minutes", 0.12)
    summary = json.loads(run.rest())
    assert (run.process.wait(ENDS_S), summary["violations"]) == (0, []), run.stderr
    assert summary["acknowledged"] == summary["sent"] > 100
    assert summary["committed"] > 0 and summary["delivered"] > 100 and len(summary["steps"]) > 5


@pytest.mark.slow
def test_a_run_with_processes_ends_in_order_when_it_is_interrupted(tmp_path: Path) -> None:
    run = started(tmp_path, "--seed", 12, "--minutes", 5, "--processes", "--only", "kill", "--only", "member")
    run.logged("runs again")
    run.signal(signal.SIGINT)
    summary = json.loads(run.rest())
    assert (run.process.wait(ENDS_S), summary["violations"]) == (130, []), run.stderr
    assert summary["stopped_early"] and summary["steps"]["kill"] >= 1 and summary["acknowledged"] > 100


@pytest.mark.slow
def test_a_cluster_that_ends_while_the_clients_finish_is_the_only_violation_and_ends_the_run() -> None:
    schedule = Schedule(1, 2000, Options(), ())
    outcome = Run([sys.executable, "-m", "klamm.tests.chaos.ends_early"], schedule, lambda _: None).outcome()
    found = [(violation.rule, violation.found) for violation in outcome.violations]
    assert found == [("end state", [f"the process of the cluster ended with exit code {EXIT_CODE}"])]


@pytest.mark.slow
def test_records_that_are_acknowledged_too_early_are_found_when_their_leader_dies() -> None:
    for _ in range(3):  # followers of a busy machine's leader may have all records when it dies
        outcome = Run([sys.executable, "-m", "klamm.tests.chaos.early_acknowledgements"], FOUND_BY, lambda _: None).outcome()
        lost = next((violation for violation in outcome.violations if violation.rule in ("lost", "moved")), None)
        if lost is not None:
            break
    assert lost is not None, "\n".join(as_lines(outcome))
    assert lost.found and "is killed" in "\n".join(lost.steps_before) and lost.requests


@pytest.mark.slow
def test_a_high_watermark_that_outlives_its_leader_is_found_by_a_cut_after_an_unclean_election() -> None:
    outcome = Run([sys.executable, "-m", "klamm.tests.chaos.stale_high_watermark"], CUT, lambda _: None).outcome()
    assert (outcome.steps["unclean-cut"], [violation.rule for violation in outcome.violations]) == (1, [RULE]), "\n".join(as_lines(outcome))
    assert "during the cut" in outcome.violations[0].found[0]


@pytest.mark.slow
def test_the_cut_after_an_unclean_election_finds_nothing_otherwise() -> None:
    outcome = Run([sys.executable, "-m", "klamm"], CUT, lambda _: None).outcome()
    assert (outcome.steps["unclean-cut"], outcome.violations) == (1, []), "\n".join(as_lines(outcome))
