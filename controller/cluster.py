"""The state of the active controller: brokers, topics, partitions, and their states (controller 1).

Only the methods here change it (a test looks for assignments elsewhere). Their names are in the past tense: they are called after the
store has confirmed a write, or after a read. One subscriber may see every change as a value (`changes.py`).
Partitions are objects with slots, their states and assignments shared tuples, so that 100,000 of them stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from klamm.controller import changes
from klamm.controller.changes import Subscriber
from klamm.controller.reassignments import Reassignments
from klamm.controller.states import (
    NO_REPLICAS,
    REPLICA_MOVES,
    PartitionState,
    ReplicaState,
    ReplicaStateMaps,
    ReplicaStates,
)
from klamm.controller.topic_deletions import DeletionProgress, TopicDeletions
from klamm.controller.values import Assignment, Broker, BrokerRegistration, BrokerState, LeaderAndIsr, SharedInts
from klamm.protocol.nouns import ZERO_UUID, Ints, TopicPartition
from klamm.seams.identity_memo import IdentityMemo

_ONLINE = PartitionState.ONLINE
_NON_EXISTENT = PartitionState.NON_EXISTENT


class Partition:
    """One partition. `info` is None until it had a first leader."""

    __slots__ = ("assignment", "index", "info", "replica_states", "state", "topic")

    def __init__(self, topic: Topic, index: int, assignment: Assignment) -> None:
        self.topic = topic
        self.index = index
        self.assignment = assignment
        self.info: LeaderAndIsr | None = None
        self.state = _NON_EXISTENT
        self.replica_states: ReplicaStates = NO_REPLICAS

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.index)

    def __repr__(self) -> str:
        return f"{self.topic.name}-{self.index}"


class Topic:
    """A topic and its partitions. `deletion` while it is queued for deletion. `zk_version` is the version of its znode in which all
    partitions are known here, -1 if that is not known.
    """

    __slots__ = ("__weakref__", "deletion", "id", "name", "partitions", "zk_version")

    def __init__(self, name: str, topic_id: bytes | None) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: dict[int, Partition] = {}
        self.deletion: DeletionProgress | None = None
        self.zk_version = -1

    @property
    def queued(self) -> bool:
        """Whether the topic is queued for deletion."""
        return self.deletion is not None

    @property
    def wire_id(self) -> bytes:
        return ZERO_UUID if self.id is None else self.id

    def has_replicas(self, index: int) -> bool:
        """Whether this partition is known, and has replicas."""
        partition = self.partitions.get(index)
        return partition is not None and bool(partition.assignment.replicas)

    def assignments(self) -> dict[int, Assignment]:
        return {i: p.assignment for i, p in self.partitions.items()}


class Cluster:
    """The controller's context. One task owns it."""

    def __init__(self, epoch: int, subscriber: Subscriber | None = None) -> None:
        self.epoch = epoch
        self._brokers: dict[int, Broker] = {}
        self.brokers: Mapping[int, Broker] = self._brokers
        self._fenced: dict[int, Broker] = {}
        self.fenced: Mapping[int, Broker] = self._fenced
        """Brokers that registered with the controller and are not online: they get UpdateMetadata, and nothing else."""
        self._registrations: dict[int, BrokerRegistration] = {}
        self.registrations: Mapping[int, BrokerRegistration] = self._registrations
        """Registrations with the controller, by broker, as they are in ZooKeeper."""
        self._shutting_down: set[int] = set()
        self.shutting_down: AbstractSet[int] = self._shutting_down
        self.alive: frozenset[int] = frozenset()
        self.registered: frozenset[int] = frozenset()
        self.listed: frozenset[int] = frozenset()
        """Brokers on `preferred_leader_blacklist` (KIP-491)."""
        self._topics: dict[str, Topic] = {}
        self.topics: Mapping[str, Topic] = self._topics
        self._topics_by_id: dict[bytes, Topic] = {}
        self.topics_by_id: Mapping[bytes, Topic] = self._topics_by_id
        self._reassigning: set[Partition] = set()
        self.reassigning: AbstractSet[Partition] = self._reassigning
        self.reassignments: Reassignments[Partition] = Reassignments()
        self._offline_dirs: dict[int, set[Partition]] = {}
        self.offline_dirs: Mapping[int, AbstractSet[Partition]] = self._offline_dirs
        self.deletions = TopicDeletions()
        self._not_online: dict[Partition, None] = {}
        self._offline_of: dict[Ints, Ints] = {}
        self._replica_state_maps = ReplicaStateMaps()
        self.shared = SharedInts()  # lists of brokers in assignments and states of many partitions
        self._see = subscriber
        if subscriber is not None:
            subscriber(changes.TermBegan(epoch))

    def subscribe(self, subscriber: Subscriber | None) -> Subscriber | None:
        """From now on this one sees the changes; the one that saw them before."""
        before, self._see = self._see, subscriber
        return before

    def term_ended(self) -> None:
        """The term is over: part topics from their partitions, so that they go at once and not when cycles are looked for."""
        for topic in self._topics.values():
            topic.partitions.clear()
        self._topics.clear()
        self._topics_by_id.clear()
        self._reassigning.clear()
        self._offline_dirs.clear()
        self._not_online.clear()
        self.deletions.ended()
        self.reassignments.ended()
        if self._see is not None:
            self._see(changes.TermEnded(self.epoch))

    # --- brokers ---

    def brokers_registered(self, brokers: Iterable[Broker]) -> None:
        """Brokers are there, or have new endpoints."""
        registered = tuple(brokers)
        self._brokers.update((b.id, b) for b in registered)
        self._liveness_changed()
        if self._see is not None:
            self._see(changes.BrokersRegistered(registered))

    def brokers_unregistered(self, broker_ids: Iterable[int]) -> None:
        """Brokers are gone."""
        gone = tuple(broker_ids)
        for b in gone:
            self._brokers.pop(b, None)
        self._liveness_changed()
        if self._see is not None:
            self._see(changes.BrokersUnregistered(gone))

    def registrations_changed(self, registrations: Iterable[BrokerRegistration]) -> None:
        """Registrations with the controller as they stand in ZooKeeper from now on."""
        stored = tuple(registrations)
        self._registrations.update((registration.id, registration) for registration in stored)
        if self._see is not None:
            self._see(changes.RegistrationsChanged(stored))

    def brokers_fenced(self, brokers: Iterable[Broker]) -> None:
        """Brokers get UpdateMetadata from now on, or have new endpoints; they are not online."""
        fenced = tuple(brokers)
        self._fenced.update((b.id, b) for b in fenced)
        if self._see is not None:
            self._see(changes.BrokersFenced(fenced))

    def brokers_unfenced(self, broker_ids: Iterable[int]) -> None:
        """Brokers are fenced no more: they are online, or gone."""
        unfenced = tuple(broker_ids)
        for b in unfenced:
            self._fenced.pop(b, None)
        if self._see is not None:
            self._see(changes.BrokersUnfenced(unfenced))

    def runs_by_request(self, broker_id: int) -> bool:
        """Whether the broker that is registered under this id is one that registered with the controller, and not in `/brokers/ids`."""
        registration = self._registrations.get(broker_id)
        return registration is not None and registration.state in (BrokerState.ONLINE, BrokerState.STOPPING)

    def shutdown_began(self, broker_id: int) -> None:
        """A broker requested a controlled shutdown: it can lead nothing from now on."""
        self._shutting_down.add(broker_id)
        self._liveness_changed()
        if self._see is not None:
            self._see(changes.ShutdownBegan(broker_id))

    def shutdown_ended(self, broker_id: int) -> None:
        """A broker that requested a controlled shutdown is gone."""
        self._shutting_down.discard(broker_id)
        self._liveness_changed()
        if self._see is not None:
            self._see(changes.ShutdownEnded(broker_id))

    def blacklist_changed(self, broker_ids: frozenset[int]) -> None:
        """These brokers are to lead only where no other can; it causes nothing by itself (R491-6)."""
        self.listed = broker_ids
        if self._see is not None:
            self._see(changes.BlacklistChanged(broker_ids))

    def _liveness_changed(self) -> None:
        self.registered = frozenset(self._brokers)
        self.alive = self.registered - self._shutting_down
        self._offline_of.clear()

    def offline_replicas_changed(self, broker_id: int, partitions: Iterable[Partition]) -> None:
        """The replicas of a broker that are in offline log directories are those of these partitions."""
        offline = set(partitions)
        if offline:
            self._offline_dirs[broker_id] = offline
        elif self._offline_dirs.pop(broker_id, None) is None:
            return
        if self._see is not None:
            self._see(changes.OfflineReplicasChanged(broker_id, frozenset(p.key for p in offline)))

    def online(self, partition: Partition) -> frozenset[int]:
        """Brokers whose replica of this partition may lead or stay in sync."""
        return self._healthy(self.alive, partition)

    def online_or_leaving(self, partition: Partition) -> frozenset[int]:
        """As `online`, brokers that are shutting down included."""
        return self._healthy(self.registered, partition)

    def offline_dirs_of(self, partition: Partition) -> frozenset[int]:
        """Brokers whose log directory with this partition is offline."""
        return frozenset({b for b, held in self._offline_dirs.items() if partition in held})

    def _healthy(self, brokers: frozenset[int], partition: Partition) -> frozenset[int]:
        """Those of these brokers whose log directory with the partition is not offline."""
        if not self._offline_dirs:
            return brokers
        return brokers - {b for b, held in self._offline_dirs.items() if partition in held}

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

    def topic_added(self, name: str, topic_id: bytes | None) -> Topic:
        """A topic is there; one that is known has this id from now on, if there is one."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(name, topic_id)
        if topic_id is not None:
            topic.id = topic_id
            self._topics_by_id[topic_id] = topic
        if self._see is not None:
            self._see(changes.TopicAdded(name, topic_id))
        return topic

    def partition_added(self, topic: Topic, index: int, assignment: Assignment) -> Partition:
        """A partition is there; one that is known has these replicas from now on."""
        partition = topic.partitions.get(index)
        if partition is None:
            partition = topic.partitions[index] = Partition(topic, index, assignment)
        else:
            partition.assignment = assignment
        if self._see is not None:
            self._see(changes.PartitionAdded(partition.key, assignment))
        return partition

    def topic_known(self, topic: Topic, zk_version: int) -> None:
        """All partitions that the topic znode has in this version are known."""
        topic.zk_version = zk_version

    def assignment_changed(self, partition: Partition, assignment: Assignment) -> None:
        """A partition has other replicas."""
        partition.assignment = assignment
        if self._see is not None:
            self._see(changes.AssignmentChanged(partition.key, assignment))

    def reassignments_began(self, partitions: Iterable[Partition]) -> None:
        """These partitions are being reassigned; some may have been before."""
        new = [p for p in partitions if p not in self._reassigning]
        self._reassigning.update(new)
        if self._see is not None and new:
            self._see(changes.ReassignmentsBegan(_keys(new)))

    def reassignments_ended(self, partitions: Iterable[Partition]) -> None:
        """These partitions are reassigned no more."""
        gone = [p for p in partitions if p in self._reassigning]
        self._reassigning.difference_update(gone)
        if self._see is not None and gone:
            self._see(changes.ReassignmentsEnded(_keys(gone)))

    def topic_removed(self, name: str) -> None:
        """A topic is gone, and with it all that was remembered of its deletion."""
        topic = self._topics.pop(name, None)
        self.deletions.removed(name)
        if topic is not None:
            self._forget_partitions(topic)
        if self._see is not None:
            self._see(changes.TopicRemoved(name))

    def _forget_partitions(self, topic: Topic) -> None:
        if topic.id is not None and self._topics_by_id.get(topic.id) is topic:
            del self._topics_by_id[topic.id]
        for partition in topic.partitions.values():
            self._reassigning.discard(partition)
            self.reassignments.removed(partition)
            self._not_online.pop(partition, None)
            for held in self._offline_dirs.values():
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
        return [p for p in self._not_online if p.topic.deletion is None]

    # --- states ---

    def partition_states_changed(self, partitions: Sequence[Partition], state: PartitionState) -> None:
        """These partitions are in this state now."""
        waiting = self._not_online
        if state is _ONLINE or state is _NON_EXISTENT:
            for p in partitions:
                p.state = state
                waiting.pop(p, None)
        else:
            for p in partitions:
                p.state = state
                waiting[p] = None
        if self._see is not None and partitions:
            self._see(changes.PartitionStatesChanged(_keys(partitions), state))

    def replica_state(self, partition: Partition, broker_id: int) -> ReplicaState:
        return partition.replica_states.get(broker_id, ReplicaState.NON_EXISTENT)

    def legal_moves(self, broker_id: int, partitions: Iterable[Partition], target: ReplicaState) -> tuple[list[Partition], list[Partition]]:
        """(those whose replica on this broker may go to `target`, the others)."""
        allowed = REPLICA_MOVES[target]
        known: IdentityMemo[bool] = IdentityMemo()
        legal: list[Partition] = []
        illegal: list[Partition] = []
        for p in partitions:
            states = p.replica_states
            may = known.get(id(states))
            if may is None:
                may = known.keep(id(states), states.get(broker_id, ReplicaState.NON_EXISTENT) in allowed, states)
            (legal if may else illegal).append(p)
        return legal, illegal

    def replica_states_changed(self, broker_id: int, partitions: Sequence[Partition], state: ReplicaState) -> None:
        """The replicas of these partitions on one broker are in this state now."""
        known: IdentityMemo[ReplicaStates] = IdentityMemo()
        for p in partitions:
            states = p.replica_states
            after = known.get(id(states))
            if after is None:
                after = known.keep(id(states), self._replica_state_maps.moved(states, broker_id, state), states)
            p.replica_states = after
        if self._see is not None and partitions:
            self._see(changes.ReplicaStatesChanged(broker_id, _keys(partitions), state))

    def replicas_came_online(
        self, broker_id: int, partitions: Iterable[Partition]
    ) -> tuple[list[Partition], list[Partition], list[Partition]]:
        """Move replicas on a broker to ONLINE in one pass: (those that need a LeaderAndIsr, new ones that are not assigned, illegal moves).
        """
        online, new = ReplicaState.ONLINE, ReplicaState.NEW
        allowed = REPLICA_MOVES[online]
        known: IdentityMemo[tuple[ReplicaStates, ReplicaState]] = IdentityMemo()
        sent: list[Partition] = []
        unassigned: list[Partition] = []
        illegal: list[Partition] = []
        changed: list[Partition] | None = None if self._see is None else []
        for p in partitions:
            states = p.replica_states
            found = known.get(id(states))
            if found is None:
                before = states.get(broker_id, ReplicaState.NON_EXISTENT)
                found = known.keep(id(states), (self._replica_state_maps.moved(states, broker_id, online), before), states)
            after, before = found
            if before is online:
                if p.info is not None:
                    sent.append(p)
                continue
            if before not in allowed:
                illegal.append(p)
                continue
            if before is not new:
                if p.info is not None:
                    sent.append(p)
            elif broker_id not in p.assignment.replicas:
                unassigned.append(p)
            p.replica_states = after
            if changed is not None:
                changed.append(p)
        if self._see is not None and changed:
            self._see(changes.ReplicaStatesChanged(broker_id, _keys(changed), online))
        return sent, unassigned, illegal

    def replicas_loaded(self) -> tuple[dict[int, list[Partition]], dict[int, list[Partition]]]:
        """First states of all replicas (controller 7.3); (online, offline) partitions by broker.

        Those of a broker that is stopping are online: what it led in the term before it leads until it asks again to be relieved.
        """
        online: dict[int, list[Partition]] = {}
        offline: dict[int, list[Partition]] = {}
        known: dict[tuple[Ints, frozenset[int]], tuple[ReplicaStates, list[Callable[[Partition], None]]]] = {}
        alive, bad_dirs = self.registered, bool(self._offline_dirs)
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
        if self._see is not None:
            for first, replicas_by_broker in ((ReplicaState.ONLINE, online), (ReplicaState.DELETION_INELIGIBLE, offline)):
                for b, held in replicas_by_broker.items():
                    self._see(changes.ReplicaStatesChanged(b, _keys(held), first))
        return online, offline

    def states_changed(self, partitions: Sequence[Partition], states: Sequence[LeaderAndIsr | None]) -> None:
        """States of partitions as they stand in ZooKeeper from now on; as many as there are partitions."""
        for p, state in zip(partitions, states, strict=True):
            p.info = state
        if self._see is not None and partitions:
            self._see(changes.StatesChanged(tuple(zip(_keys(partitions), states, strict=True))))

    # --- deletion ---

    def deletion_queued(self, name: str) -> None:
        """The deletion of a topic was requested."""
        deletion = self.deletions.queued(name)
        topic = self._topics.get(name)
        if topic is not None:
            topic.deletion = deletion
        if self._see is not None:
            self._see(changes.TopicDeletionQueued(name))

    def deletions_started(self, names: Iterable[str]) -> None:
        """The partitions of these topics have no leaders any more: not to be done a second time."""
        self.deletions.started(started := tuple(names))
        if self._see is not None:
            self._see(changes.DeletionsStarted(started))

    def deletions_postponed(self, names: Iterable[str], why: str) -> None:
        """These topics wait for a broker."""
        self.deletions.postponed(waiting := tuple(names), why)
        if self._see is not None:
            self._see(changes.DeletionsPostponed(waiting, why))

    def deletions_resumed(self, names: Iterable[str]) -> None:
        """These topics wait no longer."""
        self.deletions.resumed(resumed := tuple(names))
        if self._see is not None:
            self._see(changes.DeletionsResumed(resumed))


def _keys(partitions: Iterable[Partition]) -> tuple[TopicPartition, ...]:
    return tuple([p.key for p in partitions])
