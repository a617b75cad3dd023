"""The controller's own rebalance (controller 10.3). The first check comes five seconds after fail-over, whatever the interval."""

from __future__ import annotations

import pytest

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import FakeBroker

PROPERTIES = {"auto_leader_rebalance_enable": "true", "leader_imbalance_check_interval_seconds": 1}


async def moved(cluster: Cluster, away: int, of: int) -> tuple[list[str], FakeBroker, FakeBroker]:
    """`of` topics on [a, b], `away` of them led by b: (topics, the moved ones first; a, b)."""
    a, b = await cluster.fakes(2)
    topics = [await cluster.create([[a, b]]) for _ in range(of)]
    for topic in topics[away:]:
        await cluster.isr(topic, a, [a])
    # b leads what it is in sync for; the others keep a, because the ISR has nobody else
    code, left = await cluster.controlled_shutdown(a)
    assert (code, left) == (0, {(topic, 0) for topic in topics[away:]})
    a.bounce()
    await cluster.welcomed(a)
    for topic in topics[:away]:
        assert (await cluster.becomes(topic, leader=b.id)).isr == [b.id]
    for topic in topics[away:]:
        await cluster.becomes(topic, leader=a.id)
    return topics, a, b


@pytest.mark.slow
async def test_leaders_move_only_above_the_imbalance_percentage(empty: Cluster) -> None:
    await empty.start(0, **PROPERTIES, leader_imbalance_per_broker_percentage=25)
    at_limit, a, b = await moved(empty, 1, 4)
    above, c, d = await moved(empty, 2, 4)
    for topics, first, second, away in ((at_limit, a, b, 1), (above, c, d, 2)):
        for topic in topics[:away]:
            await empty.isr(topic, second, [second, first])
    for topic in above[:2]:
        state = await empty.becomes(topic, leader=c.id)
        assert state.isr == [d.id, c.id]
    # one more whole round passes: the group of c is balanced, that of a is at its limit and stays
    more, e, f = await moved(empty, 1, 1)
    await empty.isr(more[0], f, [f, e])
    await empty.becomes(more[0], leader=e.id)
    assert empty.state(at_limit[0]).leader == b.id


@pytest.mark.slow
async def test_leaders_move_only_to_a_replica_in_sync(empty: Cluster) -> None:
    await empty.start(0, **PROPERTIES)
    (topic,), a, b = await moved(empty, 1, 1)
    (other,), c, d = await moved(empty, 1, 1)
    before = empty.state(topic)
    await empty.isr(other, d, [d, c])
    await empty.becomes(other, leader=c.id)
    assert empty.state(topic) == before, "a is alive but not in the ISR"
    await empty.isr(topic, b, [b, a])
    await empty.becomes(topic, leader=a.id)
