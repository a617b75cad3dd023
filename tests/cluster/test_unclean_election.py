"""Leaders from outside the ISR: when they are allowed, and what wakes the election (controller 8, 16)."""

from __future__ import annotations

import pytest

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, FakeBroker
from klamm.tests.harness.waits import eventually

KEY = "unclean.leader.election.enable"


async def without_leader(cluster: Cluster, configs: dict[str, str] | None = None) -> tuple[str, FakeBroker, FakeBroker]:
    """A topic on [a, b] whose ISR is [a], with a dead and b alive: (topic, a, b)."""
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]], configs)
    await cluster.isr(topic, a, [a])
    await cluster.lost(a)
    return topic, a, b


async def check_elected(cluster: Cluster, topic: str, b: FakeBroker) -> None:
    state = await cluster.becomes(topic, leader=b.id)
    assert (state.isr, state.recovery) == ([b.id], 1)
    assert (await b.told(LISR, topic, leader=b.id)).leader_recovery_state == 1


async def test_unclean_election_is_allowed_by_the_topic(cluster: Cluster) -> None:
    topic, _, b = await without_leader(cluster, {KEY: "true"})
    await check_elected(cluster, topic, b)
    assert cluster.state(topic).le == 1


async def test_turning_it_on_for_a_topic_elects_at_once(cluster: Cluster) -> None:
    topic, _, b = await without_leader(cluster)
    other, _, c = await without_leader(cluster)
    await cluster.becomes(topic, leader=-1)
    await cluster.becomes(other, leader=-1)
    assert await cluster.alter_config(2, topic, {KEY: "true"}) == 0
    await check_elected(cluster, topic, b)
    assert cluster.state(topic).le == 2
    await cluster.settled(c)
    assert cluster.state(other).leader == -1


async def test_unclean_election_is_turned_on_by_a_config_change_of_another_writer(cluster: Cluster) -> None:
    topic, _, b = await without_leader(cluster)
    await cluster.becomes(topic, leader=-1)
    cluster.tree.put_config("topics", topic, {KEY: "true"})
    await check_elected(cluster, topic, b)


async def test_unclean_election_is_allowed_by_the_controllers_properties(empty: Cluster) -> None:
    await empty.start(0, unclean_leader_election_enable="true")
    topic, _, b = await without_leader(empty)
    await check_elected(empty, topic, b)
    topic, _, b = await without_leader(empty, {KEY: "false"})
    await empty.becomes(topic, leader=-1)
    await empty.settled(b)
    assert empty.state(topic).leader == -1, "the topic's own setting wins"


@pytest.mark.parametrize("entity", [pytest.param("<default>", marks=pytest.mark.slow), "0"])
async def test_unclean_election_is_allowed_by_a_dynamic_config_of_the_broker(empty: Cluster, entity: str) -> None:
    await empty.start(0)
    topic, _, b = await without_leader(empty)
    refused, _, c = await without_leader(empty, {KEY: "false"})
    await empty.becomes(topic, leader=-1)
    await empty.becomes(refused, leader=-1)
    assert await empty.alter_config(4, entity.replace("<default>", ""), {KEY: "true"}) == 0
    await check_elected(empty, topic, b)
    await empty.settled(b, c)
    assert empty.state(refused).leader == -1
    assert await empty.alter_config(4, entity.replace("<default>", ""), {KEY: None}) == 0
    await eventually(lambda: empty.tree.json(f"/config/brokers/{entity}")["config"] == {}, "the setting is gone")


async def test_no_unclean_election_while_a_member_of_the_isr_is_alive(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b, c]], {KEY: "true"})
    await cluster.isr(topic, a, [a, c])
    await cluster.lost(a)
    state = await cluster.becomes(topic, leader=c.id)
    assert (state.isr, state.recovery) == ([c.id], 0)
