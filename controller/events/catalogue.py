"""Everything that can happen to a controller: one closed union of frozen values, named as in Kafka's catalogue (controller 2).

Watches, timers, requests and responses put them on the queue. A request carries the future of its response. Every event is processed
or preempted (the queue was cleared because the session expired or the broker stops), never both.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Collection, Mapping

from klamm.controller.broker_sessions import Connection
from klamm.controller.options import ControllerOptions
from klamm.controller.phases import ProcedurePhase
from klamm.controller.values import Assignment, BrokerRegistration, BrokerToRegister, ConfigEntity, Election, ElectionResult, Result
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.value_class import dataclass

# --- events of any broker, controller or not ---


@dataclass(frozen=True, slots=True)
class Startup:
    """The broker is registered: watch `/controller`, try to become controller."""


@dataclass(frozen=True, slots=True)
class ControllerChange:
    """`/controller` was created or changed."""


@dataclass(frozen=True, slots=True)
class Reelect:
    """`/controller` was deleted."""


@dataclass(frozen=True, slots=True)
class Expire:
    """The ZooKeeper session expired. `begun` is done when this event is processed, or preempted by a later one."""

    begun: Future[None]


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect:
    """A new session began: register again, then try to become controller."""


@dataclass(frozen=True, slots=True)
class OptionsChanged:
    """The broker's configs changed: from now on the controller, active or not, decides by these."""

    options: ControllerOptions


# --- events of the active controller ---


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """Children of `/brokers/ids` changed."""


@dataclass(frozen=True, slots=True)
class BrokerModifications:
    """Data of `/brokers/ids/<id>` changed."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Children of `/brokers/topics` changed."""


@dataclass(frozen=True, slots=True)
class PartitionModifications:
    """Data of `/brokers/topics/<topic>` changed."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Children of `/admin/delete_topics` changed."""


@dataclass(frozen=True, slots=True)
class LogDirEventNotification:
    """Children of `/log_dir_event_notification` changed."""


@dataclass(frozen=True, slots=True)
class IsrChangeNotification:
    """Children of `/isr_change_notification` changed."""


@dataclass(frozen=True, slots=True)
class ZkPartitionReassignment:
    """`/admin/reassign_partitions` was created."""


@dataclass(frozen=True, slots=True)
class PartitionReassignmentIsrChange:
    """Data of the state znode of a partition changed."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PreferredReplicaElection:
    """`/admin/preferred_replica_election` was created."""


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection:
    """The rebalance timer fired."""


@dataclass(frozen=True, slots=True)
class BrokerSessionsExpired:
    """Brokers that registered with the controller may have been silent for too long: look at all of them."""


@dataclass(frozen=True, slots=True)
class BrokerCaughtUp:
    """A fenced broker has applied the whole metadata log, as it was when its request arrived. `broker_epoch` is the one it sent."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UncleanLeaderElectionEnabled:
    """The broker's dynamic `unclean.leader.election.enable` went from false to true."""


@dataclass(frozen=True, slots=True)
class TopicUncleanLeaderElectionEnabled:
    """A topic's config notification carries `unclean.leader.election.enable=true`."""

    topic: str


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """A notification named this entity: its configs in ZooKeeper may have changed.

    Of `brokers/<default>` unless KIP-491 is off; of every topic and every broker when brokers may register with the controller.
    """

    entity: ConfigEntity


@dataclass(frozen=True, slots=True)
class PhaseReleased:
    """A procedure that was held between two events may go on."""

    phase: ProcedurePhase


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived:
    """A broker responded to LeaderAndIsr. `broker_epoch` is the one the broker had then."""

    broker_id: int
    broker_epoch: int
    response: messages.LeaderAndIsrResponse


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived:
    """A broker responded to a StopReplica that deletes. `broker_epoch` is the one the broker had then.

    `succeeded` and `failed` are the replicas of topics in deletion that were to be deleted.
    """

    broker_id: int
    broker_epoch: int
    succeeded: tuple[TopicPartition, ...]
    failed: tuple[TopicPartition, ...]


