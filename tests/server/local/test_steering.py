"""Controllers of a cluster in this process are held at phases while clients go on."""

from __future__ import annotations

import asyncio

import pytest

from klamm.controller.phases import DeletionPropagated, FailoverLoaded, LeadersElected
from klamm.protocol import messages
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness import requests
from klamm.tests.harness.waits import WITHIN_S, eventually
from klamm.tests.server.brokers import request
from klamm.tests.server.registered_brokers import split
from klamm.zk.session.steered_requests import ZooKeeperWrite

CONFIG = {"auto.leader.rebalance.enable": "false"}


async def delete(cluster: LocalCluster, name: str, timeout_ms: int) -> int:
    """The error code of DeleteTopics."""
    controller, _ = split(cluster)
    body = messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms)
    (row,) = (await request(controller, 20, 5, body)).responses
    code: int = row.error_code
    return code


async def create(cluster: LocalCluster, name: str, replicas: list[int]) -> int:
    """The error code of CreateTopics."""
    controller, _ = split(cluster)
    (row,) = (await request(controller, 19, 7, requests.create_topic(name, [replicas], timeout_ms=30_000))).topics
    code: int = row.error_code
    return code


async def test_a_deletion_is_held_while_clients_create_and_delete_other_topics_and_its_controller_is_killed(
    zookeeper: str, chroot: str
) -> None:
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, config=CONFIG)
    await cluster.start()
    try:
        controller, _ = split(cluster)
        others = [node.id for node in cluster.brokers if node is not controller]
        assert await create(cluster, "held", others) == 0
        hold = cluster.steering.hold(DeletionPropagated, where={"topic": "held"})
        assert await delete(cluster, "held", timeout_ms=0) == 7, "REQUEST_TIMED_OUT: nobody wanted to wait"
        before = await hold.reached()
        assert await create(cluster, "other", [1, 2, 3]) == 0
        assert await delete(cluster, "other", timeout_ms=30_000) == 0
        service = controller.controller
        await eventually(lambda: not service.queued_for_deletion("other"), "the other topic is deleted")
        assert hold.held == [before]
        await cluster.kill_broker(cluster.controller_id, expire=True)
        after = await hold.reached()
        assert hold.held == [after] and after.controller_epoch == before.controller_epoch + 1
        assert await create(cluster, "other", others) == 0
        controller, _ = split(cluster)
        assert controller.controller.queued_for_deletion("held")
        hold.release()
        await eventually(lambda: not controller.controller.queued_for_deletion("held"), "the topic is deleted")
        assert await create(cluster, "held", others) == 0
    finally:
        await cluster.stop()


async def test_a_held_controller_keeps_its_queue_and_clients_read_metadata(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, config=CONFIG, topics=[SeedTopic("t", 3, 3)])
    await cluster.start()
    try:
        controller, other = split(cluster)
        hold = cluster.steering.hold(LeadersElected)
        dead = next(node.id for node in cluster.brokers if node not in (controller, other))
        killing = asyncio.ensure_future(cluster.kill_broker(dead, expire=True))
        assert (await hold.reached()).broker_ids == (dead,)
        answer = await request(other, 3, 12, messages.MetadataRequest(topics=None))
        assert {t.name for t in answer.topics} == {"t"}
        creating = asyncio.ensure_future(create(cluster, "late", [controller.id]))
        await eventually(lambda: len(controller.controller.queue) > 0, "the new topic waits in the queue")
        assert not creating.done()
        hold.release()
        assert await creating == 0
        await killing
    finally:
        await cluster.stop()


async def test_an_election_is_held_while_another_broker_is_asked(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config=CONFIG)
    await cluster.start()
    try:
        hold = cluster.steering.hold(FailoverLoaded)
        before = cluster.controller_id
        moving = asyncio.ensure_future(cluster.move_controller(3 - before))
        assert (await hold.reached()).broker_id == 3 - before
        answer = await request(cluster.brokers[0], 3, 12, messages.MetadataRequest(topics=[]))
        assert answer.controller_id == before, "the new controller has told nobody yet"
        hold.release()
        assert await moving == 3 - before
    finally:
        await cluster.stop()


async def test_a_broker_crashes_while_it_registers_and_while_it_fails_over(zookeeper: str, chroot: str) -> None:
    """Steps of the cluster that wait for the broker do not keep it from crashing; afterwards it starts again."""
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, config=CONFIG, topics=[SeedTopic("t", 3, 3)])
    await cluster.start()
    try:
        await cluster.stop_broker(3)
        registration = cluster.steering.hold(ZooKeeperWrite, where={"paths": "/brokers/ids/3"}, count=1)
        starting = asyncio.ensure_future(cluster.start_broker(3))
        assert (await registration.reached(timeout_s=WITHIN_S)).broker_id == 3
        await cluster.crash_broker(3)
        with pytest.raises(StartFailed):
            await starting
        assert (registration.state, registration.held) == ("released", []) and [broker.id for broker in cluster.brokers] == [1, 2]
        await cluster.start_broker(3)
        before = cluster.controller_id
        loaded = cluster.steering.hold(FailoverLoaded, count=1)
        killing = asyncio.ensure_future(cluster.kill_broker(before, expire=True))
        await loaded.reached(timeout_s=WITHIN_S)
        (held,) = loaded.held_phases
        assert held.broker_id == held.phase.broker_id != before
        await cluster.crash_broker(held.broker_id, expire=True)
        assert not held.is_held and loaded.state == "released"
        await killing
        for broker_id in (before, held.broker_id):
            await cluster.start_broker(broker_id)
        assert [broker.id for broker in cluster.brokers] == [1, 2, 3]
    finally:
        await cluster.stop()
