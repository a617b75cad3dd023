"""KIP-179's crash matrix through the public interfaces alone: the control API holds and crashes, an admin client moves and looks.

A controller is killed at each phase of a throttled reassignment, and before and after each of its writes to ZooKeeper. Another controller
goes on. If the client got no response, it sends its request again. In the end the partition is where it is wanted, and no throttle is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, get_args

import aiohttp
import pytest

from klamm.admin import AdminError, AsyncAdminClient, ConfigResource, ConfigSource, ResourceType
from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.controller.phases import ReassignmentPhase, ThrottlePhase
from klamm.server.local.arguments import SeedTopic
from klamm.tests.control.api import Api
from klamm.tests.harness.waits import eventually_asked

OFFICE = 4
"""The broker that is controller and is killed: it has no replica."""
CONFIG = {"kip179.enable": "true", "auto.leader.rebalance.enable": "false", "default.replication.factor": "1"}
NEVER = {"TopicThrottlesRemoved", "BrokerThrottlesRemoved"}
"""Phases of a request that replaces the throttle of an earlier one."""
THERE, BACK = (1, 2), (2, 3)
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


class Matrix:
    """One cluster; the partition moves to and fro, each time with a crash."""

    def __init__(self, api: Api, admin: AsyncAdminClient) -> None:
        self.api, self.admin = api, admin
        self.ways = (BACK, THERE)

    async def crashes(self, hold: dict[str, Any]) -> bool:
        """Move the partition with a hold whose broker is crashed. Returns whether the hold was reached."""
        await self.api.post("/controller/move", {"to": OFFICE})
        number = (await self.api.post("/holds", {**hold, "count": 1}))["id"]
        target, *_ = self.ways
        self.ways = self.ways[::-1]
        moving = asyncio.ensure_future(self.move(target))
        reached = asyncio.ensure_future(self.api.call("GET", f"/holds/{number}?wait=reached&timeout_ms=60000"))
        await asyncio.wait({moving, reached}, return_when=asyncio.FIRST_COMPLETED)
        await eventually_asked(lambda: self.is_over(reached, target), "the hold is reached, or the partition is moved")
        was_reached = reached.done()
        if was_reached:
            assert reached.result()[0] == 200, reached.result()
            await self.api.post(f"/holds/{number}/crash")
        else:
            reached.cancel()
        await moving
        await self.api.delete("/holds")
        if was_reached:
            await self.api.post(f"/brokers/{OFFICE}/start")
        await self.is_moved(target)
        return was_reached

    async def is_over(self, reached: asyncio.Future[Any], target: tuple[int, ...]) -> bool:
        return reached.done() or await self.rests(target)

    async def move(self, target: tuple[int, ...]) -> None:
        """Send the request until there is a response."""

        async def is_responded() -> bool:
            try:
                (await self.admin.reassign_partitions({("t", 0): target}, throttle=50_000_000)).all()
            except AdminError:
                return False
            return True

        await eventually_asked(is_responded, "the request has a response", 60)

    async def is_moved(self, target: tuple[int, ...]) -> None:
        await eventually_asked(lambda: self.rests(target), "the partition is moved and no throttle is left", 60)

    async def rests(self, target: tuple[int, ...]) -> bool:
        """Whether the partition has exactly these replicas, all in sync, and no config of a throttle is left."""
        (partition,) = (await self.api.get("/topics/t"))["partitions"]
        if partition["adding"] or partition["removing"] or sorted(partition["isr"]) != sorted(target):
            return False
        assert tuple(partition["replicas"]) == target
        topics = {ConfigResource(ResourceType.TOPIC, "t"): REPLICAS}
        brokers = {ConfigResource(ResourceType.BROKER, str(number)): RATES for number in (1, 2, 3)}
        for resource, names in (topics | brokers).items():
            found = (await self.admin.describe_configs([resource], names=names)).all()[resource]
            if any(entry.source in (ConfigSource.DYNAMIC_TOPIC, ConfigSource.DYNAMIC_BROKER) and entry.value for entry in found.values()):
                return False
        return True


@pytest.fixture
async def matrix(zookeeper: str, chroot: str) -> AsyncIterator[Matrix]:
    topics = [SeedTopic("t", 1, 2)]
    cluster = SteeredCluster(4, zookeeper=zookeeper + chroot, config=CONFIG, topics=topics)
    await cluster.start()
    try:
        async with aiohttp.ClientSession() as session, AsyncAdminClient(cluster.bootstrap_servers) as admin:
            found = Matrix(Api(session, cluster), admin)
            await found.move(THERE)
            await found.is_moved(THERE)
            yield found
    finally:
        await cluster.stop()


@pytest.mark.slow
@pytest.mark.requirement("R179-8", "R179-24", "R179-25")
async def test_a_controller_is_killed_at_each_phase_of_a_throttled_move(matrix: Matrix) -> None:
    phases = [phase.__name__ for phase in get_args(ThrottlePhase | ReassignmentPhase)]
    reached = {phase for phase in phases if await matrix.crashes({"phase": phase})}
    assert set(phases) - reached == NEVER


@pytest.mark.slow
@pytest.mark.requirement("R179-8", "R179-24", "R179-25")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_controller_is_killed_at_each_write_of_a_throttled_move(matrix: Matrix, when: str) -> None:
    number = 1
    while await matrix.crashes({"phase": "ZooKeeperWrite", "where": {"broker_id": OFFICE, "when": when}, "nth": number}):
        number += 1
    assert number > 10, f"the move has {number - 1} writes"
