"""Changes of the cluster that a controller remembers: what a subscriber sees, in the order in which they took hold.

They are values: a list of them can be written down, and `replay` makes the same cluster of them again (see `replay.py`). What is in
ZooKeeper (states, assignments, brokers) comes here after ZooKeeper has it. States of partitions and replicas, and the marks of
deletions, are the controller's own and in no znode.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.values import Assignment, Broker, BrokerRegistration, LeaderAndIsr
from klamm.protocol.nouns import TopicPartition
from klamm.seams.value_class import dataclass


@dataclass(frozen=True, slots=True)
class TermBegan:
    """A controller was elected; it knows nothing yet."""

    controller_epoch: int


@dataclass(frozen=True, slots=True)
class TermEnded:
    """It resigned; what it knew counts no more."""

    controller_epoch: int


@dataclass(frozen=True, slots=True)
class BrokersRegistered:
    """Brokers are there, or have new endpoints."""

    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class BrokersUnregistered:
    """Brokers are gone."""

    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegistrationsChanged:
    """Registrations with the controller are these from now on; others are as they were."""

    registrations: tuple[BrokerRegistration, ...]


@dataclass(frozen=True, slots=True)
class BrokersFenced:
    """Brokers get metadata, but count as not online."""

    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class BrokersUnfenced:
    """Brokers are fenced no more: they are online, or gone."""

    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShutdownBegan:
    """A broker requested a controlled shutdown."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ShutdownEnded:
    """A broker that requested a controlled shutdown is gone."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class OfflineReplicasChanged:
    """The replicas of a broker that are in offline log directories are these."""

    broker_id: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class BlacklistChanged:
    """These brokers are on `preferred_leader_blacklist` (KIP-491)."""

    broker_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class TopicAdded:
    """A topic, or the id of one that had none."""

    topic: str
    topic_id: bytes | None


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """A topic, its partitions and the marks of its deletion are gone."""

    topic: str


@dataclass(frozen=True, slots=True)
class PartitionAdded:
    """A partition, or other replicas of one that is known."""

    partition: TopicPartition
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """A partition has other replicas."""

    partition: TopicPartition
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ReassignmentsBegan:
    """These partitions are being reassigned."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentsEnded:
    """These partitions are reassigned no more."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StatesChanged:
    """Leaders, ISRs and epochs as they are in ZooKeeper; None where there is no state."""

    states: tuple[tuple[TopicPartition, LeaderAndIsr | None], ...]


@dataclass(frozen=True, slots=True)
class PartitionStatesChanged:
    """Partitions are in this state now."""

    partitions: tuple[TopicPartition, ...]
    state: PartitionState


@dataclass(frozen=True, slots=True)
class ReplicaStatesChanged:
    """The replicas of these partitions on one broker are in this state now."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    state: ReplicaState


@dataclass(frozen=True, slots=True)
class TopicDeletionQueued:
    """The deletion of a topic was requested."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionsStarted:
    """The partitions of these topics were taken from their leaders for the deletion."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletionsPostponed:
    """The deletions of these topics wait for a broker."""

    topics: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class DeletionsResumed:
    """The deletions of these topics wait no longer."""

    topics: tuple[str, ...]


Change = (
    TermBegan
    | TermEnded
    | BrokersRegistered
    | BrokersUnregistered
    | RegistrationsChanged
    | BrokersFenced
    | BrokersUnfenced
    | ShutdownBegan
    | ShutdownEnded
    | OfflineReplicasChanged
    | BlacklistChanged
    | TopicAdded
    | TopicRemoved
    | PartitionAdded
    | AssignmentChanged
    | ReassignmentsBegan
    | ReassignmentsEnded
    | StatesChanged
    | PartitionStatesChanged
    | ReplicaStatesChanged
    | TopicDeletionQueued
    | DeletionsStarted
    | DeletionsPostponed
    | DeletionsResumed
)

Subscriber = Callable[[Change], None]
"""Called right after each change, in the controller's task: it must be quick, and must not raise."""
