"""Replicas move between real brokers and Klamm's while clients write and read, under a real controller and under Klamm's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.tests.harness.members import Members, grave
from klamm.tests.mixed import move_story
from klamm.tests.mixed.kafka_errors import unusual
from klamm.tests.moves import there_and_back, throttled

pytestmark = [pytest.mark.slow, pytest.mark.reference]

SIZE = 12 << 20
RATES = (1 << 20, 2_500_000)


def test_replicas_move_between_real_brokers_so_the_story_asks_nothing_that_kafka_does_not_do(new_members: Callable[..., Members]) -> None:
    members = new_members(lambda _: there_and_back.SETTINGS)
    members.kafka(1, 2, 3, 4)
    there_and_back.told_to(members, (1, 2, 3, 4), SIZE)


def test_replicas_move_between_klamm_brokers_under_a_real_controller(new_members: Callable[..., Members]) -> None:
    members = new_members(lambda _: there_and_back.SETTINGS)
    members.kafka(0)
    members.klamm(1, 2, 3, 4)
    assert members.tree.controller() == 0
    there_and_back.told_to(members, (1, 2, 3, 4), SIZE)
    assert unusual(members.real()) == []
    assert grave(members, 1, 2, 3, 4) == []


@pytest.mark.parametrize("controller", ["real", "klamm"])
def test_replicas_move_between_klamm_and_real_brokers_whoever_controls(new_members: Callable[..., Members], controller: str) -> None:
    """Partition by partition replicas go from a Klamm leader to a real follower, the other way round, and each to its own kind."""
    members = new_members(lambda _: there_and_back.SETTINGS)
    first, second = (members.kafka, members.klamm) if controller == "real" else (members.klamm, members.kafka)
    first(1, 3)
    second(2, 4)
    assert members.tree.controller() in (1, 3)
    there_and_back.told_to(members, (1, 2, 3, 4), SIZE)
    klamm = (2, 4) if controller == "real" else (1, 3)
    assert unusual(members.real()) == []
    assert grave(members, *klamm) == []


@pytest.mark.parametrize("kinds", ["real-real", "klamm-klamm", "real-klamm", "klamm-real"])
def test_rate_of_a_throttled_move_follows_its_change_whoever_leads_and_follows(new_members: Callable[..., Members], kinds: str) -> None:
    """A real controller; the first case shows that the measure is fair."""
    members = new_members(lambda _: throttled.SETTINGS)
    source, target = kinds.split("-")
    members.kafka(1)
    members.kafka(*[broker for broker, kind in ((2, source), (3, target)) if kind == "real"])
    members.klamm(*[broker for broker, kind in ((2, source), (3, target)) if kind == "klamm"])
    assert members.tree.controller() == 1
    story = throttled.Throttled(members, 2, 3, 60 << 20)
    story.throttle(RATES[0])
    story.move()
    throttled.rate_follows(story, RATES, story.throttle)
    story.throttle(throttled.UNLIMITED)
    story.moving.moved({0: [3]})


def test_a_move_goes_on_while_the_office_goes_from_klamm_to_a_real_broker_and_back(new_members: Callable[..., Members]) -> None:
    members = new_members(lambda _: there_and_back.SETTINGS)
    members.klamm(1, 3)
    members.kafka(2, 4)
    move_story.tell(members, (1, 2, 3, 4), offices=(2, 1, 4, 3))
    resumed = "from OnlineReplica to NewReplica failed"  # logged by every real controller that resumes a reassignment (controller 11.3, A2)
    assert [line for line in unusual(members.real()) if resumed not in line.text] == []
    assert [line for line in grave(members, 1, 3) if "STALE_CONTROLLER_EPOCH" not in line] == []
