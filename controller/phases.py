"""The phases at which a controller can be held, stepped or crashed: one closed union of values, listed in docs/phases.md.

There are two kinds. A phase *inside an event* is a place in the processing of one event: held there, the controller's only task waits, and
with it the queue of its events; brokers and clients go on. A phase *between events* is a step of a long procedure, whose state is kept
in the cluster: held there, only that procedure is parked, and every other event is processed as if nothing were held.

Who holds, and how, says `steering.py`. Without anybody who steers no phase is even made.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.protocol.nouns import TopicPartition

# --- inside an event ---


@dataclass(frozen=True, slots=True)
class ControllerElectionDue:
    """There is no controller, and this broker is about to try to become it."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class FailoverBegun:
    """A broker is elected, and `/feature` is in shape; it has read nothing of the cluster yet."""

    controller_epoch: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class FailoverLoaded:
    """The new controller has read brokers, topics and states; no broker has got a request of it."""

    controller_epoch: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class FailoverReplicasStarted:
    """Brokers know their replicas from the new controller, replicas on dead brokers have left the ISRs; no leader is elected."""

    controller_epoch: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class FailoverPartitionsStarted:
    """The new controller has elected leaders where they were missing; deletions and preferred elections are not resumed."""

    controller_epoch: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class FailoverDone:
    """The fail-over is complete."""

    controller_epoch: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class BrokersStarted:
    """Brokers appeared and got the whole metadata; they do not know their replicas."""

    controller_epoch: int
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokersFailed:
    """Replicas on these brokers are gone, and the partitions that lost their leader are OFFLINE; none is elected."""

    controller_epoch: int
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LeadersElected:
    """Leaders are elected instead of those on these brokers; their replicas are still in the other ISRs."""

    controller_epoch: int
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionsAppeared:
    """New partitions are known to the controller; they have no state in ZooKeeper."""

    controller_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PreferredLeadersElected:
    """The election from znode is done; the znode still exists."""

    controller_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ShutdownLeadersMoved:
    """A broker in controlled shutdown leads no partition any more that another one can lead; it is still in ISRs."""

    controller_epoch: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class IsrsAltered:
    """ISRs that leaders proposed are written; no broker has got them, and no leader a response."""

    controller_epoch: int
    partitions: tuple[TopicPartition, ...]


# --- between events ---


@dataclass(frozen=True, slots=True)
class DeletionQueued:
    """A topic is queued for deletion and could be deleted; no broker has got a request about it."""

    controller_epoch: int
    topic: str


@dataclass(frozen=True, slots=True)
class DeletionPropagated:
    """The topic has no leaders in any broker's metadata; its replicas are not stopped."""

    controller_epoch: int
    topic: str


@dataclass(frozen=True, slots=True)
class DeletionReplicasStopped:
    """The topic's replicas are stopped and have left the ISRs; no broker is to delete one yet."""

    controller_epoch: int
    topic: str


@dataclass(frozen=True, slots=True)
class DeletionReplicasDeleted:
    """All brokers have confirmed that their replicas of the topic are deleted; its znodes are still there."""

    controller_epoch: int
    topic: str


EventPhase = (
    ControllerElectionDue
    | FailoverBegun
    | FailoverLoaded
    | FailoverReplicasStarted
    | FailoverPartitionsStarted
    | FailoverDone
    | BrokersStarted
    | BrokersFailed
    | LeadersElected
    | PartitionsAppeared
    | PreferredLeadersElected
    | ShutdownLeadersMoved
    | IsrsAltered
)
"""Phases inside an event."""

ProcedurePhase = DeletionQueued | DeletionPropagated | DeletionReplicasStopped | DeletionReplicasDeleted
"""Phases between events."""

Phase = EventPhase | ProcedurePhase
