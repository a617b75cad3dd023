"""State nodes that are not as the controller left them: written by others, from the future, missing, there already (controller 6.2)."""

from __future__ import annotations

import json

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, UMR
from klamm.tests.harness.waits import eventually

FUTURE = 1_000_000


async def test_state_whose_version_changed_is_read_again(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b, c]])
    other = await cluster.create([[a, b, c]])
    cluster.tree.put_state(topic, 0, a.id, [a.id, c.id], 4, cluster.tree.controller_epoch())
    await cluster.lost(a)
    assert (await cluster.becomes(topic, leader=c.id))[:4] == (c.id, [c.id], 5, 2), "decided on what is there now"
    assert (await cluster.becomes(other, leader=b.id))[:4] == (b.id, [b.id, c.id], 1, 1)
    assert (await c.told(LISR, topic, leader=c.id)).leader_epoch == 5


async def test_state_of_a_later_controller_is_not_touched(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    other = await cluster.create([[a, b]])
    cluster.tree.put_state(topic, 0, a.id, [a.id, b.id], 3, FUTURE)
    before = cluster.state(topic)
    mark = b.mark()
    await cluster.lost(a)
    await cluster.becomes(other, leader=b.id)
    await cluster.settled(b)
    assert cluster.state(topic) == before
    assert not [s for s in b.states(LISR, topic, mark=mark) if s.leader == b.id]
    top, results = await cluster.elect([(topic, 0)], kind=1)
    assert (top, results[topic, 0][0]) == (0, 83)
    assert cluster.state(topic) == before


async def test_missing_state_node_concerns_that_partition_only(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b], [a, b]])
    cluster.tree.delete(f"/brokers/topics/{topic}/partitions/0/state")
    await cluster.lost(a)
    assert (await cluster.becomes(topic, 1, leader=b.id))[:4] == (b.id, [b.id], 1, 1)
    await cluster.settled(b)
    assert cluster.tree.state(topic, 0) is None


async def test_state_that_is_no_json_counts_as_missing(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b], [a, b]])
    path = f"/brokers/topics/{topic}/partitions/0/state"
    cluster.tree.put(path, b"not json")
    await cluster.lost(a)
    await cluster.becomes(topic, 1, leader=b.id)
    await cluster.settled(b)
    assert cluster.tree.get(path) == b"not json"


async def test_new_topic_keeps_a_state_that_is_there_already(cluster: Cluster) -> None:
    """Creating the state fails; the partition is not told to anybody until a new controller reads it."""
    a, b = await cluster.fakes(2)
    topic = cluster.topic_name()
    node = {"version": 2, "partitions": {"0": [a.id, b.id]}, "adding_replicas": {}, "removing_replicas": {}}
    state = {"controller_epoch": 1, "leader": b.id, "version": 1, "leader_epoch": 7, "isr": [b.id, a.id]}
    root = f"/brokers/topics/{topic}"
    cluster.tree.all_or_nothing(
        ("create", root, json.dumps(node).encode(), False),
        ("create", f"{root}/partitions", None, False),
        ("create", f"{root}/partitions/0", None, False),
        ("create", f"{root}/partitions/0/state", json.dumps(state).encode(), False),
    )
    await eventually(lambda: cluster.tree.topic_id(topic), "the topic was seen")
    await cluster.settled(a, b)
    assert a.states(LISR, topic) == [] and a.states(UMR, topic) == []
    await cluster.restart_controller()
    told = await a.told(LISR, topic)
    assert (told.leader, told.leader_epoch, told.isr, told.is_new) == (b.id, 7, [b.id, a.id], False)
    assert cluster.state(topic)[:4] == (b.id, [b.id, a.id], 7, 0)


async def test_broken_topic_node_has_no_partitions(cluster: Cluster) -> None:
    (a,) = await cluster.fakes(1)
    broken = cluster.topic_name()
    cluster.tree.put(f"/brokers/topics/{broken}", b"not json")
    await eventually(
        lambda: b"topic_id" in (cluster.tree.get(f"/brokers/topics/{broken}") or b""), "the id filled in, over the broken node"
    )
    assert cluster.tree.assignment(broken) == {}
    topic = await cluster.create([[a]])
    assert cluster.state(topic).leader == a.id
