"""Decide, commit, replay under faults, from one seed: lost versions, lost epochs, lost sessions, crashes between any two writes.

After every story the faults stop and the cluster settles; then what ZooKeeper holds, what the controller knows and what every
live broker was told must agree, the history of writes must be lawful, and nothing may have been told that was not written before.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.controller.values import Election
from klamm.protocol import messages
from klamm.protocol.errors import ApiError
from klamm.tests.controller.simulated import Crashed, Faults
from klamm.tests.controller.simulation.simulated_story import SimulatedStory
from klamm.tests.controller.simulation.simulation import Process
from klamm.tests.controller.stage import line
from klamm.tests.harness.seeds import seeds


async def run(seed: int, faults: Faults, steps: int = 60, controllers: int = 1, held: bool = False, listed: bool = False) -> None:
    story = SimulatedStory(seed, faults)
    if listed:
        story.actions += [story.list_some_brokers, story.list_some_brokers, story.elect, story.rebalance, story.leave]
    if held:
        story.actions += [story.hold_some_phase, story.step_some_hold, story.step_some_hold, story.release_some_hold]
    loop = asyncio.get_running_loop()
    bad: list[Any] = []

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crashed):
            bad.append(context)

    loop.set_exception_handler(unhandled)
    try:
        await story.tell(steps, controllers)
        story.check()
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n\nThe story, for `Story.replayed`:\n{story.text()}") from problem
    finally:
        for p in story.processes:
            await p.end()
    assert not bad


@pytest.mark.parametrize("seed", seeds(40))
async def test_without_faults(seed: int) -> None:
    await run(seed, Faults())


@pytest.mark.parametrize("seed", seeds(60))
async def test_phases_are_held(seed: int) -> None:
    """Also of a controller that is none any more when it is let go on, and of one that crashes."""
    faults = Faults() if seed < 20 else Faults(crash_before_write=0.02, crash_after_write=0.02, lost_session=0.01, lost_version=0.05)
    await run(seed, faults, steps=90, controllers=2, held=True)


@pytest.mark.requirement("R491-5", "R491-12")
@pytest.mark.parametrize("seed", seeds(40))
async def test_the_blacklist_changes_while_controllers_come_and_go(seed: int) -> None:
    faults = Faults() if seed < 10 else Faults(crash_before_write=0.02, crash_after_write=0.02, lost_session=0.01, lost_version=0.05)
    await run(seed, faults, steps=80, controllers=2, listed=True)


@pytest.mark.parametrize("seed", seeds(40))
async def test_lost_versions(seed: int) -> None:
    await run(seed, Faults(lost_version=0.2))


@pytest.mark.parametrize("seed", seeds(60))
async def test_crashes_between_any_two_writes(seed: int) -> None:
    await run(seed, Faults(crash_before_write=0.05, crash_after_write=0.05), controllers=2)


@pytest.mark.parametrize("seed", seeds(40))
async def test_lost_epochs(seed: int) -> None:
    await run(seed, Faults(lost_epoch=0.05), controllers=2)


@pytest.mark.parametrize("seed", seeds(40))
async def test_lost_sessions(seed: int) -> None:
    await run(seed, Faults(lost_session=0.03), controllers=2)


@pytest.mark.requirement("R704-9")
@pytest.mark.parametrize("seed", seeds(40))
async def test_lost_answers(seed: int) -> None:
    await run(seed, Faults(lost_answer=0.1), controllers=2)


@pytest.mark.parametrize("seed", seeds(40))
async def test_lost_connections(seed: int) -> None:
    await run(seed, Faults(lost_connection=0.05, lost_answer=0.05), controllers=2)


@pytest.mark.parametrize("seed", seeds(60))
async def test_everything_at_once(seed: int) -> None:
    faults = Faults(
        lost_version=0.1, crash_before_write=0.03, crash_after_write=0.03, lost_epoch=0.03, lost_session=0.01, lost_connection=0.02,
        lost_answer=0.03,
    )
    await run(seed, faults, steps=80, controllers=3)


async def test_not_active_answers() -> None:
    story = SimulatedStory(1, Faults())
    story.world.controller = (5, 5555)
    process = Process(story, 100)
    try:
        for _ in range(20):
            await asyncio.sleep(0)
        assert not process.controller.is_active
        for asked in (
            process.controller.elect_leaders([], Election.PREFERRED),
            process.controller.allocate_producer_ids(1, 1),
            process.controller.alter_partition(messages.AlterPartitionRequest(), 3),
        ):
            with pytest.raises(ApiError) as e:
                await asked
            assert e.value.code == 41
        with pytest.raises(ApiError) as e:
            await process.controller.controlled_shutdown(1, -1)
        assert e.value.code == 11
    finally:
        await process.end()


@pytest.mark.parametrize("seed", seeds(6))
async def test_a_story_replayed_from_its_text_is_the_same_story(seed: int) -> None:
    faults = Faults(lost_version=0.1, crash_before_write=0.05, lost_epoch=0.03, lost_session=0.01, lost_connection=0.02, lost_answer=0.05)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
    told = SimulatedStory(seed, faults)
    await told.tell(60, 2)
    again = await SimulatedStory.replayed(told.text())
    try:
        assert again.text() == told.text() and again.draws.struck
        assert list(map(line, again.world.journal)) == list(map(line, told.world.journal))
        again.check()
    finally:
        for p in (*told.processes, *again.processes):
            await p.end()


async def test_a_failing_seed_prints_itself_as_a_story(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(story: SimulatedStory) -> None:
        raise AssertionError("something does not hold")

    monkeypatch.setattr(SimulatedStory, "check", fail)
    with pytest.raises(AssertionError, match="something does not hold") as failed:
        await run(3, Faults(), steps=5)
    text = str(failed.value).partition("`Story.replayed`:\n")[2]
    assert text.splitlines()[2:5] == ["start_broker (1,)", "start_broker (2,)", "start_broker (3,)"]
    again = await SimulatedStory.replayed(text)
    assert again.text() == text
    for p in again.processes:
        await p.end()
