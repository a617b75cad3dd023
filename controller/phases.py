"""The phases at which a controller can be held, stepped or crashed: one closed union of values, listed in docs/phases.md.

There are two kinds. A phase *inside an event* is a place in the processing of one event: held there, the controller's only task waits, and
with it the queue of its events; brokers and clients go on. A phase *between events* is a step of a long procedure, whose state is kept
in the cluster: held there, only that procedure is parked, and every other event is processed as if nothing were held.

Who holds, and how, says `seams/steering.py`. Without anybody who steers no phase is even made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from klamm.controller.values import BrokerState
from klamm.protocol.nouns import TopicPartition
from klamm.seams.value_class import dataclass

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
    """The new controller has elected leaders where they were missing; reassignments, deletions and preferred elections are not resumed."""

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
class BrokerStatesStored:
    """ZooKeeper has a new state of brokers that registered with the controller; nothing is done about it."""

    controller_epoch: int
    broker_ids: tuple[int, ...]
    state: BrokerState


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


@dataclass(frozen=True, slots=True)
class _OfReassignment:
    controller_epoch: int
    topic: str
    partition: int


class ReassignmentTargetStored(_OfReassignment):
    """The topic znode says where a partition is to go, replicas that are not wanted any more are deleted; no broker knows the target."""

    __slots__ = ()


class ReassignmentEpochRaised(_OfReassignment):
    """The leader epoch is raised, all old and new replicas know of each other; the new ones were not started one by one."""

    __slots__ = ()


class ReassignmentReplicasStarted(_OfReassignment):
    """The new replicas are started: the reassignment waits until they are in sync."""

    __slots__ = ()


class ReassignmentCaughtUp(_OfReassignment):
    """All replicas of the target are in sync; nothing is done about it."""

    __slots__ = ()


class ReassignmentReplicasOnline(_OfReassignment):
    """The controller counts the target as the replicas of the partition; ZooKeeper and the brokers do not know it."""

    __slots__ = ()


class ReassignmentLeaderMoved(_OfReassignment):
    """A replica of the target leads; the replicas that are to go are still in the ISR."""

    __slots__ = ()


class ReassignmentReplicasStopped(_OfReassignment):
    """The replicas that are to go are stopped and out of the ISR; their data is still there."""

    __slots__ = ()


class ReassignmentReplicasDeleted(_OfReassignment):
    """Brokers are told to delete the replicas that are to go; the topic znode still names them."""

    __slots__ = ()


class ReassignmentCompletionStored(_OfReassignment):
    """The topic znode names the target alone; the partition still counts as being reassigned."""

    __slots__ = ()


class ReassignmentForgotten(_OfReassignment):
    """The partition is reassigned no more; no broker has its last metadata, and throttles are not removed."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ThrottledTopicsRecorded:
    """The znode names the topics whose throttles are to be removed, as request number `request` wants it; no throttle of it is set."""

    controller_epoch: int
    request: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicThrottlesSet:
    """A topic has the throttled replicas of a request; the next step of the request is not done."""

    controller_epoch: int
    request: int
    topic: str


@dataclass(frozen=True, slots=True)
class TopicThrottlesRemoved:
    """A topic has lost the throttled replicas of an earlier request, because a later one does not name it."""

    controller_epoch: int
    request: int
    topic: str


@dataclass(frozen=True, slots=True)
class ThrottledBrokersRecorded:
    """The znode names the brokers whose rates are to be removed, as request number `request` wants it."""

    controller_epoch: int
    request: int
    broker_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokerThrottlesSet:
    """A broker has the rates of a request; the next step of the request is not done."""

    controller_epoch: int
    request: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class BrokerThrottlesRemoved:
    """A broker has lost the rates of an earlier request, because a later one does not name it."""

    controller_epoch: int
    request: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class ReassignmentsRecorded:
    """`/admin/reassign_partitions` has the partitions of a request, and there is no response yet."""

    controller_epoch: int
    request: int
    partitions: tuple[TopicPartition, ...]


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
    | BrokerStatesStored
    | PartitionsAppeared
    | PreferredLeadersElected
    | ShutdownLeadersMoved
    | IsrsAltered
)
"""Phases inside an event."""

DeletionPhase = DeletionQueued | DeletionPropagated | DeletionReplicasStopped | DeletionReplicasDeleted
"""Phases of the deletion of a topic."""

ReassignmentPhase = (
    ReassignmentTargetStored
    | ReassignmentEpochRaised
    | ReassignmentReplicasStarted
    | ReassignmentCaughtUp
    | ReassignmentReplicasOnline
    | ReassignmentLeaderMoved
    | ReassignmentReplicasStopped
    | ReassignmentReplicasDeleted
    | ReassignmentCompletionStored
    | ReassignmentForgotten
)
"""Phases of the reassignment of a partition."""

ThrottlePhase = (
    ThrottledTopicsRecorded
    | TopicThrottlesSet
    | TopicThrottlesRemoved
    | ThrottledBrokersRecorded
    | BrokerThrottlesSet
    | BrokerThrottlesRemoved
    | ReassignmentsRecorded
)
"""Phases of requests that set throttles."""

ProcedurePhase = DeletionPhase | ReassignmentPhase | ThrottlePhase
"""Phases between events."""

Phase = EventPhase | ProcedurePhase

PHASES: Mapping[str, type[Phase]] = MappingProxyType({phase.__name__: phase for phase in get_args(Phase)})
"""Every phase by its name."""
