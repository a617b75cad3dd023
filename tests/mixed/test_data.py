"""Klamm is the controller, three real brokers carry the data: what happens to records, leaders, ISRs and logs while brokers come and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.tests.harness.members import Members, grave
from klamm.tests.harness.record_clients import produce, read_all
from klamm.tests.mixed.data_story import DataStory, settings_of
from klamm.tests.mixed.kafka_errors import unusual

pytestmark = [pytest.mark.slow, pytest.mark.reference]


def test_real_brokers_carry_the_data_under_klamms_control(new_members: Callable[..., Members]) -> None:
    members = new_members(settings_of)
    members.klamm(0)
    members.kafka(1, 2, 3)
    story = DataStory(members, [1, 2, 3])
    story.tell()
    assert (members.tree.controller(), members.tree.controller_epoch()) == (0, 1), "Klamm has been controller all the time"
    assert unusual(members.real()) == []
    assert grave(members, 0) == []


def test_clients_that_see_the_klamm_broker_read_and_write_too(members: Members) -> None:
    """One listener for all: clients have the Klamm broker among those they connect to and ask for metadata.

    Groups are left out: librdkafka that happens to be connected to a broker without FindCoordinator only may ask nobody else.
    """
    members.klamm(0)
    members.kafka(1, 2)
    texts = {f"{n}": 1 for n in range(200)}
    for first in (0, 1):
        bootstrap = members.bootstrap(first)
        topic = f"by-{first}"
        members.create(topic, [[1, 2], [2, 1]])
        produce(bootstrap, topic, texts, idempotent=False)
        assert read_all(bootstrap, topic) == texts
    assert unusual(members.real()) == []
    assert grave(members, 0) == []
