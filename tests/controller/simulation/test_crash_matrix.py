"""A fault at every write of every scenario (see `crash_matrix`); the table is printed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.tests.controller.simulation.crash_matrix import SCENARIOS, Row, Scenario, row, table


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    """Collects the rows of the module's tests."""
    found: list[Row] = []
    yield found
    if found:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n{table(found)}")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_after_a_fault_at_any_write_the_cluster_comes_to_rest_as_it_should(scenario: Scenario, rows: list[Row]) -> None:
    found = await row(scenario)
    rows.append(found)
    assert not found.wrong, "\n".join(found.wrong)
    assert found.writes > 0
