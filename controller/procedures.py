"""The steps of the procedures that move leaders and replicas, in their order (controller 4.2, 4.3, 10.4, 11.3).

The order is written here and nowhere else. The controller takes each step for many partitions together and reaches a phase after some of
them; the simulation of `pipeline/` takes the same steps for one partition after the other. Each has one function for each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from klamm.controller import phases
from klamm.controller.phases import BrokersFailed, BrokersStarted, LeadersElected, ReassignmentPhase, ShutdownLeadersMoved


class FailureStep(Enum):
    """Replicas are gone, with their broker or with a log directory."""

    MARK_OFFLINE = 1
    """Partitions without a live leader go offline."""
    ELECT_LEADERS = 2
    """Partitions that are not online elect a leader."""
    SHRINK_ISRS = 3
    """The replicas leave the ISRs."""
    FAIL_DELETIONS = 4
    """Deletions that need the replicas wait."""
    SEND_BROKERS = 5
    """Brokers learn who is gone, if no step before has told them."""


class StartupStep(Enum):
    """Brokers have started."""

    SEND_METADATA = 1
    """The new brokers learn of all partitions, the others of the new brokers."""
    START_REPLICAS = 2
    """The new brokers learn of their replicas."""
    ELECT_LEADERS = 3
    """Partitions that are not online elect a leader."""
    RESUME_REASSIGNMENTS = 4
    RESUME_DELETIONS = 5
    WATCH_BROKERS = 6


class ShutdownStep(Enum):
    """A broker asks whether it may stop: what its partitions with other replicas do."""

    MOVE_LEADERS = 1
    """The partitions that it leads elect another leader."""
    SHRINK_ISRS = 2
    """It leaves the ISRs of the others."""


class ReassignmentStep(Enum):
    """A partition gets other replicas. The value of a step has its names in controller 11.3."""

    STORE_TARGET = ("U",)
    """The topic znode has the new assignment; replicas that it does not name are stopped and deleted."""
    ELECT_LEADER = ()
    """A partition without a leader elects one, if a replica is in sync."""
    RAISE_EPOCH = ("A1",)
    START_REPLICAS = ("A2",)
    """The replicas that are added start."""
    USE_TARGET = ("B1", "B2")
    """The replicas that are added are online, and the target is the assignment."""
    MOVE_LEADER = ("B3",)
    """A leader outside of the target is replaced; any other leader gets a new epoch."""
    STOP_REMOVED = ("B4",)
    """The replicas that are removed leave the ISR."""
    DELETE_REMOVED = ("B5",)
    STORE_COMPLETED = ("B6",)
    """The topic znode names the target alone."""
    FORGET = ("B7",)
    """The partition is no longer being reassigned."""


FAILURE = tuple(FailureStep)
STARTUP = tuple(StartupStep)
SHUTDOWN = tuple(ShutdownStep)
WAITING = (ReassignmentStep.ELECT_LEADER, ReassignmentStep.RAISE_EPOCH, ReassignmentStep.START_REPLICAS)
"""A: of a partition whose target is not in sync yet. It waits after them."""
COMPLETION = (
    ReassignmentStep.USE_TARGET,
    ReassignmentStep.MOVE_LEADER,
    ReassignmentStep.STOP_REMOVED,
    ReassignmentStep.DELETE_REMOVED,
    ReassignmentStep.STORE_COMPLETED,
    ReassignmentStep.FORGET,
)
"""B: of a partition whose target is in sync."""

FAILURE_PHASES: Mapping[FailureStep, type[BrokersFailed | LeadersElected]] = {
    FailureStep.MARK_OFFLINE: BrokersFailed,
    FailureStep.ELECT_LEADERS: LeadersElected,
}
STARTUP_PHASES: Mapping[StartupStep, type[BrokersStarted]] = {StartupStep.SEND_METADATA: BrokersStarted}
SHUTDOWN_PHASES: Mapping[ShutdownStep, type[ShutdownLeadersMoved]] = {ShutdownStep.MOVE_LEADERS: ShutdownLeadersMoved}
REASSIGNMENT_PHASES: Mapping[ReassignmentStep, type[ReassignmentPhase]] = {
    ReassignmentStep.STORE_TARGET: phases.ReassignmentTargetStored,
    ReassignmentStep.RAISE_EPOCH: phases.ReassignmentEpochRaised,
    ReassignmentStep.START_REPLICAS: phases.ReassignmentReplicasStarted,
    ReassignmentStep.USE_TARGET: phases.ReassignmentReplicasOnline,
    ReassignmentStep.MOVE_LEADER: phases.ReassignmentLeaderMoved,
    ReassignmentStep.STOP_REMOVED: phases.ReassignmentReplicasStopped,
    ReassignmentStep.DELETE_REMOVED: phases.ReassignmentReplicasDeleted,
    ReassignmentStep.STORE_COMPLETED: phases.ReassignmentCompletionStored,
    ReassignmentStep.FORGET: phases.ReassignmentForgotten,
}
"""The phase that the controller reaches after a step."""
