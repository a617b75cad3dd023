"""A topic is deleted while a broker that has no replica of it is away: nobody tells that broker when it is back (controller 12.3)."""

from __future__ import annotations

import pytest

from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members

pytestmark = [pytest.mark.slow, pytest.mark.reference]


@pytest.mark.parametrize("kind", ["klamm", "kafka"])
def test_a_broker_that_missed_a_deletion_shows_the_topic_until_the_name_is_created_and_deleted_again(members: Members, kind: str) -> None:
    start = members.klamm if kind == "klamm" else members.kafka
    start(1)
    start(2, 3)
    away = members.brokers[3]
    members.create("gone", [[1, 2], [2, 1]])
    members.create("kept", [[1, 2], [2, 1]])
    epoch = members.tree.broker_epoch(3)
    away.freeze()
    wait_for(lambda: sorted(members.brokers[1].known()[0]) == [1, 2], "3 is not registered any more")
    members.delete("gone")
    members.deleted("gone")
    away.thaw()
    wait_for(lambda: members.tree.broker_epoch(3) > epoch, "3 is registered again")
    members.create("after", [[3]])  # by now it has been told everything
    assert members.tree.controller() == 1
    assert {broker.id: set(members.topics(broker)) - {"kept", "after"} for broker in members.running()} == {1: set(), 2: set(), 3: {"gone"}}
    members.create("gone", [[1, 2], [2, 1]])
    members.delete("gone")
    wait_for(lambda: set(members.topics(away)) == {"kept", "after"}, "3 knows it now")
