"""A broker asks to leave (controller 10.4)."""

from __future__ import annotations

import asyncio

import pytest

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, SR, UMR
from klamm.tests.harness.waits import eventually

DEAD = 987654


async def test_leaders_move_and_the_isr_shrinks(cluster: Cluster) -> None:
    x, b, c = await cluster.fakes(3)
    led = await cluster.create([[x, b, c]])
    followed = await cluster.create([[b, x]])
    await cluster.settled(x, b, c)
    marks = {f.id: f.mark() for f in (x, b, c)}
    assert await cluster.controlled_shutdown(x) == (0, set())
    assert cluster.state(led)[:4] == (b.id, [b.id, c.id], 1, 1)
    assert cluster.state(followed)[:4] == (b.id, [b.id], 1, 1)
    await cluster.settled(x, b, c)
    for fake in (x, b, c):
        state = fake.states(LISR, led, mark=marks[fake.id])[-1]
        assert (state.leader, state.isr, state.leader_epoch, state.is_new) == (b.id, [b.id, c.id], 1, False)
        shown = fake.states(UMR, led, mark=marks[fake.id])[-1]
        assert (shown.leader, shown.isr, shown.offline_replicas) == (b.id, [b.id, c.id], [x.id])
        assert x.id in fake.since(marks[fake.id], UMR)[-1].live() or fake.since(marks[fake.id], UMR)
    stops = x.states(SR, followed, mark=marks[x.id])
    assert [(s.leader_epoch, s.delete_partition) for s in stops] == [(0, False), (0, False)], "both carry the epoch from before the shrink"
    assert x.states(SR, led, mark=marks[x.id]) == []
    assert x.states(LISR, followed, mark=marks[x.id]) == []
    assert [s.leader_epoch for s in b.states(LISR, followed, mark=marks[b.id])] == [1]
    assert b.since(marks[b.id], SR) == []


async def test_broker_that_shuts_down_still_gets_everything_but_is_not_electable(cluster: Cluster) -> None:
    x, b = await cluster.fakes(2)
    topic = await cluster.create([[b, x]])
    assert await cluster.controlled_shutdown(x) == (0, set())
    assert (await cluster.alter_partition(topic, b, [b, x]))[1].error_code == 107
    other = await cluster.create([[x, b]])
    assert cluster.state(other)[:2] == (b.id, [b.id])
    assert (await x.told(UMR, other)).offline_replicas == [x.id]
    top, results = await cluster.elect([(other, 0)])
    assert (top, results[other, 0][0]) == (0, 80)
    x.bounce()
    await cluster.welcomed(x)
    await cluster.isr(topic, b, [b, x])
    assert cluster.state(topic).isr == [b.id, x.id], "a new epoch means a new broker"


async def test_only_member_of_the_isr_remains_leader(cluster: Cluster) -> None:
    x, b = await cluster.fakes(2)
    topic = await cluster.create([[x, b]])
    single = await cluster.create([[x]])
    await cluster.isr(topic, x, [x])
    before = cluster.state(topic), cluster.state(single)
    assert await cluster.controlled_shutdown(x) == (0, {(topic, 0)}), "a partition with one replica is not counted"
    assert (cluster.state(topic), cluster.state(single)) == before
    await cluster.isr(topic, x, [x])
    code, left = await cluster.controlled_shutdown(x)
    assert (code, left) == (0, {(topic, 0)})


async def test_leaders_do_not_move_to_a_broker_that_shuts_down_too(cluster: Cluster) -> None:
    x, y, b = await cluster.fakes(3)
    topic = await cluster.create([[x, y, b]])
    alone = await cluster.create([[x, y]])
    assert await cluster.controlled_shutdown(y) == (0, set())
    assert cluster.state(topic)[:2] == (x.id, [x.id, b.id])
    assert await cluster.controlled_shutdown(x) == (0, {(alone, 0)}), "the other one is leaving too"
    assert cluster.state(topic)[:2] == (b.id, [b.id])
    assert cluster.state(alone)[:2] == (x.id, [x.id])


async def test_two_brokers_that_shut_down_at_once_both_leave_the_isr(cluster: Cluster) -> None:
    x, y, b = await cluster.fakes(3)
    topic = await cluster.create([[x, b, y]])
    cut = await cluster.create([[y, x, b]])
    first, second = await asyncio.gather(cluster.controlled_shutdown(x), cluster.controlled_shutdown(y))
    assert (first, second) == ((0, set()), (0, set()))
    for t in (topic, cut):
        assert cluster.state(t)[:2] == (b.id, [b.id])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_every_version_moves_leaders(cluster: Cluster, version: int) -> None:
    x, b = await cluster.fakes(2)
    topic = await cluster.create([[x, b]])
    assert await cluster.controlled_shutdown(x, version=version) == (0, set())
    assert cluster.state(topic)[:2] == (b.id, [b.id])


async def test_controlled_shutdown_takes_the_present_broker_epoch_or_a_higher_one(cluster: Cluster) -> None:
    x, b = await cluster.fakes(2)
    topic = await cluster.create([[x, b]])
    assert await cluster.controlled_shutdown(x, epoch=x.epoch - 1) == (77, set())
    assert cluster.state(topic).leader == x.id
    assert await cluster.controlled_shutdown(x, epoch=x.epoch + 1000) == (0, set()), "a higher one passes"
    assert cluster.state(topic).leader == b.id
    assert await cluster.controlled_shutdown(x, broker_id=DEAD, epoch=-1) == (8, set())
    assert await cluster.controlled_shutdown(x, broker_id=DEAD, version=1) == (8, set())
    assert await cluster.controlled_shutdown(x, broker_id=DEAD, epoch=5) == (-1, set())


async def test_repeated_request_has_the_same_outcome(cluster: Cluster) -> None:
    x, b = await cluster.fakes(2)
    topic = await cluster.create([[x, b]])
    assert await cluster.controlled_shutdown(x) == (0, set())
    before = cluster.state(topic)
    assert await cluster.controlled_shutdown(x) == (0, set())
    assert cluster.state(topic) == before


async def test_topic_being_deleted_is_left_alone(cluster: Cluster) -> None:
    x, b, c = await cluster.fakes(3)
    topic = await cluster.create([[x, b, c]])
    await cluster.lost(c)
    await cluster.becomes(topic, isr=[x.id, b.id])
    assert await cluster.delete(topic) == 0
    x_stops = x.mark()
    await cluster.settled(x, b)
    before = cluster.state(topic)
    assert await cluster.controlled_shutdown(x) == (0, set())
    await cluster.settled(x, b)
    assert cluster.state(topic) == before
    assert x.states(LISR, topic, mark=x_stops) == []


async def test_process_moves_its_leaders_before_it_ends(empty: Cluster) -> None:
    await empty.start(0)
    await empty.start(1, controlled_shutdown_max_retries=3)
    topic = await empty.create([[1, 0]])
    await eventually(lambda: empty.state(topic)[:2] == (1, [1, 0]), "led by 1")
    assert await empty.stop(1) == 0
    state = empty.state(topic)
    assert (state.leader, state.isr, state.le) == (0, [0], 1)
    assert empty.tree.broker_epoch(1) == -1
