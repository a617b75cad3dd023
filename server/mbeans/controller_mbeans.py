"""MBeans of the controller (`kafka.controller`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klamm.controller.cluster import Cluster
from klamm.controller.partitions import leader_rebalance
from klamm.controller.states import PartitionState, ReplicaState
from klamm.server.mbeans.mbean import Kind, MBean, Read, Sample, one
from klamm.server.mbeans.readings import BrokerReading
from klamm.server.metrics.controller_counts import STATES, TIMERS

_CONTROLLER = "kafka.controller:type=KafkaController,name="
_STATS = "kafka.controller:type=ControllerStats,name="
_CHANNELS = "kafka.controller:type=ControllerChannelManager,name="
_EVENTS = "kafka.controller:type=ControllerEventManager,name="


def _active(value: Callable[[Cluster], int]) -> Read:
    """A number of the active controller, 0 on other brokers."""
    return one(lambda reading: 0 if reading.cluster is None else value(reading.cluster))


def _with_leaders(cluster: Cluster) -> int:
    return sum(partition.info is not None for topic in list(cluster.topics.values()) for partition in list(topic.partitions.values()))


def _replicas_to_delete(cluster: Cluster, state: ReplicaState | None) -> int:
    """Replicas of topics that are queued for deletion: those in a state, or those that are not deleted yet."""
    count = 0
    for name in cluster.deletions.topics:
        topic = cluster.topics.get(name)
        for partition in () if topic is None else list(topic.partitions.values()):
            states = [cluster.replica_state(partition, broker_id) for broker_id in partition.assignment.replicas]
            count += sum(each is state if state is not None else each is not ReplicaState.DELETION_SUCCESSFUL for each in states)
    return count


def _state(reading: BrokerReading) -> int:
    current = reading.controller.current
    return 0 if current is None or reading.cluster is None else STATES.get(type(current.event), (0, None))[0]


def _timer(name: str) -> Read:
    return one(lambda reading: reading.counts.controller.timers[name])


def _queue_sizes(reading: BrokerReading) -> Iterator[Sample]:
    for broker_id, size in reading.parts.channels.queue_sizes().items():
        yield (str(broker_id),), size


def _queue_times(reading: BrokerReading) -> Iterator[Sample]:
    for broker_id in reading.parts.channels.queue_sizes():
        yield (str(broker_id),), reading.counts.controller.queue_times[broker_id]


_OF_TIMERS = {
    "ControllerChangeRateAndTimeMs": "elections of the controller: its start, changes and the loss of `/controller`",
    "LeaderElectionRateAndTimeMs": "brokers that come, go or change",
    "TopicChangeRateAndTimeMs": "topics that are new or have more partitions",
    "TopicDeletionRateAndTimeMs": "topics that are to be deleted, and responses of brokers that deleted replicas",
    "PartitionReassignmentRateAndTimeMs": "reassignments: their requests and their progress",
    "AutoLeaderBalanceRateAndTimeMs": "looks of the automatic leader rebalance",
    "ManualLeaderBalanceRateAndTimeMs": "leader elections on request",
    "ControlledShutdownRateAndTimeMs": "requests for a controlled shutdown",
    "IsrChangeRateAndTimeMs": "AlterPartition requests, and ISR changes in ZooKeeper",
    "LeaderAndIsrResponseReceivedRateAndTimeMs": "responses to LeaderAndIsr requests",
    "LogDirChangeRateAndTimeMs": "log directories that failed",
    "UncleanLeaderElectionEnableRateAndTimeMs": "unclean elections being enabled for all topics",
    "TopicUncleanLeaderElectionEnableRateAndTimeMs": "unclean elections being enabled for a topic",
    "ListPartitionReassignmentRateAndTimeMs": "lists of reassignments",
}
_NOTES = {
    "LeaderAndIsrResponseReceivedRateAndTimeMs": "Only a response with an error is an event here; Kafka has one for each response.",
    "TopicDeletionRateAndTimeMs": "Only a response that matters to a deletion is an event here; Kafka has one for each response.",
    "TopicChangeRateAndTimeMs": "Events that wait together may be processed as one.",
    "IsrChangeRateAndTimeMs": "AlterPartition requests that wait together are processed together, and each of them has the time of all.",
}

CONTROLLER_MBEANS: tuple[MBean, ...] = (
    MBean(_CONTROLLER + "ActiveControllerCount", Kind.GAUGE, "1 on the active controller, otherwise 0",
          read=one(lambda reading: int(reading.controller.is_active))),
    MBean(_CONTROLLER + "ControllerState", Kind.GAUGE, "Kafka's number for what the controller does at the moment; 0 is idle",
          read=one(_state)),
    MBean(_CONTROLLER + "GlobalTopicCount", Kind.GAUGE, "topics of the cluster", read=_active(lambda cluster: len(cluster.topics))),
    MBean(_CONTROLLER + "GlobalPartitionCount", Kind.GAUGE, "partitions of the cluster that have, or had, a leader",
          read=_active(_with_leaders)),
    MBean(_CONTROLLER + "OfflinePartitionsCount", Kind.GAUGE, "partitions without a leader",
          read=_active(lambda cluster: sum(p.state is PartitionState.OFFLINE for p in cluster.not_online()))),
    MBean(_CONTROLLER + "PreferredReplicaImbalanceCount", Kind.GAUGE, "partitions that are not led by their preferred replica",
          read=_active(leader_rebalance.imbalance),
          note="Brokers on `preferred_leader_blacklist` come last in the order; partitions that only such brokers have do not count."),
    MBean(_CONTROLLER + "TopicsToDeleteCount", Kind.GAUGE, "topics that are queued for deletion",
          read=_active(lambda cluster: len(cluster.deletions))),
    MBean(_CONTROLLER + "TopicsIneligibleToDeleteCount", Kind.GAUGE, "topics whose deletion waits for something",
          read=_active(lambda cluster: len(cluster.deletions.ineligible))),
    MBean(_CONTROLLER + "ReplicasToDeleteCount", Kind.GAUGE, "replicas of topics queued for deletion that are not deleted yet",
          read=_active(lambda cluster: _replicas_to_delete(cluster, None))),
    MBean(_CONTROLLER + "ReplicasIneligibleToDeleteCount", Kind.GAUGE, "those of them that cannot be deleted at present",
          read=_active(lambda cluster: _replicas_to_delete(cluster, ReplicaState.DELETION_INELIGIBLE))),
    MBean(_CONTROLLER + "ActiveBrokerCount", Kind.GAUGE, "brokers that are registered", read=_active(lambda cluster: len(cluster.brokers))),
    MBean(_CONTROLLER + "FencedBrokerCount", Kind.GAUGE, "brokers that are fenced", read=_active(lambda cluster: len(cluster.fenced)),
          note="Always 0 in ZooKeeper mode of Kafka; here brokers that registered with the controller may be fenced."),
    MBean(_CONTROLLER + "ZkMigrationState", Kind.GAUGE, "how far the migration from ZooKeeper to KRaft is", read=one(lambda _: 0),
          note="0, as on every broker of Kafka that migrates nothing."),
    *(
        MBean(_STATS + name, Kind.TIMER, f"number and time of events: {meaning}", read=_timer(name), note=_NOTES.get(name, ""))
        for name, meaning in _OF_TIMERS.items() if name in TIMERS
    ),
    MBean(_STATS + "UncleanLeaderElectionsPerSec", Kind.METER, "leaders that were elected uncleanly",
          read=one(lambda reading: reading.counts.controller.unclean_elections)),
    MBean(_EVENTS + "EventQueueSize", Kind.GAUGE, "events that wait", read=one(lambda reading: len(reading.controller.queue))),
    MBean(_EVENTS + "EventQueueTimeMs", Kind.HISTOGRAM, "time that events waited",
          read=one(lambda reading: reading.counts.controller.queue_time)),
    MBean(_CHANNELS + "TotalQueueSize", Kind.GAUGE, "requests to brokers that wait",
          read=one(lambda reading: sum(reading.parts.channels.queue_sizes().values()))),
    MBean(_CHANNELS + "QueueSize", Kind.GAUGE, "requests to a broker that wait", ("broker-id",), _queue_sizes),
    MBean(_CHANNELS + "RequestRateAndQueueTimeMs", Kind.TIMER, "requests to a broker, and the time that they waited", ("broker-id",),
          _queue_times),
)
