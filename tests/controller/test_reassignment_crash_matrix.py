"""A fault at every write of every scenario of a reassignment (see `reassignment_scenarios`); the tables are printed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klamm.tests.controller.crash_matrix import Fault, Row, Run, Scenario, row, table, through
from klamm.tests.controller.reassignment_scenarios import REASSIGNMENTS

CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_ANSWER)
SESSIONS = (Fault.EXPIRED_BEFORE, Fault.EXPIRED_AFTER)

pytestmark = [pytest.mark.requirement("R179-24", "R179-25", "R179-26")]


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    """Collects the rows of the module's tests."""
    found: list[Row] = []
    yield found
    if found:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n{table(found)}")


def keep(rows: list[Row], found: Row) -> None:
    rows.append(found)
    assert not found.wrong, "\n".join(found.wrong)
    assert found.writes > 0


@pytest.mark.parametrize("scenario", REASSIGNMENTS, ids=lambda scenario: scenario.name)
async def test_after_a_crash_at_any_write_no_reassignment_is_lost_and_no_throttle_left(scenario: Scenario, rows: list[Row]) -> None:
    keep(rows, await row(scenario, faults=CRASHES))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", REASSIGNMENTS, ids=lambda scenario: scenario.name)
async def test_after_the_loss_of_the_session_at_any_write_no_reassignment_is_lost_and_no_throttle_left(
    scenario: Scenario, rows: list[Row]
) -> None:
    keep(rows, await row(scenario, faults=SESSIONS))


@pytest.mark.slow
@pytest.mark.parametrize("after", range(1, 6))
@pytest.mark.parametrize("scenario", REASSIGNMENTS, ids=lambda scenario: scenario.name)
async def test_after_two_crashes_no_reassignment_is_lost_and_no_throttle_left(scenario: Scenario, after: int, rows: list[Row]) -> None:
    """The next controller crashes too, so many writes later."""

    async def twice(scenario: Scenario, fault: Fault | None, at: int) -> int:
        run = Run(fault, at, after if fault is not None else 0)
        run.repeats_exactly = False  # the scenario may be over before the second one
        return await through(run, scenario)

    found = await row(scenario, twice, (Fault.CRASH_BEFORE, Fault.CRASH_AFTER))
    keep(rows, found._replace(name=f"{found.name}, again after {after}"))
