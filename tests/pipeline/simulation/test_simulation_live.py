"""What the simulation says is what a real cluster does: brokers in one process with a real ZooKeeper, whose states are read behind
each step.

The order of the brokers in an ISR is that in which followers happened to catch up; everything else is equal, leader epochs included.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from klamm.admin import AsyncAdminClient, ConfigChange, ConfigResource, ResourceType
from klamm.cli.pipeline.zookeeper import read_zookeeper
from klamm.controller.values import Assignment, Election, LeaderAndIsr
from klamm.pipeline.simulation.procedures import Procedures
from klamm.pipeline.simulation.simulated_partition import Simulated
from klamm.pipeline.simulation.snapshot import Snapshot
from klamm.pipeline.simulation.steps import Blacklist, Brokers, Elect, Kill, Reassign, Return, Shutdown, Step
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.server.broker_server import BrokerServer
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.waits import eventually_asked

Shown = dict[TopicPartition, tuple[Assignment, int, int, frozenset[int], int]]

CONTROLLER = 5
"""It is in no step: another controller would look at everything again."""


def shown(partitions: Mapping[TopicPartition, tuple[Assignment, LeaderAndIsr | None]]) -> Shown:
    """What is compared: assignment, leader, leader epoch, members of the ISR, recovery."""
    return {
        key: (assignment, state.leader, state.leader_epoch, frozenset(state.isr), state.recovery)
        for key, (assignment, state) in partitions.items()
        if state is not None
    }


async def take(cluster: LocalCluster, step: Step, plans: list[dict[TopicPartition, Ints]]) -> None:
    match step:
        case Kill((broker,)):
            await cluster.kill_broker(broker, expire=True)
        case Return(ids):
            for broker in ids:
                await cluster.start_broker(broker)
        case Shutdown(ids):
            for broker in ids:
                await cluster.stop_broker(broker)
        case Elect():
            await active(cluster).controller.elect_leaders(list(plans[0]), Election.PREFERRED)
        case Reassign(plan):
            results = await active(cluster).controller.alter_reassignments({**plans[plan]})
            assert {code for code, _ in results.values()} == {0}
        case Blacklist(ids):
            change = ConfigChange("preferred_leader_blacklist", ",".join(map(str, ids)))
            async with AsyncAdminClient(cluster.bootstrap_servers) as client:
                result = await client.incremental_alter_configs({ConfigResource(ResourceType.BROKER, ""): [change]})
            assert not result.errors()
            controller = active(cluster).controller

            async def listed() -> bool | None:
                term = controller.term
                return True if term is not None and term.cluster.listed == frozenset(ids) else None

            await eventually_asked(listed, f"the controller knows of the list {ids}")
        case _:
            raise AssertionError(step)


def active(cluster: LocalCluster) -> BrokerServer:
    return next(broker for broker in cluster.brokers if broker.controller.is_active)


async def compare(zookeeper: str, steps: tuple[Step, ...], partitions: int, seed: int) -> None:
    rng = random.Random(seed)
    config = {"auto.leader.rebalance.enable": "false", "replica.lag.time.max.ms": "120000", "offsets.topic.num.partitions": "1"}
    cluster = LocalCluster(5, zookeeper=zookeeper, topics=[SeedTopic("t", partitions, 3)], config=config)
    await cluster.start()
    try:
        await cluster.move_controller(CONTROLLER)
        first: Snapshot = await read_zookeeper(zookeeper)
        assert first.registered == frozenset(range(1, 6)) and len(first.partitions) >= partitions
        moved = rng.sample(sorted(first.partitions), partitions // 10)
        targets: dict[TopicPartition, Ints] = {key: tuple(rng.sample(range(1, 5), 3)) for key in moved}
        plans = [dict.fromkeys(sorted(first.partitions), Ints()), targets]
        brokers = Brokers(first.registered)
        simulated: dict[TopicPartition, Simulated] = {}
        for key, (assignment, state) in first.partitions.items():
            simulated[key] = Simulated(assignment, state, targets=(None, targets.get(key)))
            simulated[key].begin(brokers)
        procedures = Procedures(brokers, steps)
        for number, step in enumerate(steps):
            for p in simulated.values():
                procedures.apply(p, number)
            expected = shown({key: (p.assignment, p.state) for key, p in simulated.items()})
            await take(cluster, step, plans)
            last: Shown = {}

            async def as_expected(expected: Shown = expected) -> bool | None:
                nonlocal last
                last = shown((await read_zookeeper(zookeeper)).partitions)
                return True if last == expected else None

            try:
                await eventually_asked(as_expected, str(step), 60)
            except AssertionError:
                different = {key: (last.get(key), expected[key]) for key in expected if last.get(key) != expected[key]}
                pytest.fail(f"behind {step}: {len(different)} partitions differ, such as {dict(list(different.items())[:3])}")
    finally:
        await cluster.stop()


async def test_a_small_cluster_goes_where_the_simulation_says(zookeeper: str, chroot: str) -> None:
    await compare(zookeeper + chroot, (Kill((1,)), Return((1,)), Elect(), Reassign(1)), 20, 1)


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_a_cluster_of_1000_partitions_goes_where_the_simulation_says(zookeeper: str, chroot: str) -> None:
    steps: tuple[Step, ...] = (
        Kill((1,)), Kill((3,)), Blacklist((2,)), Elect(), Return((1,)), Return((3,)), Elect(), Reassign(1), Shutdown((4,)), Blacklist(()),
        Elect(), Return((4,)), Elect(),
    )
    await compare(zookeeper + chroot, steps, 1000, 2)
