"""`klamm chaos` runs clean, ends in order when it is interrupted, and finds a fault that was planted in a broker."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from klamm.chaos.run import Run, RunOutcome
from klamm.chaos.scenes import EXPIRY_RULE, RULE
from klamm.chaos.schedule import Options, Schedule
from klamm.chaos.summary import as_lines
from klamm.tests.chaos.early_acknowledgements import FOUND_BY
from klamm.tests.chaos.ends_early import EXIT_CODE
from klamm.tests.chaos.greedy_expiry import FOUND_BY as EXPIRY
from klamm.tests.chaos.stale_high_watermark import FOUND_BY as CUT
from klamm.tests.cli.running import Running

ENDS_S = 240.0
TRIES = 3


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


def played(program: str, schedule: Schedule) -> RunOutcome:
    """The outcome of a schedule with one step. On a busy machine its scene may not come about: then it is tried again."""
    for _ in range(TRIES - 1):
        outcome = Run([sys.executable, "-m", program], schedule, lambda _: None).outcome()
        if outcome.steps:
            return outcome
    return Run([sys.executable, "-m", program], schedule, lambda _: None).outcome()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("plant", "schedule", "rule"),
    [("stale_high_watermark", CUT, RULE), ("greedy_expiry", EXPIRY, EXPIRY_RULE)],
    ids=["a high watermark that outlives its leader", "an expiry that forgets offsets of transactions"],
)
def test_a_planted_fault_is_found_by_the_scene_that_is_made_for_it(plant: str, schedule: Schedule, rule: str) -> None:
    found = played(f"klamm.tests.chaos.{plant}", schedule)
    assert rule in [violation.rule for violation in found.violations], "\n".join(as_lines(found))  # the load may suffer from it too
    clean = played("klamm", schedule)
    assert (sum(clean.steps.values()), clean.violations) == (1, []), "\n".join(as_lines(clean))
