"""The metadata log of a term, replayed into an empty state, is what the controller knows to be committed in ZooKeeper (RREG-18).

Seeded stories; the log is compared after every batch (`log_watch`), and with ZooKeeper when nothing moves any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.tests.controller.metadata_log.logged_story import LoggedStory
from klamm.tests.controller.simulated import Crashed, Faults

EVERYTHING: dict[str, float] = {
    "lost_version": 0.1, "crash_before_write": 0.03, "crash_after_write": 0.03, "lost_epoch": 0.03, "lost_session": 0.01,
    "lost_connection": 0.02, "lost_answer": 0.03,
}


async def tell(seed: int, faults: Faults, steps: int, controllers: int, held: bool = False) -> None:
    story = LoggedStory(seed, faults, throttled=seed % 3 == 0)
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
        assert story.read_batches() > 0
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n\nThe story, for `LoggedStory.replayed`:\n{story.text()}") from problem
    finally:
        for p in story.processes:
            await p.end()
    assert not bad, bad[:2]


@pytest.mark.requirement("RREG-18")
@pytest.mark.parametrize("seed", range(8))
async def test_the_log_replayed_is_what_the_controller_knows_to_be_committed(seed: int) -> None:
    await tell(seed, Faults(), 60, 1)


@pytest.mark.requirement("RREG-18")
@pytest.mark.parametrize("seed", range(10))
async def test_the_log_replayed_is_what_is_committed_while_everything_fails_and_phases_are_held(seed: int) -> None:
    await tell(seed, Faults(**EVERYTHING), 70, 2, held=seed % 2 == 0)


@pytest.mark.slow
@pytest.mark.many_seeds
@pytest.mark.parametrize("first", range(0, 300, 20))
async def test_the_log_replayed_is_what_is_committed_in_long_stories(first: int) -> None:
    for seed in range(1000 + first, 1020 + first):
        await tell(seed, Faults(**EVERYTHING) if seed % 3 else Faults(), 120, 1 + seed % 3, held=seed % 2 == 0)
