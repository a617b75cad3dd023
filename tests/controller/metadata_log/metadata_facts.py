"""What a metadata log says, what a controller knows, and what ZooKeeper holds, each as the same plain values, to be compared (RREG-18).

`NaiveReplay` is a second reader of the log: the record table of controller 25.1, record by record, without a thought of speed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from klamm.controller.cluster import Cluster
from klamm.controller.values import Assignment, BrokerState, LeaderAndIsr
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.tests.broker.whole_view import WholeView
from klamm.tests.controller.simulated import SimulatedWorld

TOPIC, BROKER = 2, 4


class BrokerFacts(NamedTuple):
    """A broker that is not offline. STOPPING is also said of one that registered itself and is in its controlled shutdown."""

    epoch: int
    state: str


class PartitionFacts(NamedTuple):
    """One partition; without a state its leader, its epochs are -1, and nobody is in sync."""

    replicas: Ints
    adding: Ints
    removing: Ints
    leader: int
    leader_epoch: int
    isr: Ints
    recovery: int
    partition_epoch: int


class Facts(NamedTuple):
    """All of it. Configs are by entity, as in `topics/a`; entities without any are left out."""

    brokers: dict[int, BrokerFacts]
    topics: dict[str, bytes]
    partitions: dict[TopicPartition, PartitionFacts]
    configs: dict[str, dict[str, str]]

    def differences(self, other: Facts) -> list[str]:
        """A line for each entry in which two are not equal."""
        lines: list[str] = []
        pairs: list[tuple[str, dict[Any, Any], dict[Any, Any]]] = list(zip(self._fields, self, other, strict=True))
        for name, mine, others in pairs:
            keys = [key for key in sorted({**mine, **others}, key=str) if mine.get(key) != others.get(key)]
            lines += [f"{name} {key}: {mine.get(key)} is not {others.get(key)}" for key in keys]
        return lines


def partition_facts(assignment: Assignment, state: LeaderAndIsr | None) -> PartitionFacts:
    """Of one partition."""
    facts = PartitionFacts(assignment.replicas, assignment.adding, assignment.removing, -1, -1, (), 0, -1)
    if state is None:
        return facts
    return facts._replace(
        leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr, recovery=state.recovery, partition_epoch=state.partition_epoch
    )


def of_world(world: SimulatedWorld, shutting_down: Iterable[int]) -> Facts:
    """What ZooKeeper holds; which brokers that registered themselves are shutting down, it does not know."""
    leaving = set(shutting_down)
    brokers = {
        r.id: BrokerFacts(r.epoch, r.state.name) for r in world.registrations.values() if r.state is not BrokerState.OFFLINE
    }
    brokers |= {b.id: BrokerFacts(b.epoch, "STOPPING" if b.id in leaving else "ONLINE") for b in world.brokers.values()}
    stored = dict(world.topics.items())
    states = dict(world.states.items())
    configs = {f"topics/{name}": properties for name, properties in world.configs.items()}
    configs |= {f"brokers/{name}": properties for name, properties in world.broker_configs.items()}
    return Facts(
        brokers,
        {name: topic.topic_id for name, topic in stored.items() if topic.topic_id is not None},
        {
            TopicPartition(name, i): partition_facts(a, states.get(TopicPartition(name, i)))
            for name, topic in stored.items() for i, a in topic.assignments.items()
        },
        {entity: properties for entity, properties in configs.items() if properties},
    )


def of_cluster(cluster: Cluster) -> Facts:
    """What a controller knows, but for configs, which it does not keep; and of a reassignment what it goes by, written or not yet."""
    brokers = {
        r.id: BrokerFacts(r.epoch, r.state.name) for r in cluster.registrations.values() if r.state is not BrokerState.OFFLINE
    }
    for b in cluster.brokers.values():
        registration = cluster.registrations.get(b.id)
        if registration is None or registration.epoch != b.epoch:
            brokers[b.id] = BrokerFacts(b.epoch, "STOPPING" if b.id in cluster.shutting_down else "ONLINE")
    topics = {t.name: t.id for t in cluster.topics.values() if t.id is not None}
    return Facts(brokers, topics, {p.key: partition_facts(p.assignment, p.info) for p in cluster.partitions()}, {})


def of_view(view: WholeView) -> Facts:
    """What a broker has come to by the log."""
    brokers = {
        b.id: BrokerFacts(b.epoch, "FENCED" if b.fenced else "STOPPING" if b.in_controlled_shutdown else "ONLINE")
        for b in view.brokers.values()
    }
    partitions = {
        TopicPartition(t.name, i): PartitionFacts(
            p.replicas, p.adding, p.removing, p.leader, p.leader_epoch, p.isr, p.recovery, p.partition_epoch
        )
        for t in view.topics.values() for i, p in t.partitions.items()
    }
    return Facts(brokers, {t.name: t.id for t in view.topics.values()}, partitions, _entities(view.configs))


def _entities(configs: dict[tuple[int, str], dict[str, str]]) -> dict[str, dict[str, str]]:
    kinds = {TOPIC: "topics", BROKER: "brokers"}
    return {f"{kinds[kind]}/{name if name else '<default>'}": dict(of) for (kind, name), of in configs.items() if of}


class NaiveReplay:
    """The rules of the record table."""

    def __init__(self, next_offset: int = 0) -> None:
        self.restart(next_offset)

    def restart(self, next_offset: int) -> None:
        """Know nothing any more; the next record is the one at this offset."""
        self.next_offset = next_offset
        self.brokers: dict[int, BrokerFacts] = {}
        self.topics: dict[bytes, str] = {}
        self.partitions: dict[tuple[bytes, int], PartitionFacts] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}

    def apply(self, records: Iterable[tuple[int, Any]]) -> None:
        """Records with their offsets; one that does not fit raises AssertionError."""
        for offset, record in records:
            assert offset == self.next_offset, f"offset {offset} comes where {self.next_offset} is next"
            self.next_offset += 1
            getattr(self, type(record).__name__.strip("_"))(record)

    def RegisterBrokerRecord(self, r: Any) -> None:
        state = "FENCED" if r.fenced else "STOPPING" if r.in_controlled_shutdown else "ONLINE"
        self.brokers[r.broker_id] = BrokerFacts(r.broker_epoch, state)
        assert bytes(r.incarnation_id) == bytes(16) and not r.features and r.end_points

    def UnregisterBrokerRecord(self, r: Any) -> None:
        assert self.brokers.pop(r.broker_id).epoch == r.broker_epoch, r

    def FenceBrokerRecord(self, r: Any) -> None:
        assert self.brokers[r.id] == (r.epoch, "ONLINE"), (r, self.brokers[r.id])
        self.brokers[r.id] = BrokerFacts(r.epoch, "FENCED")

    def UnfenceBrokerRecord(self, r: Any) -> None:
        assert self.brokers[r.id] == (r.epoch, "FENCED"), (r, self.brokers[r.id])
        self.brokers[r.id] = BrokerFacts(r.epoch, "ONLINE")

    def BrokerRegistrationChangeRecord(self, r: Any) -> None:
        assert self.brokers[r.broker_id] == (r.broker_epoch, "ONLINE"), (r, self.brokers[r.broker_id])
        assert r.in_controlled_shutdown == 1 and r.fenced == 0
        self.brokers[r.broker_id] = BrokerFacts(r.broker_epoch, "STOPPING")

    def TopicRecord(self, r: Any) -> None:
        topic_id = bytes(r.topic_id)
        assert r.name not in self.topics.values() or self.topics.get(topic_id) == r.name, f"{r.name} is there already"
        self.topics[topic_id] = r.name

    def RemoveTopicRecord(self, r: Any) -> None:
        topic_id = bytes(r.topic_id)
        self.configs.pop((TOPIC, self.topics.pop(topic_id)), None)
        self.partitions = {key: facts for key, facts in self.partitions.items() if key[0] != topic_id}

    def PartitionRecord(self, r: Any) -> None:
        topic_id = bytes(r.topic_id)
        assert topic_id in self.topics, r
        self.partitions[topic_id, r.partition_id] = PartitionFacts(
            tuple(r.replicas), tuple(r.adding_replicas), tuple(r.removing_replicas), r.leader, r.leader_epoch, tuple(r.isr),
            int(r.leader_recovery_state), r.partition_epoch,
        )

    def PartitionChangeRecord(self, r: Any) -> None:
        key = bytes(r.topic_id), r.partition_id
        p = self.partitions[key]
        assert r.replicas is None and r.adding_replicas is None and r.removing_replicas is None, r
        p = p._replace(partition_epoch=p.partition_epoch + 1)
        if r.leader != -2:
            p = p._replace(leader=r.leader, leader_epoch=p.leader_epoch + 1)
        if r.isr is not None:
            assert tuple(r.isr) != p.isr, f"{r} says what is known"
            p = p._replace(isr=tuple(r.isr))
        if r.leader_recovery_state != -1:
            assert r.leader_recovery_state != p.recovery, f"{r} says what is known"
            p = p._replace(recovery=r.leader_recovery_state)
        self.partitions[key] = p

    def ConfigRecord(self, r: Any) -> None:
        assert r.resource_type in (TOPIC, BROKER)
        properties = self.configs.setdefault((r.resource_type, r.resource_name), {})
        if r.value is None:
            properties.pop(r.name)
        else:
            properties[r.name] = r.value

    def facts(self) -> Facts:
        """What it has come to."""
        return Facts(
            dict(self.brokers),
            {name: topic_id for topic_id, name in self.topics.items()},
            {TopicPartition(self.topics[topic_id], i): facts for (topic_id, i), facts in self.partitions.items()},
            _entities(self.configs),
        )
