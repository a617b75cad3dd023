"""Many clients at once, while `/controller` is deleted and ZooKeeper stands still: nobody hangs, all agree in the end, nothing is left."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import eventually, wait_until_stopped
from klamm.tests.server.net.agreement import agreed
from klamm.tests.server.net.crowd import EXPECTED, CrowdClient
from klamm.zk.embedded.server import EmbeddedZooKeeper

BROKERS, CLIENTS = 3, 12
SESSION_TIMEOUT_MS = 2000
CONTESTED = ["quarrel-a", "quarrel-b", "quarrel.c", "d"]


@pytest.fixture
def own_zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that the test may stop for a while."""
    server = EmbeddedZooKeeper()
    server.start()
    yield server
    server.stop()


async def disturb(zookeeper: EmbeddedZooKeeper, tree: Tree, dice: random.Random, rounds: int) -> None:
    """Elections by hand and pauses of ZooKeeper in turn; one pause is longer than a session lives."""
    assert zookeeper.pid is not None
    for number in range(rounds):
        await asyncio.sleep(dice.uniform(0.3, 0.8))
        if number % 2 == 0:
            tree.delete("/controller")
            continue
        pause_s = 1.7 * SESSION_TIMEOUT_MS / 1000 if number == 3 else dice.uniform(0.1, 0.6)
        os.kill(zookeeper.pid, signal.SIGSTOP)
        try:
            wait_until_stopped(zookeeper.pid)
            await asyncio.sleep(pause_s)
        finally:
            os.kill(zookeeper.pid, signal.SIGCONT)
    await asyncio.sleep(0.5)


async def crowd(zookeeper: EmbeddedZooKeeper, seed: int, rounds: int, caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """One cluster, twelve clients, some disturbances. Returns how many requests of each API were answered."""
    config = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS), "auto.create.topics.enable": "false"}
    tree = Tree(zookeeper.address, f"/crowd-{seed}")
    cluster = LocalCluster(BROKERS, zookeeper=tree.hosts, config=config)
    await cluster.start()
    try:
        caplog.set_level(logging.ERROR)
        tally: Counter[str] = Counter()
        tasks_before = len(asyncio.all_tasks())
        over = asyncio.Event()
        clients = [CrowdClient(cluster, number, seed, CONTESTED, tally) for number in range(CLIENTS)]
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(over))
            await disturb(zookeeper, tree, random.Random(seed), rounds)
            over.set()
        await eventually(lambda: agreed(cluster, tree), f"ZooKeeper and all brokers agree (seed {seed})", 30)
        topics = tree.children("/brokers/topics")
        for client in clients:
            assert client.own is None or (client.own_topic in topics) == client.own, f"{client.own_topic}: {client.own}"
        for broker in cluster.brokers:
            await broker.stop_following()
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks_before, "no task is left", 10)
        faults = [record.getMessage() for record in caplog.records if record.exc_info]
        assert faults == []
        return tally
    finally:
        await cluster.stop()
        tree.close()


@pytest.mark.slow
async def test_a_crowd_of_clients_leaves_a_cluster_that_agrees(own_zookeeper: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    tally = await crowd(own_zookeeper, 1, 5, caplog)
    assert tally.keys() == EXPECTED.keys(), tally


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
async def test_a_crowd_of_clients_leaves_a_cluster_that_agrees_for_many_seeds(
    own_zookeeper: EmbeddedZooKeeper, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    tally = await crowd(own_zookeeper, seed, 16, caplog)
    assert tally.keys() == EXPECTED.keys(), tally
