"""What the active controller knows: brokers, topics, partitions, and the state each of them is in (controller 1).

Only the methods here change it, and what stands in ZooKeeper enters only by `replay_state` and its neighbours, after the
store has said that a write took hold. Partitions are objects with slots, their states and assignments shared tuples, so that
100,000 of them stay small. Encoded request bytes of a partition (`wire`) are kept beside it and dropped when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from klamm.controller.states import (
    NO_REPLICAS,
    REPLICA_MOVES,
    PartitionState,
    ReplicaState,
    ReplicaStateMaps,
    ReplicaStates,
)
from klamm.controller.values import Assignment, Broker, LeaderAndIsr
from klamm.protocol.nouns import ZERO_UUID, Ints, TopicPartition

_ONLINE = PartitionState.ONLINE
_NON_EXISTENT = PartitionState.NON_EXISTENT


class Partition:
    """One partition. `info` is None until it had a first leader."""

    __slots__ = ("assignment", "index", "info", "lisr_tail", "replica_states", "state", "topic", "wire")

    def __init__(self, topic: Topic, index: int, assignment: Assignment) -> None:
        self.topic = topic
        self.index = index
        self.assignment = assignment
        self.info: LeaderAndIsr | None = None
        self.state = _NON_EXISTENT
        self.replica_states: ReplicaStates = NO_REPLICAS
        self.wire: bytes | None = None
        self.lisr_tail = b""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.index)

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"


class Topic:
    """A topic and its partitions. `queued` while it is queued for deletion."""

    __slots__ = ("id", "name", "partitions", "queued", "wire_head")

    def __init__(self, name: str, topic_id: bytes | None) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: dict[int, Partition] = {}
        self.queued = False
        self.wire_head: bytes | None = None

    @property
    def wire_id(self) -> bytes:
        return ZERO_UUID if self.id is None else self.id

    def assignments(self) -> dict[int, Assignment]:
        return {i: p.assignment for i, p in self.partitions.items()}


class Cluster:
    """The controller's context. One task owns it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.brokers: dict[int, Broker] = {}
        self.shutting_down: set[int] = set()
        self.alive: frozenset[int] = frozenset()
        self._registered: frozenset[int] = frozenset()
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.reassigning: set[Partition] = set()
        self.offline_dirs: dict[int, set[Partition]] = {}
        self.to_delete: dict[str, None] = {}
        self.deletion_started: set[str] = set()
        self.ineligible: set[str] = set()
        self._not_online: dict[Partition, None] = {}
        self._offline_of: dict[Ints, Ints] = {}
        self._replica_state_maps = ReplicaStateMaps()

    def dissolve(self) -> None:
        """The term is over: part topics from their partitions, so that they go at once and not when cycles are looked for."""
        for topic in self.topics.values():
            topic.partitions.clear()
        self.topics.clear()
        self.topics_by_id.clear()
        self.reassigning.clear()
        self.offline_dirs.clear()
        self._not_online.clear()

    # --- brokers ---

    def set_brokers(self, brokers: Iterable[Broker]) -> None:
        self.brokers = {b.id: b for b in brokers}
        self.liveness_changed()

    def add_broker(self, broker: Broker) -> None:
        self.brokers[broker.id] = broker
        self.liveness_changed()

    def remove_broker(self, broker_id: int) -> None:
        self.brokers.pop(broker_id, None)
        self.liveness_changed()

    def set_shutting_down(self, broker_id: int, leaving: bool) -> None:
        if leaving:
            self.shutting_down.add(broker_id)
        else:
            self.shutting_down.discard(broker_id)
        self.liveness_changed()

    def liveness_changed(self) -> None:
        self._registered = frozenset(self.brokers)
        self.alive = self._registered - self.shutting_down
        self._offline_of.clear()

    def forget_offline_dirs(self, broker_id: int) -> None:
        self.offline_dirs.pop(broker_id, None)

    def online(self, partition: Partition) -> frozenset[int]:
        """Brokers whose replica of this partition may lead or stay in sync."""
        return self._healthy(self.alive, partition)

    def online_or_leaving(self, partition: Partition) -> frozenset[int]:
        """As `online`, brokers that are shutting down included."""
        return self._healthy(self._registered, partition)

    def _healthy(self, brokers: frozenset[int], partition: Partition) -> frozenset[int]:
        """Those of these brokers whose log directory with the partition is not offline."""
        if not self.offline_dirs:
            return brokers
        return brokers - {b for b, held in self.offline_dirs.items() if partition in held}

    def offline_replicas(self, partition: Partition) -> Ints:
        """Assigned replicas that are not online, in assignment order."""
        replicas = partition.assignment.replicas
        if self.offline_dirs:
            online = self.online(partition)
            return tuple(r for r in replicas if r not in online)
        found = self._offline_of.get(replicas)
        if found is None:
            alive = self.alive
            found = self._offline_of[replicas] = tuple(r for r in replicas if r not in alive)
        return found

    # --- topics and partitions ---

    def add_topic(self, name: str, topic_id: bytes | None) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, topic_id)
        if topic_id is not None:
            topic.id = topic_id
            topic.wire_head = None
            self.topics_by_id[topic_id] = topic
        return topic

    def add_partition(self, topic: Topic, index: int, assignment: Assignment) -> Partition:
        partition = topic.partitions.get(index)
        if partition is None:
            partition = topic.partitions[index] = Partition(topic, index, assignment)
        else:
            self.set_assignment(partition, assignment)
        if assignment.adding or assignment.removing:
            self.reassigning.add(partition)
        return partition

    def set_assignment(self, partition: Partition, assignment: Assignment) -> None:
        partition.assignment = assignment
        partition.wire = None

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        self.to_delete.pop(name, None)
        self.deletion_started.discard(name)
        self.ineligible.discard(name)
        if topic is None:
            return
        if topic.id is not None and self.topics_by_id.get(topic.id) is topic:
            del self.topics_by_id[topic.id]
        for partition in topic.partitions.values():
            self.reassigning.discard(partition)
            self._not_online.pop(partition, None)
            for held in self.offline_dirs.values():
                held.discard(partition)
        topic.partitions.clear()  # the two name each other; parted, they go at once and not when cycles are looked for

    def partition(self, key: TopicPartition) -> Partition | None:
        topic = self.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def partitions(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def partitions_on(self, broker_id: int) -> list[Partition]:
        """Partitions with a replica on a broker, by topic."""
        return [p for t in self.topics.values() for p in t.partitions.values() if broker_id in p.assignment.replicas]

    def not_online(self) -> list[Partition]:
        """Partitions in state NEW or OFFLINE whose topic is not being deleted."""
        return [p for p in self._not_online if not p.topic.queued]

    # --- states ---

    def set_partition_state(self, partition: Partition, state: PartitionState) -> None:
        partition.state = state
        if state is _ONLINE or state is _NON_EXISTENT:
            self._not_online.pop(partition, None)
        else:
            self._not_online[partition] = None

    def replica_state(self, partition: Partition, broker_id: int) -> ReplicaState:
        return partition.replica_states.get(broker_id, ReplicaState.NON_EXISTENT)

    def legal_moves(self, broker_id: int, partitions: Iterable[Partition], target: ReplicaState) -> tuple[list[Partition], list[Partition]]:
        """(those whose replica on this broker may go to `target`, the others)."""
        allowed = REPLICA_MOVES[target]
        known: dict[int, bool] = {}
        legal: list[Partition] = []
        illegal: list[Partition] = []
        for p in partitions:
            states = p.replica_states
            may = known.get(id(states))
            if may is None:
                may = known[id(states)] = states.get(broker_id, ReplicaState.NON_EXISTENT) in allowed
            (legal if may else illegal).append(p)
        return legal, illegal

    def set_replica_states(self, broker_id: int, partitions: Iterable[Partition], state: ReplicaState) -> None:
        """The replicas of these partitions on one broker are in this state now."""
        known: dict[int, ReplicaStates] = {}
        for p in partitions:
            states = p.replica_states
            after = known.get(id(states))
            if after is None:
                after = known[id(states)] = self._replica_state_maps.moved(states, broker_id, state)
            p.replica_states = after

    def bring_online(self, broker_id: int, partitions: Iterable[Partition]) -> tuple[list[Partition], list[Partition], list[Partition]]:
        """Replicas on a broker go online in one pass: (those to tell, new ones that are not even assigned, those that may not)."""
        online, new = ReplicaState.ONLINE, ReplicaState.NEW
        allowed = REPLICA_MOVES[online]
        known: dict[int, tuple[ReplicaStates, ReplicaState]] = {}
        told: list[Partition] = []
        unassigned: list[Partition] = []
        illegal: list[Partition] = []
        for p in partitions:
            states = p.replica_states
            found = known.get(id(states))
            if found is None:
                before = states.get(broker_id, ReplicaState.NON_EXISTENT)
                found = known[id(states)] = (self._replica_state_maps.moved(states, broker_id, online), before)
            after, before = found
            if before is online:
                if p.info is not None:
                    told.append(p)
                continue
            if before not in allowed:
                illegal.append(p)
                continue
            if before is not new:
                if p.info is not None:
                    told.append(p)
            elif broker_id not in p.assignment.replicas:
                unassigned.append(p)
            p.replica_states = after
        return told, unassigned, illegal

    def start_replica_states(self) -> tuple[dict[int, list[Partition]], dict[int, list[Partition]]]:
        """First states of all replicas (controller 7.3); (online, offline) partitions by broker."""
        online: dict[int, list[Partition]] = {}
        offline: dict[int, list[Partition]] = {}
        known: dict[tuple[Ints, frozenset[int]], tuple[ReplicaStates, list[Callable[[Partition], None]]]] = {}
        alive, bad_dirs = self.alive, bool(self.offline_dirs)
        for p in self.partitions():
            replicas = p.assignment.replicas
            if bad_dirs:
                alive = self.online(p)
            found = known.get((replicas, alive))
            if found is None:
                states = NO_REPLICAS
                for r in replicas:
                    first = ReplicaState.ONLINE if r in alive else ReplicaState.DELETION_INELIGIBLE
                    states = self._replica_state_maps.moved(states, r, first)
                sides = [(online if r in alive else offline).setdefault(r, []).append for r in dict.fromkeys(replicas)]
                found = known[replicas, alive] = states, sides
            p.replica_states, sides = found
            for put in sides:
                put(p)
        return online, offline

    def replay_state(self, partition: Partition, info: LeaderAndIsr | None) -> None:
        """A partition's state as it stands in ZooKeeper from now on."""
        partition.info = info
        partition.wire = None

    # --- deletion ---

    def queue_deletion(self, name: str) -> None:
        self.to_delete[name] = None
        topic = self.topics.get(name)
        if topic is not None and not topic.queued:
            topic.queued = True
