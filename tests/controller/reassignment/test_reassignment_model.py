"""Random stories with reassignments (requests, overrides, cancellations, the legacy znode, throttled ones) among everything else that
happens to a cluster, and a naive model of them that looks at every write.

The model knows one rule for assignments: a topic znode either takes one of the requested targets from the origin, or forgets all but the
target. When at the end every broker runs and every follower has caught up, nothing is being reassigned, every replica is in sync, and a
partition has the replicas of the last request that was accepted for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.tests.controller.reassignment.moving_story import MovingStory
from klamm.tests.controller.simulated import Crashed, Faults
from klamm.tests.harness.seeds import seeds


async def run(seed: int, faults: Faults, controllers: int = 2, held: bool = False, throttled: bool = True, steps: int = 60) -> None:
    story = MovingStory(seed, faults, throttled)
    if held:
        story.actions += [story.hold_some_phase, story.step_some_hold, story.step_some_hold, story.release_some_hold]
    bad: list[Any] = []

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crashed):
            bad.append(context)

    asyncio.get_running_loop().set_exception_handler(unhandled)
    try:
        await story.tell(steps, controllers)
        story.check()
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n\nThe story, seed {seed}:\n{story.text()}") from problem
    finally:
        for process in story.processes:
            await process.end()
    assert not bad


CRASHES = {"crash_before_write": 0.03, "crash_after_write": 0.03}
EVERYTHING = {**CRASHES, "lost_version": 0.1, "lost_epoch": 0.02, "lost_session": 0.01, "lost_connection": 0.02, "lost_answer": 0.03}


@pytest.mark.parametrize("seed", seeds(25))
async def test_reassignments_end_with_what_was_requested_last(seed: int) -> None:
    await run(seed, Faults(), controllers=1)


@pytest.mark.parametrize("seed", seeds(25))
async def test_reassignments_survive_crashes_between_any_two_writes(seed: int) -> None:
    await run(seed, Faults(**CRASHES))


@pytest.mark.parametrize("seed", seeds(25))
async def test_reassignments_survive_everything_at_once_and_held_phases(seed: int) -> None:
    await run(seed, Faults(**EVERYTHING), controllers=3, held=True)


@pytest.mark.requirement("R179-24")
async def test_entries_that_are_taken_out_before_they_began_leave_no_throttle() -> None:
    """A throttled reassignment is recorded; before its event comes, its topic is queued for deletion, and a request for its partition,
    which is refused, takes the entry out."""
    await run(109, Faults(**CRASHES))


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("block", range(10))
async def test_reassignments_survive_many_seeds(block: int) -> None:
    for seed in range(1000 + 40 * block, 1040 + 40 * block):
        await run(seed, Faults(**(EVERYTHING if seed % 2 else CRASHES)), controllers=1 + seed % 3, held=seed % 3 == 0, steps=90)
