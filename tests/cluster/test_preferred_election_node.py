"""The znode `/admin/preferred_replica_election` (controller 10.2)."""

from __future__ import annotations

import asyncio

import pytest

from klamm.tests.harness.cluster import Cluster, Partition
from klamm.tests.harness.fake_broker import LISR

NODE = "/admin/preferred_replica_election"


def ask(cluster: Cluster, *partitions: Partition) -> None:
    cluster.tree.put(NODE, {"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})


@pytest.mark.requirement("R183-18")
async def test_node_written_twice_in_a_row_elects_twice(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    for turn in (1, 2):
        await cluster.move_away(topic, [a, b])
        before = cluster.state(topic)
        ask(cluster, (topic, 0))
        state = await cluster.becomes(topic, leader=a.id)
        assert (state.le, state.pe, state.isr) == (before.le + 1, before.pe + 1, before.isr), f"turn {turn}"
        for fake in (a, b):
            assert (await fake.told(LISR, topic, leader_epoch=state.le)).leader == a.id
        await cluster.gone(NODE)


@pytest.mark.requirement("R183-18")
async def test_node_is_removed_when_the_election_fails_too(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.lost(a)
    before = await cluster.becomes(topic, leader=b.id)
    ask(cluster, (topic, 0), ("nosuch", 0), (topic, 9))
    await cluster.gone(NODE)
    await cluster.settled(b)
    assert cluster.state(topic) == before


@pytest.mark.requirement("R183-18")
async def test_election_by_node_and_by_request_at_the_same_time_elects_once(cluster: Cluster) -> None:
    fakes = await cluster.fakes(2)
    topics = [await cluster.create([fakes]) for _ in range(6)]
    fakes[0].bounce()
    for topic in topics:
        await cluster.becomes(topic, leader=fakes[1].id)
    await cluster.welcomed(fakes[0])
    for topic in topics:
        await cluster.isr(topic, fakes[1], [fakes[1], fakes[0]])
    before = [cluster.state(topic) for topic in topics]
    ask(cluster, *((topic, 0) for topic in topics[:4]))
    (top, results), _ = await asyncio.gather(cluster.elect([(t, 0) for t in topics[2:]]), cluster.gone(NODE))
    assert top == 0
    assert {code for code, _ in results.values()} <= {0, 84}
    for topic, old in zip(topics, before, strict=True):
        state = await cluster.becomes(topic, leader=fakes[0].id)
        assert state.le == old.le + 1, "elected once, not twice"


@pytest.mark.parametrize("data", [b"not json", b"", b"{}", b'{"version":1}', b"[]"])
async def test_unreadable_preferred_election_node_is_removed(cluster: Cluster, data: bytes) -> None:
    cluster.tree.put(NODE, data)
    await cluster.gone(NODE)
    topic, a, _ = await cluster.moved_away()
    ask(cluster, (topic, 0))
    await cluster.becomes(topic, leader=a.id)


async def test_election_by_node_is_never_unclean(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[b, a]])
    await cluster.isr(topic, b, [b])
    await cluster.lost(b)
    before = await cluster.becomes(topic, leader=-1)
    ask(cluster, (topic, 0))
    await cluster.gone(NODE)
    await cluster.settled(a)
    assert cluster.state(topic) == before


async def test_node_created_while_the_former_one_is_worked_on_is_worked_on_next(cluster: Cluster) -> None:
    first, a, _ = await cluster.moved_away()
    second, c, _ = await cluster.moved_away()
    ask(cluster, (first, 0))
    await cluster.gone(NODE)
    ask(cluster, (second, 0))
    await cluster.gone(NODE)
    await cluster.becomes(first, leader=a.id)
    await cluster.becomes(second, leader=c.id)
