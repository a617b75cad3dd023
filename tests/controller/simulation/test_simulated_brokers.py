"""Followers of the simulation catch up, and their leaders take them in, as brokers would."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.simulated import Faults
from klamm.tests.controller.simulated_brokers import proposals
from klamm.tests.controller.simulation.simulation import Process, Simulation

T0 = TopicPartition("t", 0)


@pytest.fixture
async def simulation() -> AsyncIterator[Simulation]:
    """Three brokers, a controller, a topic with all of them in sync."""
    one = Simulation(0, Faults())
    for broker_id in (1, 2, 3):
        one.world.start_broker(broker_id)
    one.processes.append(Process(one, 100))
    await one.settle()
    one.world.create_topic("t", {0: (1, 2, 3)}, b"t" * 16)
    await one.settle()
    yield one
    for process in one.processes:
        await process.end()


def age(simulation: Simulation, broker_id: int) -> None:
    """A broker has not been told of the newest leader epoch."""
    role = simulation.told[broker_id].roles[T0]
    simulation.told[broker_id].roles[T0] = role._replace(leader_epoch=role.leader_epoch - 1)


async def test_a_follower_that_came_back_is_taken_in_when_followers_catch_up(simulation: Simulation) -> None:
    simulation.world.bounce_broker(2)
    await simulation.settle()
    assert simulation.world.states[T0].isr == (1, 3)
    simulation.followers_catch_up = True
    await simulation.settle()
    assert simulation.world.states[T0].isr == (1, 3, 2)
    assert simulation.told[3].metadata[T0].isr == (1, 3, 2)


async def test_a_follower_that_is_away_is_not_proposed(simulation: Simulation) -> None:
    simulation.world.stop_broker(2)
    simulation.followers_catch_up = True
    await simulation.settle()
    assert simulation.world.states[T0].isr == (1, 3)


async def test_a_follower_that_was_stopped_or_knows_an_older_epoch_is_not_proposed(simulation: Simulation) -> None:
    simulation.world.bounce_broker(2)
    await simulation.settle()
    assert list(proposals(simulation.world, simulation.told)) == [T0]
    simulation.told[2].stopped.add(T0)
    assert not proposals(simulation.world, simulation.told)
    simulation.told[2].stopped.clear()
    age(simulation, 2)
    assert not proposals(simulation.world, simulation.told)


async def test_a_leader_that_does_not_know_its_newest_epoch_proposes_nothing(simulation: Simulation) -> None:
    simulation.world.bounce_broker(2)
    await simulation.settle()
    age(simulation, 1)
    assert not proposals(simulation.world, simulation.told)