# --- requests to the active controller ---


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect leaders of these partitions."""

    partitions: tuple[TopicPartition, ...]
    election: Election
    future: Future[dict[TopicPartition, ElectionResult]]


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker is about to stop; the partitions it still leads."""

    broker_id: int
    broker_epoch: int
    future: Future[list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker registers with the controller; what is stored of it."""

    broker: BrokerToRegister
    connection: Connection
    future: Future[BrokerRegistration]


@dataclass(frozen=True, slots=True)
class BrokerShutdownWanted:
    """A broker that registered with the controller is about to stop; whether it may go now."""

    broker_id: int
    broker_epoch: int
    future: Future[bool]


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader proposes ISRs; an AlterPartitionResponse."""

    request: messages.AlterPartitionRequest
    version: int
    future: Future[messages.AlterPartitionResponse]


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker needs a block of producer ids; (first id, count)."""

    broker_id: int
    broker_epoch: int
    future: Future[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignments:
    """Which of these partitions (None: of all) are being reassigned; their assignments, topics together."""

    partitions: tuple[TopicPartition, ...] | None
    future: Future[dict[TopicPartition, Assignment]]


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignments:
    """Reassign partitions to these replicas, or (None) cancel their reassignments; a code and a text for each."""

    targets: dict[TopicPartition, Ints | None]
    future: Future[dict[TopicPartition, tuple[ErrorCode, str | None]]]


# --- requests to the active controller that may take several events (KIP-179) ---
# `refused` has the results of what the sender has refused already. The controller puts what fails besides into it as soon as that is known:
# a sender need not wait for the future, which is of all results, in the order of the request.


@dataclass(frozen=True, slots=True)
class ReassignPartitions:
    """Move partitions to these brokers, with a throttle in bytes per second on each; `throttles.UNTHROTTLED` means no throttle."""

    targets: Mapping[TopicPartition, Ints]
    throttle: int
    remove_throttle: bool
    validate_only: bool
    refused: dict[TopicPartition, Result]
    future: Future[dict[TopicPartition, Result]]

    @property
    def keys(self) -> Collection[TopicPartition]:
        return self.targets


@dataclass(frozen=True, slots=True)
class AlterInterbrokerThrottledRates:
    """Throttle brokers to these rates, in bytes per second: as leader, as follower."""

    rates: Mapping[int, tuple[int, int]]
    remove_throttle: bool
    validate_only: bool
    refused: dict[int, Result]
    future: Future[dict[int, Result]]

    @property
    def keys(self) -> Collection[int]:
        return self.rates


@dataclass(frozen=True, slots=True)
class AlterInterbrokerThrottledReplicas:
    """Throttle replicas of partitions, as leaders and as followers; None means those on every registered broker."""

    replicas: Mapping[TopicPartition, tuple[Ints | None, Ints | None]]
    remove_throttle: bool
    validate_only: bool
    refused: dict[TopicPartition, Result]
    future: Future[dict[TopicPartition, Result]]

    @property
    def keys(self) -> Collection[TopicPartition]:
        return self.replicas


ElectionEvent = Startup | ControllerChange | Reelect | Expire | RegisterBrokerAndReelect | OptionsChanged
"""Every broker processes these, the active controller or not."""

WatchEvent = (
    ControllerChange
    | Reelect
    | BrokerChange
    | BrokerModifications
    | TopicChange
    | PartitionModifications
    | TopicDeletion
    | LogDirEventNotification
    | IsrChangeNotification
    | ZkPartitionReassignment
    | PartitionReassignmentIsrChange
    | PreferredReplicaElection
)
"""What a watch of the store can put on the queue."""

Request = (
    ElectLeaders
    | ControlledShutdown
    | RegisterBroker
    | BrokerShutdownWanted
    | AlterPartition
    | AllocateProducerIds
    | ListPartitionReassignments
    | AlterPartitionReassignments
)
"""Somebody waits for the response to these."""

ThrottleRequest = ReassignPartitions | AlterInterbrokerThrottledRates | AlterInterbrokerThrottledReplicas
"""Somebody waits for the response to these too, which another event may give."""

ControllerEvent = (
    BrokerChange
    | BrokerModifications
    | TopicChange
    | PartitionModifications
    | TopicDeletion
    | LogDirEventNotification
    | IsrChangeNotification
    | ZkPartitionReassignment
    | PartitionReassignmentIsrChange
    | PreferredReplicaElection
    | AutoPreferredReplicaLeaderElection
    | BrokerSessionsExpired
    | BrokerCaughtUp
    | UncleanLeaderElectionEnabled
    | TopicUncleanLeaderElectionEnabled
    | ConfigsChanged
    | PhaseReleased
    | LeaderAndIsrResponseReceived
    | StopReplicaResponseReceived
    | Request
    | ThrottleRequest
)
"""Only the active controller processes these; elsewhere they are preempted."""

Event = ElectionEvent | ControllerEvent


def refuse(request: Request | ThrottleRequest, error: ErrorCode, message: str | None = None) -> None:
    """Respond with an error, if there is no response yet."""
    if not request.future.done():
        request.future.set_exception(ApiError(error, message))


def preempt(event: Event) -> None:
    """The event will not be processed: those who wait for it learn that another controller has to do it."""
    if isinstance(event, Request):
        refuse(event, ErrorCode.STALE_CONTROLLER_EPOCH if isinstance(event, ControlledShutdown) else ErrorCode.NOT_CONTROLLER)
    elif isinstance(event, ThrottleRequest):
        refuse(event, ErrorCode.NOT_CONTROLLER)
    elif isinstance(event, Expire) and not event.begun.done():
        event.begun.set_result(None)
