"""Topics and partitions come into being, by request and by znode (controller 5.1, 5.2, 6.2)."""

from __future__ import annotations

import os

from klamm.protocol import messages
from klamm.tests.harness.cluster import Cluster, all_told
from klamm.tests.harness.fake_broker import LISR, SR, UMR
from klamm.tests.harness.waits import eventually, eventually_asked

DEAD = 987654
"""A broker id that nobody has."""


async def test_first_state_of_a_partition(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[b, a]])
    epoch = cluster.tree.controller_epoch()
    assert cluster.state(topic) == (b.id, [b.id, a.id], 0, 0, epoch, 0)
    for state in await all_told([a, b], LISR, topic):
        assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch, state.replicas) == (
            b.id,
            0,
            [b.id, a.id],
            0,
            [b.id, a.id],
        )
        assert (state.is_new, state.adding_replicas, state.removing_replicas, state.leader_recovery_state) == (True, [], [], 0)
        assert state.controller_epoch == epoch
    for state in await all_told([a, b, c], UMR, topic):
        assert (state.leader, state.leader_epoch, state.isr, state.zk_version, state.replicas) == (b.id, 0, [b.id, a.id], 0, [b.id, a.id])
        assert state.offline_replicas == []
    assert c.states(LISR, topic) == []
    topic_id = cluster.tree.topic_id(topic)
    for fake in (a, b, c):
        assert {f.topic_ids()[topic] for f in fake.since() if f.api != SR and topic in f.topic_ids()} == {topic_id}


async def test_dead_replicas_are_neither_leader_nor_in_sync(cluster: Cluster) -> None:
    b, c = await cluster.fakes(2)
    topic = await cluster.create([[DEAD, c, b]])
    assert cluster.state(topic)[:4] == (c.id, [c.id, b.id], 0, 0)
    shown = await b.told(UMR, topic)
    assert (shown.replicas, shown.offline_replicas) == ([DEAD, c.id, b.id], [DEAD])


async def test_partition_without_a_live_replica_waits_for_one(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    await cluster.lost(b)
    topic = cluster.topic_name()
    assert await cluster.create_code([[a], [b]], None, topic, timeout_ms=200) == 7
    assert cluster.tree.state(topic, 0) is not None
    assert cluster.tree.state(topic, 1) is None
    shown = (await cluster.metadata([topic])).topics[0]
    assert [p.partition_index for p in shown.partitions] == [0]
    mark = b.mark()
    await cluster.back(b)
    await cluster.becomes(topic, 1, leader=b.id, isr=[b.id], le=0, pe=0)
    state = await b.told(LISR, topic, 1, mark=mark)
    assert (state.is_new, state.leader_epoch) == (True, 0)


async def test_topic_node_written_by_a_tool_is_a_new_topic(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic, topic_id = cluster.topic_name(), os.urandom(16)
    cluster.tree.put_topic(topic, {0: [a.id, b.id], 1: [b.id]}, topic_id)
    await cluster.becomes(topic, 0, leader=a.id, isr=[a.id, b.id], le=0)
    await cluster.becomes(topic, 1, leader=b.id, isr=[b.id], le=0)
    assert cluster.tree.topic_id(topic) == topic_id
    await b.told(LISR, topic, 1)

    async def shown() -> bool:
        return {p.leader_id for p in (await cluster.metadata([topic])).topics[0].partitions} == {a.id, b.id}

    await eventually_asked(shown, "both partitions in Metadata")


async def test_topic_node_grown_by_a_tool_gets_partitions_and_old_ones_stay(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b]])
    topic_id = cluster.tree.topic_id(topic)
    cluster.tree.put_topic(topic, {0: [c.id], 1: [b.id, c.id]}, topic_id)
    await cluster.becomes(topic, 1, leader=b.id, isr=[b.id, c.id], le=0)
    await c.told(LISR, topic, 1, is_new=True)
    await cluster.settled(a, b, c)
    assert cluster.state(topic, 0)[:4] == (a.id, [a.id, b.id], 0, 0)
    assert c.states(LISR, topic, 0) == []
    mark = b.mark()
    await cluster.lost(a)
    told = await b.told(LISR, topic, 0, mark=mark, leader=b.id)
    assert told.replicas == [a.id, b.id], "the replicas that the controller knew stay"


async def test_create_partitions_adds_partitions(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b]])
    mark = c.mark()
    assert await cluster.grow(topic, 3, [[b, c], [c, a]]) == 0
    assert cluster.tree.assignment(topic) == {0: [a.id, b.id], 1: [b.id, c.id], 2: [c.id, a.id]}
    assert (cluster.state(topic, 1).leader, cluster.state(topic, 2).leader) == (b.id, c.id)
    assert {p.partition_index for p in (await cluster.metadata([topic])).topics[0].partitions} == {0, 1, 2}
    assert (await c.told(LISR, topic, 2, mark=mark)).is_new
    assert c.states(LISR, topic, 0) == [] and c.states(UMR, topic, 0, mark) == [], "old partitions are not told again"


async def test_topic_node_removed_by_hand_stays_in_the_caches(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.settled(a, b)
    marks = a.mark(), b.mark()
    cluster.tree.delete(f"/brokers/topics/{topic}", recursive=True)
    await cluster.settled(a, b)
    for fake, mark in zip((a, b), marks, strict=True):
        assert [f for f in fake.since(mark) if f.partitions()] == []
    assert await cluster.create_code([[a]], None, topic) == 36
    assert await cluster.shown_leader(topic) == a.id


async def test_partition_added_to_a_topic_being_deleted_is_taken_out_again(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.lost(b)
    await cluster.becomes(topic, isr=[a.id])
    assert await cluster.delete(topic) == 0
    cluster.tree.put_topic(topic, {0: [a.id, b.id], 1: [a.id]}, cluster.tree.topic_id(topic))
    await eventually(lambda: cluster.tree.assignment(topic) == {0: [a.id, b.id]}, "the topic node restored")
    assert cluster.tree.state(topic, 1) is None
    await cluster.back(b)
    await cluster.gone(f"/brokers/topics/{topic}")


async def test_many_topics_in_one_request_are_all_created(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    request = messages.CreateTopicsRequest
    names = [cluster.topic_name() for _ in range(40)]
    topics = [
        request.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[request.CreatableReplicaAssignment(partition_index=p, broker_ids=[a.id, b.id]) for p in range(5)],
        )
        for name in names
    ]
    answer = await cluster.ask(request(topics=topics, timeout_ms=30_000), 7)
    assert [(t.name, t.error_code) for t in answer.topics] == [(name, 0) for name in names]
    for name, result in zip(names, answer.topics, strict=True):
        assert result.topic_id == cluster.tree.topic_id(name)
        assert [cluster.state(name, p)[:4] for p in range(5)] == [(a.id, [a.id, b.id], 0, 0)] * 5
    await cluster.settled(a, b)
    for fake in (a, b):
        for name in names:
            for p in range(5):
                assert [s.leader for s in fake.states(LISR, name, p)] == [a.id]
                assert [s.leader for s in fake.states(UMR, name, p)] == [a.id]
