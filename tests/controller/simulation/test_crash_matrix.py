"""A fault at every write of every scenario (see `crash_matrix`); the table is printed at the end.

Each run tries a crash after every write, and at each write one of the other faults, in turn. All faults at all writes are `many_seeds`.
"""

from __future__ import annotations

import pytest

from klamm.tests.controller.simulation.crash_matrix import SCENARIOS, Row, Scenario, in_turn, keep, row


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_after_a_fault_at_any_write_the_cluster_comes_to_rest_as_it_should(scenario: Scenario, matrix: list[Row]) -> None:
    keep(matrix, await row(scenario, places=in_turn))


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_after_each_fault_at_each_write_the_cluster_comes_to_rest_as_it_should(scenario: Scenario, matrix: list[Row]) -> None:
    keep(matrix, await row(scenario))
