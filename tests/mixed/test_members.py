"""A real broker is the controller, Klamm's are members: they take what it sends, answer it without error, and know what it knows."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.tests.harness import requests
from klamm.tests.harness.kafka import OwnedBroker, request, wait_for
from klamm.tests.harness.members import Members, grave
from klamm.tests.mixed.answers import answers, faults
from klamm.tests.mixed.kafka_errors import unusual
from klamm.tests.reference.tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.reference]


def metadata(broker: OwnedBroker) -> Any:
    """All that a member's newest Metadata says, in one order."""
    answer = request(broker.port, requests.metadata(None), 12)
    topics = [topic._replace(partitions=sorted(topic.partitions, key=lambda p: p.partition_index)) for topic in answer.topics]
    return answer._replace(topics=sorted(topics, key=lambda t: t.name), brokers=sorted(answer.brokers, key=lambda b: b.node_id))


def same_metadata(members: Members) -> Any:
    """Wait until every running member tells the same, the real one included; what they tell."""

    def look() -> Any:
        first, *rest = [metadata(broker) for broker in members.running()]
        assert all(one == first for one in rest), [first, *rest]
        return first

    return wait_for(look, "every member tells the same")


def rejoin(members: Members, topic: str, partition: int) -> None:
    """Wait until the leader has all replicas in the ISR again."""
    replicas = members.tree.assignment(topic)[partition]
    members.becomes(topic, partition, lambda s: sorted(s.isr) == sorted(replicas), "in sync with all replicas")


def test_klamm_brokers_are_healthy_members_of_a_real_controllers_cluster(members: Members) -> None:
    members.kafka(1, state_changes="TRACE")
    members.klamm(2, 3, 4)
    assert members.tree.controller() == 1
    (controller,) = members.real()
    tools = Tools(members.jars, members.folder, members.bootstrap(1))
    klamm = [2, 3, 4]

    # topics of their own, and one whose leader is real
    tools.succeed("kafka-topics", "--create", "--topic", "ours", "--replica-assignment", "2:3:4,3:4:2,4:2:3")
    members.create("shared", [[1, 2]])
    members.create("doomed", [[2, 3], [3, 1]])
    members.alter_config("ours", retention_ms="60000")
    told = same_metadata(members)
    assert told.controller_id == 1 and {b.node_id for b in told.brokers} == {1, 2, 3, 4}
    tools.succeed("kafka-topics", "--alter", "--topic", "ours", "--partitions", 4, "--replica-assignment", "2:3:4,3:4:2,4:2:3,2:4:3")
    members.shown("ours", 3, lambda leader: leader == 2)

    # a controlled shutdown, asked of the real controller: leaderships are gone before the process is
    before = members.state("ours", 0)
    assert before.leader == 2
    assert members.brokers[2].stop() == 0
    for partition in (0, 3):
        state = members.state("ours", partition)
        assert state.leader != 2 and 2 not in state.isr and state.le == before.le + 1, state
    assert "controlled shutdown done" in members.brokers[2].tail()
    wait_for(lambda: {b.node_id for b in same_metadata(members).brokers} == {1, 3, 4}, "2 is gone everywhere")

    # it returns, is told all it hosts, gets its leaderships back
    members.start(2)
    same_metadata(members)
    for partition in range(4):
        rejoin(members, "ours", partition)
    tools.succeed("kafka-leader-election", "--election-type", "preferred", "--topic", "ours", "--partition", 0)
    members.shown("ours", 0, lambda leader: leader == 2)
    assert members.elect("ours", 3) == 0
    same_metadata(members)

    # kill -9, and back as another life
    members.brokers[3].kill()
    members.becomes("ours", 1, lambda s: s.leader == 4 and 3 not in s.isr, "led by 4")
    members.becomes("doomed", 1, lambda s: s.leader == 1 and s.isr == [1], "led by the real one")
    same_metadata(members)
    members.start(3)
    for partition in range(4):
        rejoin(members, "ours", partition)
    assert members.elect("ours", 1) == 0
    same_metadata(members)

    # frozen until its session is over: it registers anew by itself
    epoch = members.tree.broker_epoch(4)
    members.brokers[4].freeze()
    members.becomes("ours", 2, lambda s: s.leader == 2 and 4 not in s.isr, "led by 2")
    members.brokers[4].thaw()
    wait_for(lambda: members.tree.broker_epoch(4) > epoch, "4 is registered again")
    members.settled()
    for partition in range(4):
        rejoin(members, "ours", partition)
    assert members.elect("ours", 2) == 0
    same_metadata(members)

    # a deletion waits for one that is down, and is finished when it returns
    assert members.brokers[3].stop() == 0
    members.delete("doomed")
    members.delete("shared")
    members.deleted("shared")
    assert members.tree.children("/admin/delete_topics") == ["doomed"]
    members.start(3)
    members.deleted("doomed")
    assert [t.name for t in same_metadata(members).topics] == ["ours"]

    tools.succeed("kafka-topics", "--delete", "--topic", "ours")
    members.deleted("ours")
    assert same_metadata(members).topics == []

    # what the real controller thinks of them
    assert members.tree.controller() == 1, "nothing made the real controller resign"
    heard = {kind: {broker for name, broker, _ in answers(controller) if name == kind} for kind, _, _ in answers(controller)}
    assert heard == {
        "LeaderAndIsrResponse": {1, *klamm},
        "UpdateMetadataResponse": {1, *klamm},
        "StopReplicaResponse": {1, *klamm},
    }
    assert faults(controller) == []
    assert unusual([controller]) == []
    assert grave(members, *klamm) == []
