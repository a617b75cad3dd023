"""The story of a cluster whose brokers speak an older inter-broker protocol: older LeaderAndIsr, UpdateMetadata and StopReplica, topics
without ids, and, below 2.7, leaders that write their ISR changes to ZooKeeper themselves and tell of them by notifications.

The office is held by broker 0, which carries no data, by one that does, and by broker 0 again.
"""

from __future__ import annotations

from functools import partial

from klamm.protocol import messages
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.record_clients import produce

OFFICES = (0, 1, 0)


def tell(members: Members) -> None:
    """The story; 0, 1 and 2 run already, 0 is controller."""
    for number, controller in enumerate(OFFICES):
        if number > 0:
            members.office(controller)
        topic, mixed = f"t-{number}", f"with-zero-{number}"
        members.create(topic, [[1, 2], [2, 1]], {"retention.ms": "100000"})
        members.create(mixed, [[1, 0], [2, 0]])
        write(members, topic, "all")
        before = members.state(topic, 1)
        members.brokers[2].stop()
        moved = members.becomes(topic, 1, lambda s: s.leader == 1 and s.isr == [1], "led by 1")
        assert moved.le == before.le + 1
        write(members, topic, "one")
        members.start(2)
        members.in_sync([topic])
        assert members.state(topic, 1).le == moved.le, "it came back into the ISR by the leader's word"
        wait_for(partial(isr_is_known, members, topic), "the ISR is known to all")
        assert members.elect(topic, 1) == 0
        members.shown(topic, 1, lambda leader: leader == 2)
        members.grow(topic, 3, [[2, 1]])
        write(members, topic, "grown")
        for name in (topic, mixed):
            members.delete(name)
            members.deleted(name)
            members.shown(name, 0, lambda leader: leader is None)


def isr_is_known(members: Members, topic: str) -> bool:
    """Whether every member shows both replicas in the ISR of partition 1; it does when the controller has heard of the change."""
    return all(sorted(isr(members, topic, 1, broker.id)) == [1, 2] for broker in members.running())


def isr(members: Members, topic: str, partition: int, at: int) -> list[int]:
    """The ISR that a member's Metadata shows."""
    asked = messages.MetadataRequest
    named = [asked.MetadataRequestTopic(topic_id=bytes(16), name=topic)]
    (answer,) = members.ask(asked(topics=named, allow_auto_topic_creation=False), 12, at).topics
    return next(list(p.isr_nodes) for p in answer.partitions if p.partition_index == partition)


def write(members: Members, topic: str, prefix: str) -> None:
    """Plain producers only: every member is seen by the clients, one of them hands out no producer ids."""
    running = [broker.id for broker in members.running() if broker.id]
    produce(members.bootstrap(*running), topic, (f"{prefix}-{n}" for n in range(50)), idempotent=False)
