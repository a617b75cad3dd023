"""Moves under a throttle of KIP-179: the rate follows its change while data moves; at the end the throttle is gone, and only that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import klamm
from klamm.admin import AdminClient
from klamm.tests.harness import requests
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import wait_for
from klamm.tests.moves.moving import Local, MovingCluster, equal_on_disk
from klamm.tests.moves.throttled import (
    FOLLOWER_RATE,
    FOLLOWERS,
    LEADER_RATE,
    LEADERS,
    SETTINGS,
    TOPIC,
    Throttled,
    rate_follows,
)

IDS = (1, 2, 3)
SOURCE, TARGET, OTHER = IDS
ENABLED = {**SETTINGS, "kip179_enable": "true"}
REMOVALS = ("throttled_replicas_removal", "throttled_rates_removal", "remove_throttled_replicas", "remove_throttled_rates")
SOON = 2.0
"""Seconds in which the short test measures a rate."""


@pytest.fixture
def local(zookeeper: str, chroot: str) -> Iterator[Local]:
    """Three brokers in this process."""
    tree = Tree(zookeeper, chroot)
    with klamm.Cluster(brokers=3, config={name.replace("_", "."): value for name, value in ENABLED.items()}, zookeeper=tree.hosts):
        yield Local(tree)
    tree.close()


def config(tree: Tree, entity: str) -> dict[str, str]:
    """The properties of `topics/t` or `brokers/1`."""
    node: Any = tree.json(f"/config/{entity}")
    return {} if node is None else dict(node["config"])


def told(cluster: MovingCluster, size: int, rates: tuple[int, int], seconds: float) -> None:
    """A person has set properties that are not of the request's throttle; they are there at the end, and the throttle is not."""
    tree, story = cluster.tree, Throttled(cluster, SOURCE, TARGET, size)
    mine = {"retention.ms": "7654321"}
    others = {LEADER_RATE: "1234567"}
    for kind, name, values, to in ((requests.TOPIC, TOPIC, mine, SOURCE), (requests.BROKER, str(OTHER), others, OTHER)):
        (answer,) = cluster.ask(requests.set_configs(kind, name, values), 1, to).responses
        assert answer.error_code == 0, answer
    with AdminClient(cluster.bootstrap()) as admin:
        admin.reassign_partitions({(TOPIC, 0): [TARGET]}, throttle=rates[0]).all()
        assert config(tree, f"topics/{TOPIC}") == {**mine, LEADERS: f"0:{SOURCE}", FOLLOWERS: f"0:{TARGET}"}

        def alter(rate: int) -> None:
            admin.alter_interbroker_throttled_rates({SOURCE: (rate, rate), TARGET: (rate, rate)}).all()

        rate_follows(story, rates, alter, seconds)
        assert all(config(tree, f"brokers/{i}") == {LEADER_RATE: str(rates[1]), FOLLOWER_RATE: str(rates[1])} for i in (SOURCE, TARGET))
        alter(size)
    story.moving.moved({0: [TARGET]})
    wait_for(lambda: not any(tree.exists(f"/admin/{name}") for name in REMOVALS), "the throttle is removed")
    assert config(tree, f"topics/{TOPIC}") == mine
    assert [config(tree, f"brokers/{i}") for i in IDS] == [{}, {}, others]
    assert story.size(TARGET) >= size
    wait_for(lambda: story.size(SOURCE) == 0, "the old replica is gone")


@pytest.mark.slow
def test_throttle_of_a_move_is_gone_when_it_ends_and_nothing_else_is(local: Local) -> None:
    told(local, 12 << 20, (500_000, 1_000_000), SOON)


@pytest.mark.slow
def test_rate_of_a_50_mb_move_follows_its_change_and_is_gone_at_the_end(new_members: Callable[..., Members]) -> None:
    members = new_members(ENABLED)
    members.klamm(*IDS)
    told(members, 50 << 20, (1_000_000, 2_500_000), 10.0)
    for broker in members.running():
        broker.stop()
    assert equal_on_disk({0: [TARGET]}, {TARGET: members.brokers[TARGET].folder / "data"}, TOPIC) > 50 << 20
