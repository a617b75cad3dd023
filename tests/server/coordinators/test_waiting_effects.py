"""Effects that wait at a phase: each is done once or given back, and those of other keys and partitions are not concerned."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from klamm.broker.groups.phases import OffsetsAppended
from klamm.seams.steering import Steering
from klamm.server.coordinators.phases import Phases


class Effect(NamedTuple):
    """What a coordinator wants done for a group."""

    key: str
    text: str


class World:
    """`done` are the texts of effects that were done."""

    def __init__(self) -> None:
        self.steering = Steering()
        self.effects = Phases(self.steering, 1)
        self.done: list[str] = []

    def run(self, key: str, *effects: str, index: int = 0) -> None:
        """Effects of a group behind its phase."""
        self.effects.run(index, [OffsetsAppended(1, key, 1, index), *(Effect(key, text) for text in effects)], self.do)

    def do(self, effect: Effect) -> None:
        if effect.text == "bad":
            raise RuntimeError(effect)
        self.done.append(effect.text)


@pytest.fixture
def world() -> World:
    return World()


async def test_what_a_coordinator_gives_back_is_not_done_too(world: World) -> None:
    hold = world.steering.hold(OffsetsAppended)
    world.run("g", "a", "b")
    hold.step()
    assert [each.text for each in world.effects.drop(0)] == ["a", "b"]
    await asyncio.sleep(0)
    assert world.done == []


async def test_groups_of_another_partition_stay_held_when_one_moves(world: World) -> None:
    hold = world.steering.hold(OffsetsAppended)
    world.run("g", "a", index=0)
    world.run("h", "b", index=1)
    assert [each.text for each in world.effects.drop(0)] == ["a"]
    assert [phase.group for phase in hold.held] == ["h"]
    hold.release()
    await asyncio.sleep(0)
    assert world.done == ["b"]
    world.steering.release()
    assert not world.effects.is_followed


async def test_an_effect_that_raises_does_not_keep_those_behind_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    hold = world.steering.hold(OffsetsAppended)
    world.run("g", "a", "bad", "b")
    hold.release()
    await asyncio.sleep(0)
    assert world.done == ["a", "b"]
    assert "an effect that waited for g" in caplog.text
    world.steering.release()
    assert not world.effects.is_followed


async def test_who_waits_until_a_group_is_free_goes_on_when_its_coordinator_moves(world: World) -> None:
    world.steering.hold(OffsetsAppended)
    world.run("g", "a")
    free = [world.effects.until_free("g") for _ in range(2)]
    world.effects.drop(0)
    await asyncio.wait_for(asyncio.gather(*(each for each in free if each is not None)), 5)
    assert None not in free and world.effects.until_free("g") is None
