"""A paused broker of a cluster in one process stands still as a process does that got SIGSTOP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.server.broker_server import BrokerServer
from klamm.server.local.arguments import SeedTopic
from klamm.tests.control.calls import produce
from klamm.tests.harness.client import Client
from klamm.tests.harness.waits import eventually

CONFIG = {
    "zookeeper.session.timeout.ms": "2000", "min.insync.replicas": "1", "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "1",
}


@asynccontextmanager
async def running(zookeeper: str) -> AsyncIterator[SteeredCluster]:
    cluster = SteeredCluster(3, control_port=None, zookeeper=zookeeper, config=CONFIG, topics=[SeedTopic("t", 1, 3)])
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def broker(cluster: SteeredCluster, number: int) -> BrokerServer:
    return next(each for each in cluster.brokers if each.id == number)


def end_of(cluster: SteeredCluster, number: int) -> int:
    hosted = broker(cluster, number).replicas.get("t", 0)
    assert hosted is not None
    return hosted.log_end_offset


async def test_a_paused_follower_fetches_nothing_and_goes_on_in_its_session(zookeeper: str, chroot: str) -> None:
    async with running(zookeeper + chroot) as cluster:
        leader = next(each for each in cluster.brokers if (hosted := each.replicas.get("t", 0)) is not None and hosted.is_leader).id
        follower, other = [number for number in (1, 2, 3) if number != leader]
        before = broker(cluster, follower).zk.session_id
        await cluster.control.pause_broker(follower)
        _, host, port = cluster.addresses[leader - 1]
        client = Client(host, port)
        await client.ask(produce(0)._replace(acks=1), 7)
        await eventually(lambda: end_of(cluster, other) == 1, "the other follower has the record")
        assert end_of(cluster, follower) == 0
        await cluster.control.resume_broker(follower)
        await eventually(lambda: end_of(cluster, follower) == 1, "the follower has the record")
        assert broker(cluster, follower).zk.session_id == before
        await client.close()


async def test_the_session_of_a_paused_controller_ends_and_it_learns_that_when_it_goes_on(zookeeper: str, chroot: str) -> None:
    async with running(zookeeper + chroot) as cluster:
        paused = cluster.controller_id
        epoch, session = broker(cluster, paused).controller.epoch, broker(cluster, paused).zk.session_id
        await cluster.control.pause_broker(paused)
        others = [each for each in cluster.brokers if each.id != paused]
        await eventually(lambda: cluster.controller_id != paused, "another controller is elected")
        await eventually(lambda: all(paused not in each.metadata.brokers for each in others), "the others do not show it")
        assert broker(cluster, paused).controller.is_active, "it knows nothing of that"
        assert (broker(cluster, paused).controller.epoch, broker(cluster, paused).zk.session_id) == (epoch, session)
        await cluster.control.resume_broker(paused)
        await eventually(lambda: not broker(cluster, paused).controller.is_active, "it is not the controller any more")
        await eventually(lambda: all(paused in each.metadata.brokers for each in cluster.brokers), "it is registered again")
        assert broker(cluster, paused).zk.session_id != session


async def test_a_paused_broker_is_killed_stopped_and_started_as_any_other(zookeeper: str, chroot: str) -> None:
    from klamm.control.bodies import KillBody, StopBody

    async with running(zookeeper + chroot) as cluster:
        await cluster.control.pause_broker(2)
        assert (await cluster.control.kill_broker(2, KillBody(expire=True)))["state"] == "killed"
        assert (await cluster.control.start_broker(2))["state"] == "running"
        await cluster.control.pause_broker(2)
        assert (await cluster.control.restart_broker(2, StopBody()))["state"] == "running"
        await cluster.control.pause_broker(3)
