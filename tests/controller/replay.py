"""Makes a cluster of the changes that a subscriber saw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from klamm.controller import changes
from klamm.controller.changes import Change
from klamm.controller.cluster import Cluster, Partition
from klamm.protocol.nouns import TopicPartition


def replay(seen: Iterable[Change]) -> Cluster:
    """The cluster after these changes of one term; TermBegan is the first of them. Raises ValueError where one does not fit."""
    cluster: Cluster | None = None
    for change in seen:
        if cluster is not None:
            _apply(cluster, change)
        elif isinstance(change, changes.TermBegan):
            cluster = Cluster(change.controller_epoch)
        else:
            raise ValueError(f"{change} comes before the beginning of a term")
    if cluster is None:
        raise ValueError("no term began")
    return cluster


def _apply(cluster: Cluster, change: Change) -> None:
    match change:
        case changes.TermBegan(epoch):
            raise ValueError(f"the term of epoch {epoch} begins in another one")
        case changes.TermEnded():
            cluster.term_ended()
        case changes.BrokersRegistered(brokers):
            cluster.brokers_registered(brokers)
        case changes.BrokersUnregistered(broker_ids):
            cluster.brokers_unregistered(broker_ids)
        case changes.RegistrationsChanged(registrations):
            cluster.registrations_changed(registrations)
        case changes.BrokersFenced(brokers):
            cluster.brokers_fenced(brokers)
        case changes.BrokersUnfenced(broker_ids):
            cluster.brokers_unfenced(broker_ids)
        case changes.ShutdownBegan(broker_id):
            cluster.shutdown_began(broker_id)
        case changes.ShutdownEnded(broker_id):
            cluster.shutdown_ended(broker_id)
        case changes.OfflineReplicasChanged(broker_id, keys):
            cluster.offline_replicas_changed(broker_id, {_known(cluster, key) for key in keys})
        case changes.BlacklistChanged(broker_ids):
            cluster.blacklist_changed(broker_ids)
        case changes.TopicAdded(topic, topic_id):
            cluster.topic_added(topic, topic_id)
        case changes.TopicRemoved(topic):
            cluster.topic_removed(topic)
        case changes.PartitionAdded(key, assignment):
            cluster.partition_added(cluster.topics[key.topic], key.partition, assignment)
        case changes.AssignmentChanged(key, assignment):
            cluster.assignment_changed(_known(cluster, key), assignment)
        case changes.ReassignmentsBegan(keys):
            cluster.reassignments_began([_known(cluster, key) for key in keys])
        case changes.ReassignmentsEnded(keys):
            cluster.reassignments_ended([_known(cluster, key) for key in keys])
        case changes.StatesChanged(states):
            cluster.states_changed([_known(cluster, key) for key, _ in states], [state for _, state in states])
        case changes.PartitionStatesChanged(keys, partition_state):
            cluster.partition_states_changed([_known(cluster, key) for key in keys], partition_state)
        case changes.ReplicaStatesChanged(broker_id, keys, replica_state):
            cluster.replica_states_changed(broker_id, [_known(cluster, key) for key in keys], replica_state)
        case changes.TopicDeletionQueued(topic):
            cluster.deletion_queued(topic)
        case changes.DeletionsStarted(topics):
            cluster.deletions_started(topics)
        case changes.DeletionsPostponed(topics, why):
            cluster.deletions_postponed(topics, why)
        case changes.DeletionsResumed(topics):
            cluster.deletions_resumed(topics)
        case _:
            assert_never(change)


def _known(cluster: Cluster, key: TopicPartition) -> Partition:
    partition = cluster.partition(key)
    if partition is None:
        raise ValueError(f"{key} is not known")
    return partition
