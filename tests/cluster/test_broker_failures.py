"""What becomes of partitions when brokers die and return (controller 4.3, 6, 7, 8)."""

from __future__ import annotations

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, SR, UMR

UNCLEAN = {"unclean.leader.election.enable": "true"}


async def test_partition_follows_its_leaders_until_none_is_left_and_one_returns(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    assert cluster.state(topic)[:4] == (a.id, [a.id, b.id], 0, 0)
    await cluster.lost(a)
    assert (await cluster.becomes(topic, leader=b.id))[:4] == (b.id, [b.id], 1, 1)
    await cluster.lost(b)
    assert (await cluster.becomes(topic, leader=-1))[:4] == (-1, [b.id], 2, 2)
    await cluster.back(b)
    assert (await cluster.becomes(topic, leader=b.id))[:4] == (b.id, [b.id], 3, 3)


async def test_replica_out_of_sync_is_not_elected_when_unclean_election_is_off(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.lost(a)
    await cluster.lost(b)
    before = await cluster.becomes(topic, leader=-1)
    await cluster.back(a)
    state = await a.told(LISR, topic, mark=a.mark() - 2, leader=-1)
    assert (state.isr, state.leader_epoch) == ([b.id], 2)
    await cluster.settled(a)
    assert cluster.state(topic) == before


async def test_replica_out_of_sync_is_elected_when_unclean_election_is_on(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]], UNCLEAN)
    await cluster.lost(a)
    await cluster.lost(b)
    await cluster.becomes(topic, leader=-1)
    await cluster.back(a)
    state = await cluster.becomes(topic, leader=a.id)
    assert (state.isr, state.le, state.pe, state.recovery) == ([a.id], 3, 3, 1)
    told = await a.told(LISR, topic, leader=a.id, leader_epoch=3)
    assert (told.leader_recovery_state, told.isr, told.is_new) == (1, [a.id], False)


async def test_follower_that_dies_leaves_the_isr(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b]])
    await cluster.settled(a, b, c)
    marks = {f.id: f.mark() for f in (a, c)}
    await cluster.lost(b)
    assert (await cluster.becomes(topic, isr=[a.id]))[:4] == (a.id, [a.id], 1, 1)
    told = await a.told(LISR, topic, mark=marks[a.id])
    assert (told.leader, told.isr, told.leader_epoch, told.partition_epoch, told.is_new) == (a.id, [a.id], 1, 1, False)
    for fake in (a, c):
        shown = await fake.told(UMR, topic, mark=marks[fake.id])
        assert (shown.isr, shown.offline_replicas) == ([a.id], [b.id])
        frame = next(f for f in fake.since(marks[fake.id], UMR) if (topic, 0) in f.partitions())
        assert b.id not in frame.live()
    assert c.states(LISR, topic) == []
    assert c.since(0, SR) == [] and a.since(0, SR) == []


async def test_out_of_sync_follower_dies_without_a_write(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.isr(topic, a, [a])
    before = cluster.state(topic)
    mark = a.mark()
    await cluster.lost(b)
    told = await a.told(UMR, topic, mark=mark, offline_replicas=[b.id])
    assert told.isr == [a.id]
    state = await a.told(LISR, topic, mark=mark)
    assert (state.leader_epoch, state.controller_epoch) == (before.le, cluster.tree.controller_epoch())
    await cluster.settled(a)
    assert cluster.state(topic) == before


async def test_new_leader_is_the_first_in_assignment_order_and_the_isr_keeps_its_order(cluster: Cluster) -> None:
    a, b, c, d = await cluster.fakes(4)
    topic = await cluster.create([[a, b, c, d]])
    await cluster.isr(topic, a, [d, c, a])
    await cluster.lost(a)
    state = await cluster.becomes(topic, leader=c.id)
    assert state.isr == [d.id, c.id], "b was out of sync; the order is that of the ISR"
    # All online replicas are told, in sync or not.
    for online in (b, c, d):
        await online.told(LISR, topic, leader=c.id)


async def test_last_member_of_the_isr_stays_in_it(cluster: Cluster) -> None:
    (a,) = await cluster.fakes(1)
    topic = await cluster.create([[a]])
    await cluster.lost(a)
    assert (await cluster.becomes(topic, leader=-1))[:4] == (-1, [a.id], 1, 1)


async def test_recovering_mark_lasts_until_alter_partition(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b, c]], UNCLEAN)
    await cluster.isr(topic, a, [a])
    await cluster.lost(a)
    assert (await cluster.becomes(topic, leader=b.id))[:2] == (b.id, [b.id])
    assert cluster.state(topic).recovery == 1
    b.bounce()
    await cluster.welcomed(b)
    state = await cluster.becomes(topic, leader=c.id)
    assert (state.isr, state.recovery) == ([c.id], 1)
    assert (await c.told(LISR, topic, leader=c.id)).leader_recovery_state == 1
    await cluster.isr(topic, c, [c, b])
    state = cluster.state(topic)
    assert (state.isr, state.recovery) == ([c.id, b.id], 0)
    node = cluster.tree.json(f"/brokers/topics/{topic}/partitions/0/state")
    assert node.get("leader_recovery_state", 0) == 0
