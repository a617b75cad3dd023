"""Notifications that brokers post in ZooKeeper: failed log dirs, ISR changes of older brokers (controller 4.6, 9)."""

from __future__ import annotations

import pytest

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, UMR, FakeBroker
from klamm.tests.harness.waits import eventually

STORAGE_ERROR = 56
LOG_DIRS, ISR_CHANGES = "/log_dir_event_notification", "/isr_change_notification"


async def emptied(cluster: Cluster, parent: str) -> None:
    await eventually(lambda: cluster.tree.children(parent) == [], f"{parent} is empty")


def log_dir_failed(cluster: Cluster, broker: FakeBroker) -> None:
    node = f'{{"version":1,"broker":{broker.id},"event":1}}'.encode()
    cluster.tree.client.create(f"{LOG_DIRS}/log_dir_event_", node, sequence=True)


async def test_failed_log_dir_moves_the_leader(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b], [a, b], [b, a]])
    await cluster.settled(a, b, c)
    marks = {f.id: f.mark() for f in (a, b, c)}
    a.errors[LISR, topic, 0] = a.errors[LISR, topic, 2] = STORAGE_ERROR
    log_dir_failed(cluster, a)
    await emptied(cluster, LOG_DIRS)
    told = await a.told(LISR, topic, 1, mark=marks[a.id])
    assert (told.is_new, told.leader, told.leader_epoch) == (False, a.id, 0)
    assert (await cluster.becomes(topic, 0, leader=b.id))[:4] == (b.id, [b.id], 1, 1)
    assert (await cluster.becomes(topic, 2, isr=[b.id]))[:4] == (b.id, [b.id], 1, 1)
    await cluster.settled(a, b, c)
    assert cluster.state(topic, 1)[:4] == (a.id, [a.id, b.id], 0, 0), "the other log dir is fine"
    for fake in (a, b, c):
        for p in (0, 2):
            shown = fake.states(UMR, topic, p, marks[fake.id])[-1]
            assert (shown.leader, shown.isr, shown.offline_replicas) == (b.id, [b.id], [a.id])
    assert (await cluster.alter_partition(topic, b, [b, a]))[0] == 0
    assert a.id in {x.id for x in a.since(0, UMR)[-1].body.live_brokers}, "the broker itself is alive"


async def test_replica_of_a_failed_log_dir_is_back_after_a_restart(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    a.errors[LISR, topic, 0] = STORAGE_ERROR
    log_dir_failed(cluster, a)
    await cluster.becomes(topic, leader=b.id, isr=[b.id])
    top, results = await cluster.elect([(topic, 0)])
    assert (top, results[topic, 0][0]) == (0, 80)
    a.errors.clear()
    a.bounce()
    await cluster.welcomed(a)
    await cluster.isr(topic, b, [b, a])
    assert (await cluster.elect([(topic, 0)]))[1][topic, 0] == (0, None)


async def test_error_in_any_leader_and_isr_answer_counts(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    a.errors[LISR, "", -1] = 0
    topic = cluster.topic_name()
    a.errors[LISR, topic, 0] = STORAGE_ERROR
    assert await cluster.create_code([[a, b]], None, topic) == 0
    assert (await cluster.becomes(topic, leader=b.id))[:4] == (b.id, [b.id], 1, 1)


async def test_error_at_the_top_of_a_leader_and_isr_response_is_ignored(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = cluster.topic_name()
    a.errors[LISR, "", -1] = 11
    a.errors[LISR, topic, 0] = STORAGE_ERROR
    assert await cluster.create_code([[a, b]], None, topic) == 0
    await cluster.settled(a, b)
    assert cluster.state(topic)[:4] == (a.id, [a.id, b.id], 0, 0)


@pytest.mark.parametrize("data", [b"not json", b"", b'{"version":1,"broker":987654,"event":1}', b'{"version":1,"broker":"x"}'])
async def test_strange_log_dir_notifications_are_removed(cluster: Cluster, data: bytes) -> None:
    cluster.tree.client.create(f"{LOG_DIRS}/log_dir_event_", data, sequence=True)
    await emptied(cluster, LOG_DIRS)
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    a.errors[LISR, topic, 0] = STORAGE_ERROR
    log_dir_failed(cluster, a)
    await cluster.becomes(topic, leader=b.id)
    await emptied(cluster, LOG_DIRS)


async def test_isr_change_that_a_leader_wrote_itself_is_read_and_sent_on(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b], [a, b]])
    await cluster.settled(a, b, c)
    marks = {f.id: f.mark() for f in (a, b, c)}
    cluster.tree.put_state(topic, 0, a.id, [a.id], 0, cluster.tree.controller_epoch())
    node = f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":0}},{{"topic":"nosuch","partition":4}}]}}'.encode()
    cluster.tree.client.create(f"{ISR_CHANGES}/isr_change_", node, sequence=True)
    for fake in (a, b, c):
        shown = await fake.told(UMR, topic, 0, mark=marks[fake.id])
        assert (shown.isr, shown.zk_version) == ([a.id], 1)
    await emptied(cluster, ISR_CHANGES)
    await cluster.settled(a, b, c)
    assert c.states(UMR, topic, 1, marks[c.id]) == [] and a.states(LISR, topic, 0, marks[a.id]) == []
    await cluster.isr(topic, a, [a, b])
    assert cluster.state(topic).pe == 2, "the cached version is that of the notified state"


@pytest.mark.parametrize("data", [b"not json", b"", b'{"version":1,"partitions":[]}', b'{"partitions":[{"topic":"nosuch","partition":0}]}'])
async def test_strange_isr_notifications_are_removed(cluster: Cluster, data: bytes) -> None:
    cluster.tree.client.create(f"{ISR_CHANGES}/isr_change_", data, sequence=True)
    await emptied(cluster, ISR_CHANGES)
