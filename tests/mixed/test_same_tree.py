"""ZooKeeper's content after each step of one story, told to a cluster of real brokers, and to one in which Klamm takes the place of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.tests.harness.members import Members, grave
from klamm.tests.mixed.kafka_errors import unusual
from klamm.tests.mixed.tree_story import TreeStory, differences, settings_of

pytestmark = [pytest.mark.slow, pytest.mark.reference]


def test_every_step_leaves_in_zookeeper_what_real_controllers_leave(new_members: Callable[..., Members]) -> None:
    dumps = []
    for zero in ("kafka", "klamm"):
        members = new_members(settings_of)
        getattr(members, zero)(0)
        members.add_kafka(1, 2)
        dumps.append(TreeStory(members).tell())
        assert unusual(members.real()) == []
        if zero == "klamm":
            assert grave(members, 0) == []
        members.close()
    kafka, ours = dumps
    found = {step: differences(kafka[step], ours[step]) for step in kafka}
    assert {step: differing for step, differing in found.items() if differing} == {}
    assert all(len(kafka[step]) > 20 for step in kafka)
