"""Klamm and real brokers in one cluster of an older inter-broker protocol, each as controller of the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.tests.harness.members import Members, grave
from klamm.tests.mixed import old_protocol_story
from klamm.tests.mixed.answers import answers, faults
from klamm.tests.mixed.kafka_errors import unusual

pytestmark = [pytest.mark.slow, pytest.mark.reference]


@pytest.mark.parametrize("version", ["2.6", "1.0"])
def test_each_side_is_controller_of_the_other_in_older_inter_broker_protocols(new_members: Callable[..., Members], version: str) -> None:
    members = new_members(lambda _: {"inter_broker_protocol_version": version})
    members.klamm(0)
    members.add_kafka(1, 2, state_changes="TRACE")
    members.start(1, 2)
    old_protocol_story.tell(members)
    notified = members.tree.exists("/isr_change_notification")
    assert notified is not None and notified.children_version > 0, "ISR changes were told by notifications"
    assert members.tree.children("/isr_change_notification") == []
    one = members.real()[0]
    assert {(kind, broker) for kind, broker, _ in answers(one)} >= {
        (kind, 0) for kind in ("LeaderAndIsrResponse", "UpdateMetadataResponse", "StopReplicaResponse")
    }
    assert faults(one) == []
    assert unusual(members.real()) == []
    assert grave(members, 0) == []
