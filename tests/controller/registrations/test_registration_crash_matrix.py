"""A fault at every write of every scenario of a registration (see `registration_scenarios`); the table is printed at the end."""

from __future__ import annotations

import pytest

from klamm.tests.controller.registrations.registration_scenarios import REGISTRATIONS, RegisteredRun
from klamm.tests.controller.simulation.crash_matrix import OTHER_FAULTS, Fault, Row, Scenario, everywhere, keep, row, through


async def once(scenario: Scenario, fault: Fault | None, at: int) -> int:
    return await through(RegisteredRun(fault, at), scenario)


@pytest.mark.requirement("RREG-4", "RREG-5", "RREG-7", "RREG-8", "RREG-10", "RREG-13")
@pytest.mark.parametrize("scenario", REGISTRATIONS, ids=lambda scenario: scenario.name)
async def test_after_a_crash_at_any_write_of_a_registration_node_cluster_and_log_agree(scenario: Scenario, matrix: list[Row]) -> None:
    keep(matrix, await row(scenario, once, everywhere((Fault.CRASH_AFTER,))))


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("scenario", REGISTRATIONS, ids=lambda scenario: scenario.name)
async def test_after_any_other_fault_at_any_write_of_a_registration_node_cluster_and_log_agree(
    scenario: Scenario, matrix: list[Row]
) -> None:
    keep(matrix, await row(scenario, once, everywhere(OTHER_FAULTS)))
