"""Everything that can happen to a controller. Events are frozen, in the past tense of Kafka's catalogue (controller 2).

Watches and timers put them on the queue; events that answer somebody carry the future to answer (see `loop.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.controller.options import ControllerOptions


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
    """The ZooKeeper session expired."""


@dataclass(frozen=True, slots=True)
class RegisterBrokerAndReelect:
    """A new session began: register again, then try to become controller."""


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
class PreferredReplicaElection:
    """`/admin/preferred_replica_election` was created."""


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection:
    """The rebalance timer fired."""


@dataclass(frozen=True, slots=True)
class UncleanLeaderElectionEnabled:
    """The broker's dynamic `unclean.leader.election.enable` went from false to true."""


@dataclass(frozen=True, slots=True)
class TopicUncleanLeaderElectionEnabled:
    """A topic's config notification carries `unclean.leader.election.enable=true`."""

    topic: str


@dataclass(frozen=True, slots=True)
class OptionsChanged:
    """The broker's configs changed: from now on the controller, active or not, decides by these."""

    options: ControllerOptions


WatchEvent = (
    Startup
    | ControllerChange
    | Reelect
    | Expire
    | RegisterBrokerAndReelect
    | BrokerChange
    | BrokerModifications
    | TopicChange
    | PartitionModifications
    | TopicDeletion
    | LogDirEventNotification
    | IsrChangeNotification
    | ZkPartitionReassignment
    | PreferredReplicaElection
    | AutoPreferredReplicaLeaderElection
    | UncleanLeaderElectionEnabled
    | TopicUncleanLeaderElectionEnabled
    | OptionsChanged
)
