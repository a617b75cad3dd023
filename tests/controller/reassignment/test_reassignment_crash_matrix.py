"""A fault at every write of every scenario of a reassignment (see `reassignment_scenarios`); the tables are printed at the end."""

from __future__ import annotations

from collections import Counter

import pytest

from klamm.tests.controller.reassignment.reassignment_scenarios import REASSIGNMENTS
from klamm.tests.controller.simulation.crash_matrix import (
    OTHER_FAULTS,
    CrashRun,
    Fault,
    Row,
    Scenario,
    everywhere,
    keep,
    print_uncaptured,
    row,
    through,
)
from klamm.tests.controller.throttles.throttle_scenarios import STEP_BY_STEP, THROTTLED

SCENARIOS = (*REASSIGNMENTS, *THROTTLED)
REQUIREMENTS = ("R179-7", "R179-9", "R179-16", "R179-17", "R179-22", "R179-24", "R179-25", "R179-26", "R179-27")


@pytest.mark.requirement("R179-6", "R179-8", "R179-10")
async def test_a_crash_behind_any_step_of_a_throttled_reassignment_has_the_outcome_of_the_table(
    matrix: list[Row], request: pytest.FixtureRequest
) -> None:
    """R179-8, printed by step: crashes tried, outcomes right."""
    tried, right = Counter[str](), Counter[str]()

    async def once(scenario: Scenario, fault: Fault | None, at: int) -> int:
        run = CrashRun(fault, at)
        try:
            writes = await through(run, scenario)
            right.update(run.notes)
            return writes
        finally:
            tried.update(run.notes)

    keep(matrix, await row(STEP_BY_STEP, once, everywhere((Fault.CRASH_BEFORE, Fault.CRASH_AFTER))))
    assert set(tried) == set("123456"), tried
    lines = (f"{step:<17} {tried[step]:>6} {right[step]:>6}" for step in sorted(tried))
    print_uncaptured(request.config, "crash after step   tried  right\n" + "\n".join(lines))


@pytest.mark.requirement(*REQUIREMENTS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_after_a_crash_at_any_write_no_reassignment_is_lost_and_no_throttle_left(scenario: Scenario, matrix: list[Row]) -> None:
    keep(matrix, await row(scenario, places=everywhere((Fault.CRASH_AFTER,))))


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_after_any_other_fault_at_any_write_no_reassignment_is_lost_and_no_throttle_left(
    scenario: Scenario, matrix: list[Row]
) -> None:
    keep(matrix, await row(scenario, places=everywhere(OTHER_FAULTS)))


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_after_two_crashes_no_reassignment_is_lost_and_no_throttle_left(scenario: Scenario, matrix: list[Row]) -> None:
    """The next controller crashes too, one to five writes later: at each write another distance, before it and after it."""

    async def twice(scenario: Scenario, fault: Fault | None, at: int) -> int:
        distance = 1 + (at + (2 if fault is Fault.CRASH_AFTER else 0)) % 5
        run = CrashRun(fault, at, distance if fault is not None else 0)
        run.repeats_exactly = False  # the scenario may be over before the second one
        return await through(run, scenario)

    found = await row(scenario, twice, everywhere((Fault.CRASH_BEFORE, Fault.CRASH_AFTER)))
    keep(matrix, found._replace(name=f"{found.name}, twice"))
