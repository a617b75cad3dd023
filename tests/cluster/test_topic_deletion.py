"""Topics go: the order of what brokers are told, and what holds a deletion up (controller 12)."""

from __future__ import annotations

import pytest

from klamm.tests.harness import requests
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, SR, UMR
from klamm.tests.harness.waits import eventually, eventually_asked

STORAGE_ERROR = 56


def nodes(topic: str) -> list[str]:
    return [f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}"]


async def all_gone(cluster: Cluster, topic: str) -> None:
    for path in nodes(topic):
        await cluster.gone(path)


def all_there(cluster: Cluster, topic: str) -> bool:
    return all(cluster.tree.exists(path) is not None for path in nodes(topic))


async def test_deletion_stops_replicas_then_deletes_them_then_removes_the_nodes(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b], [b, a]], {"retention.ms": "1000"})
    await cluster.settled(a, b, c)
    marks = {f.id: f.mark() for f in (a, b, c)}
    assert await cluster.delete(topic) == 0
    assert (await cluster.metadata([topic])).topics[0].error_code == 3
    await all_gone(cluster, topic)
    await cluster.settled(a, b, c)
    for fake in (a, b, c):
        for p, isr in ((0, [a.id, b.id]), (1, [b.id, a.id])):
            shown = fake.states(UMR, topic, p, marks[fake.id])
            assert [(s.leader, s.leader_epoch, s.zk_version, s.isr) for s in shown] == [(-2, 0, 0, isr)]
            assert fake.states(LISR, topic, p, marks[fake.id]) == [], "the shrinking ISR of a topic being deleted is not told"
            stops = fake.states(SR, topic, p, marks[fake.id])
            assert [(s.delete_partition, s.leader_epoch) for s in stops] == ([] if fake is c else [(False, -2), (True, -2)])
        kinds = [f.api for f in fake.since(marks[fake.id]) if (topic, 0) in f.partitions()]
        assert kinds == ([UMR] if fake is c else [UMR, SR, SR])
    assert await cluster.create([[a]], topic=topic) == topic, "the name is free again"
    assert cluster.state(topic)[:4] == (a.id, [a.id], 0, 0)


async def test_dead_replica_holds_the_nodes_until_it_is_back(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.lost(b)
    await cluster.becomes(topic, isr=[a.id])
    assert await cluster.delete(topic) == 0, "out of the metadata is deleted enough for the client"
    assert (await cluster.metadata([topic])).topics[0].error_code == 3
    await eventually(lambda: [s.delete_partition for s in a.states(SR, topic)] == [False, True], "the living replica is deleted")
    await cluster.settled(a)
    assert all_there(cluster, topic)
    assert cluster.state(topic).leader == -1 or cluster.state(topic).leader == a.id
    assert await cluster.create_code([[a]], None, topic) == 36
    mark, old = b.mark(), a.mark()
    await cluster.back(b)
    await all_gone(cluster, topic)
    assert (topic, 0) not in b.frames[mark].partitions(), "the first UpdateMetadata leaves it out"
    assert [s.delete_partition for s in b.states(SR, topic, mark=mark)] == [False, True]
    assert a.states(SR, topic, mark=old) == [], "a is done with it"


async def test_deletion_goes_on_after_a_fail_over(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.lost(b)
    await cluster.becomes(topic, isr=[a.id])
    assert await cluster.delete(topic) == 0
    await cluster.settled(a)
    await cluster.restart_controller()
    await cluster.settled(a)
    assert all_there(cluster, topic)
    await cluster.back(b)
    await all_gone(cluster, topic)


async def test_replica_that_cannot_be_deleted_holds_the_deletion_until_it_returns(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    b.errors[SR, topic, 0] = STORAGE_ERROR
    assert await cluster.delete(topic) == 0
    await eventually(lambda: len(b.states(SR, topic)) >= 3, "b was told to delete, and failed")
    await cluster.settled(a, b)
    assert all_there(cluster, topic)
    stops = [s.delete_partition for s in b.states(SR, topic)]
    assert stops == [False, True, False], "stopped again, but not asked to delete again by itself"
    del b.errors[SR, topic, 0]
    b.bounce()
    await all_gone(cluster, topic)


async def test_failure_of_the_first_stop_does_not_count(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    a.hold(SR)
    a.errors[SR, topic, 0] = STORAGE_ERROR
    assert await cluster.delete(topic) == 0
    await eventually(lambda: [s.delete_partition for s in a.states(SR, topic)] == [False], "the first StopReplica")
    a.release()
    del a.errors[SR, topic, 0]
    await all_gone(cluster, topic)


async def test_replica_that_dies_while_it_is_deleted_is_deleted_on_its_return(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    b.hold(SR)
    assert await cluster.delete(topic) == 0
    await eventually(lambda: b.states(SR, topic), "b is asked")
    await cluster.lost(b)
    await cluster.settled(a)
    assert all_there(cluster, topic)
    b.release()
    await cluster.back(b)
    await all_gone(cluster, topic)


async def test_deletion_of_an_unknown_topic_is_removed(cluster: Cluster) -> None:
    cluster.tree.put("/admin/delete_topics/never-was", b"")
    await cluster.gone("/admin/delete_topics/never-was")


async def test_deletion_written_by_a_tool_is_carried_out(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topics = [await cluster.create([[a, b]]) for _ in range(3)]
    for topic in topics:
        cluster.tree.put(f"/admin/delete_topics/{topic}", b"")
    for topic in topics:
        await all_gone(cluster, topic)


async def test_partition_that_never_had_a_leader_is_deleted(cluster: Cluster) -> None:
    (a,) = await cluster.fakes(1)
    topic = cluster.topic_name()
    assert await cluster.create_code([[a], [987654]], None, topic, timeout_ms=0) == 7
    await cluster.becomes(topic, leader=a.id)

    async def shown() -> bool:
        return await cluster.shown_leader(topic) == a.id

    await eventually_asked(shown, "partition 0 in Metadata")
    assert await cluster.delete(topic) == 0
    await cluster.settled(a)
    assert all_there(cluster, topic), "its replica is on a broker that is not there"


@pytest.mark.parametrize("version", [pytest.param(0, marks=pytest.mark.slow), 2, 3, pytest.param(6, marks=pytest.mark.slow)])
async def test_deletion_can_be_forbidden(empty: Cluster, version: int) -> None:
    await empty.start(0, delete_topic_enable="false")
    (a,) = await empty.fakes(1)
    topic = await empty.create([[a]])
    assert (await empty.ask(requests.delete_topics(topic, version=version, timeout_ms=1000), version)).responses[0].error_code == (
        73 if version >= 3 else 42
    )
    empty.tree.put(f"/admin/delete_topics/{topic}", b"")
    await empty.gone(f"/admin/delete_topics/{topic}")
    await empty.settled(a)
    assert empty.tree.state(topic) is not None
    empty.tree.steal_controller()
    empty.tree.put(f"/admin/delete_topics/{topic}", b"")
    empty.tree.delete("/controller")
    await empty.gone(f"/admin/delete_topics/{topic}")
    assert empty.tree.state(topic) is not None
