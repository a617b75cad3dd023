"""A local cluster under a driven clock: real sockets and a real ZooKeeper, and ten minutes that pass as fast as their work is done."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest

from klamm.controller.values import Broker
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import Endpoint
from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.driven_clock import START_MS, DrivenClock
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import request
from klamm.tests.server.net import crowd
from klamm.tests.server.scripted import ScriptedBroker
from klamm.zk.layout.broker_node import encode_broker

MINUTE_S = 60
SETTLE_S = 0.02
"""Whatever takes longer in real time waits for the clock: a broker that does not respond."""


class DrivenCluster:
    """A cluster and its clock."""

    def __init__(self, cluster: LocalCluster, clock: DrivenClock) -> None:
        self.cluster = cluster
        self.clock = clock

    @property
    def controller(self) -> BrokerServer:
        return next(node for node in self.cluster.brokers if node.controller.is_active)

    async def advance(self, seconds: float) -> int:
        return await self.clock.advance(seconds, self._settle)

    async def _settle(self) -> None:
        until = time.monotonic() + SETTLE_S
        await asyncio.sleep(0)
        while not all(node.is_idle for node in self.cluster.brokers) and time.monotonic() < until:  # noqa: ASYNC110 no one event says it
            await asyncio.sleep(0.0005)


@pytest.fixture
async def driven(zookeeper: str, chroot: str) -> AsyncIterator[DrivenCluster]:
    clock = DrivenClock()
    few_fetches = {"replica.fetch.wait.max.ms": "30000"}
    cluster = LocalCluster(
        3, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 6, 3)], config=few_fetches,
        seams=Seams(clock=clock, random=random.Random(5)),
    )
    await cluster.start()
    yield DrivenCluster(cluster, clock)
    await cluster.stop()


def leaders(node: BrokerServer) -> dict[int, int]:
    return {index: partition.leader for index, partition in node.metadata.topics["t"].partitions.items()}


async def test_ten_minutes_of_timers_pass_in_less_than_a_second(driven: DrivenCluster) -> None:
    cluster, controller = driven.cluster, driven.controller
    preferred = leaders(controller)
    assert sorted(preferred.values()) == [1, 1, 2, 2, 3, 3]
    follower = next(node.id for node in cluster.brokers if node is not controller)
    await cluster.stop_broker(follower)
    await cluster.start_broker(follower)
    for node in cluster.brokers:  # what is back joins the ISR again, as a leader would propose
        proposal = crowd.alter(node, "t", AlwaysSmall())
        if proposal is not None:
            await request(controller, ApiKey.ALTER_PARTITION, proposal.version, proposal.message)
    assert follower not in (leaders(controller)).values()

    wait_for = controller.services.purgatory.wait
    waiting = [asyncio.ensure_future(wait_for(["never"], lambda: False, minutes * 60_000)) for minutes in (1, 5, 9, 11)]
    await asyncio.sleep(0)
    began = time.process_time()
    fired = await driven.advance(10 * MINUTE_S)
    took_s = time.process_time() - began
    print(f"{fired} timers of 10 minutes in {took_s:.3f} CPU s")

    assert leaders(controller) == preferred, "the rebalance timer brought every leadership back"
    assert [wait.done() and wait.result() for wait in waiting[:3]] == [False, False, False]
    assert [wait.done() for wait in waiting] == [True, True, True, False]
    assert driven.clock.now_ms() == START_MS + 10 * MINUTE_S * 1000
    assert took_s < 1, "no time passes in which nothing happens"
    waiting[3].cancel()


async def test_requests_to_a_broker_that_never_responds_time_out_every_thirty_seconds(driven: DrivenCluster) -> None:
    silent = ScriptedBroker()
    await silent.start()
    registered = Broker(9, -1, (Endpoint("PLAINTEXT", "127.0.0.1", silent.port, 0),), None)
    await driven.controller.zk.create("/brokers/ids/9", encode_broker(registered, 0, -1, 5), ephemeral=True)
    await eventually(lambda: len(silent.requests) == 1, "the first request arrived")
    began = time.perf_counter()
    await driven.advance(10 * MINUTE_S)
    print(f"{silent.connections} connections in {time.perf_counter() - began:.3f} s")
    assert silent.connections == len(silent.requests) == 20
    assert len({correlation.correlation_id for _, correlation, _ in silent.requests}) == 20
    await silent.stop()


async def test_the_clock_of_the_cluster_is_in_what_brokers_register(driven: DrivenCluster) -> None:
    node = await driven.controller.zk.get("/brokers/ids/1")
    assert node is not None and node.data is not None
    assert f'"timestamp":"{START_MS}"'.encode() in node.data.replace(b" ", b"")


class AlwaysSmall(random.Random):
    """Proposes every replica."""

    def random(self) -> float:
        return 0.0
