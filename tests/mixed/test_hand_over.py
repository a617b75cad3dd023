"""The controller's office changes hands between Klamm and real brokers, ten times, while clients write and read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.mixed.data_story import dedicated
from klamm.tests.mixed.hand_over import TOPICS, HandOver
from klamm.tests.mixed.kafka_errors import unusual

pytestmark = [pytest.mark.slow, pytest.mark.reference]

CYCLES = ["delete", "kill", "delete", "kill", "delete"]


def test_the_office_moves_to_a_real_broker_and_back_five_times(new_members: Callable[..., Members]) -> None:
    members = new_members(dedicated)
    members.klamm(0)
    members.kafka(1, 2, 3)
    account = HandOver(members, [1, 2, 3]).tell(CYCLES)
    print(account)
    assert [how for _, _, how in account.moves] == [how for how in CYCLES for _ in ("there", "back")]
    assert all((old == 0) != (new == 0) for old, new, _ in account.moves)
    assert account.epochs == list(range(1, account.elections + 2)), "every election raised the epoch, by one"
    assert account.lost == [] and account.unread == []
    assert account.failed == [] and account.fatal == []
    assert account.duplicated["idempotent"] == 0
    assert min(account.acknowledged.values()) > 500

    tree = members.tree
    for topic in TOPICS:
        for partition, replicas in tree.assignment(topic).items():
            state = members.state(topic, partition)
            assert sorted(state.isr) == sorted(replicas) and state.leader in replicas and state.ce <= account.epochs[-1], state
    assert sorted(tree.children("/brokers/topics")) == ["__consumer_offsets", *sorted(TOPICS)]
    for path in ("/admin/delete_topics", "/isr_change_notification", "/log_dir_event_notification"):
        assert tree.children(path) == [], path
    assert tree.children("/brokers/ids") == ["0", "1", "2", "3"]
    assert unusual(members.real()) == []
