"""Notifications of brokers in ZooKeeper, and responses of brokers (controller 4.6, 9, 12.3)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.controller.brokers import startup_and_failure as brokers
from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.events.catalogue import ControllerEvent, LeaderAndIsrResponseReceived, StopReplicaResponseReceived
from klamm.controller.partitions import replica_machine
from klamm.controller.reassignment import procedure as reassignment
from klamm.controller.reassignment import steps as reassignment_steps
from klamm.controller.states import ReplicaState
from klamm.controller.term.term import Term
from klamm.controller.topics import deletion
from klamm.controller.values import Broker
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode, received_code
from klamm.protocol.nouns import TopicPartition

if TYPE_CHECKING:
    from klamm.controller.propagation.batch import BrokerResponse

log = logging.getLogger("klamm.controller")

_STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


async def on_isr_change(term: Term) -> None:
    """Leaders of an older inter-broker protocol have written states themselves: read them again, send them to all brokers."""
    names, keys = await term.store.isr_notifications()
    try:
        if keys:  # should none of them be known, the brokers get a request without partitions all the same
            partitions = [p for k in dict.fromkeys(keys) if (p := term.cluster.partition(k)) is not None]
            for p, state in zip(partitions, await term.store.read_states([p.key for p in partitions]), strict=True):
                if state is not None:
                    term.cluster.states_changed((p,), (state,))
            with term.sender.batch() as batch:
                batch.update_metadata_everywhere(partitions)
            if term.cluster.reassigning:
                await reassignment.complete_ready(term, partitions)
    finally:
        await term.store.delete_isr_notifications(names)


async def on_state_change(term: Term, key: TopicPartition) -> None:
    """The leader of a partition that is being reassigned, of an older inter-broker protocol, has written its state: read it again."""
    partition = term.cluster.partition(key)
    if partition is None or partition not in term.cluster.reassigning:
        return
    await reassignment_steps.watch_states(term, (partition,))
    await reassignment.complete_ready(term, (partition,))


async def on_log_dir_event(term: Term) -> None:
    """A log directory failed: send those brokers their roles again; their responses name the lost replicas."""
    names, broker_ids = await term.store.log_dir_notifications()
    try:
        hosted = {b: term.cluster.partitions_on(b) for b in dict.fromkeys(broker_ids) if b in term.cluster.brokers}
        await replica_machine.move(term, {b: held for b, held in hosted.items() if held}, ReplicaState.ONLINE)
    finally:
        await term.store.delete_log_dir_notifications(names)


def leader_and_isr_rows(cluster: Cluster, response: messages.LeaderAndIsrResponse) -> list[tuple[Partition, int]]:
    """(partition, error code) of a LeaderAndIsr response in any version, as far as the partitions are known."""
    out: list[tuple[Partition, int]] = []

    def add(topic: Topic | None, index: int, error: int) -> None:
        p = None if topic is None else topic.partitions.get(index)
        if p is not None:
            out.append((p, error))

    for row in response.partition_errors:
        add(cluster.topics.get(row.topic_name), row.partition_index, row.error_code)
    for t in response.topics:
        topic = cluster.topics_by_id.get(t.topic_id)
        for row in t.partition_errors:
            add(topic, row.partition_index, row.error_code)
    return out


def event_of_response(
    cluster: Cluster, broker: Broker, response: BrokerResponse, deleted: frozenset[Partition]
) -> ControllerEvent | None:
    """The event that a response of a broker makes; most need none. `deleted` are the partitions that a StopReplica deletes."""
    if isinstance(response, messages.LeaderAndIsrResponse):
        if _changes_offline_dirs(cluster, broker.id, response):
            return LeaderAndIsrResponseReceived(broker.id, broker.epoch, response)
    elif isinstance(response, messages.StopReplicaResponse):
        return _stopped(cluster, broker, response, deleted)
    elif response.error_code:
        log.error("broker %d returned an error for UpdateMetadata: %s", broker.id, received_code(response.error_code).name)
    return None


def _changes_offline_dirs(cluster: Cluster, broker_id: int, response: messages.LeaderAndIsrResponse) -> bool:
    """Whether a LeaderAndIsr response can change what is known of offline log directories."""
    if response.error_code:
        log.error("broker %d returned an error for LeaderAndIsr: %s", broker_id, received_code(response.error_code).name)
        return False
    if cluster.offline_dirs.get(broker_id):
        return True
    if any(row.error_code == _STORAGE_ERROR for row in response.partition_errors):
        return True
    return any(row.error_code == _STORAGE_ERROR for t in response.topics for row in t.partition_errors)


async def on_leader_and_isr_response(term: Term, broker_id: int, response: messages.LeaderAndIsrResponse) -> None:
    """The truth about offline replicas: KAFKA_STORAGE_ERROR adds, NONE removes."""
    cluster = term.cluster
    if broker_id not in cluster.brokers:
        return
    known = cluster.offline_dirs.get(broker_id, set())
    rows = leader_and_isr_rows(cluster, response)
    online = {p for p, error in rows if error == ErrorCode.NONE}
    offline = {p for p, error in rows if error == _STORAGE_ERROR}
    cluster.offline_replicas_changed(broker_id, (known - online) | offline)
    new = sorted(offline - known, key=lambda p: p.key)
    if new:
        log.warning("broker %d has offline log directories with %d replicas", broker_id, len(new))
        await brokers.on_replicas_offline(term, {broker_id: new})


def _stopped(
    cluster: Cluster, broker: Broker, response: messages.StopReplicaResponse, deleted: frozenset[Partition]
) -> StopReplicaResponseReceived | None:
    succeeded: list[TopicPartition] = []
    failed: list[TopicPartition] = []
    for row in response.partition_errors:
        p = cluster.partition(TopicPartition(row.topic_name, row.partition_index))
        if p is not None and p in deleted and p.topic.deletion is not None and p.topic.deletion.started:
            (failed if response.error_code or row.error_code else succeeded).append(p.key)
    return StopReplicaResponseReceived(broker.id, broker.epoch, tuple(succeeded), tuple(failed)) if succeeded or failed else None


async def on_stop_replica_response(
    term: Term, broker_id: int, succeeded: Sequence[TopicPartition], failed: Sequence[TopicPartition]
) -> None:
    """A broker has (or has not) deleted replicas of topics in deletion. Whatever state they have now, it counts."""
    refused, done = ([p for k in keys if (p := term.cluster.partition(k)) is not None] for keys in (failed, succeeded))
    if refused or done:
        await deletion.on_stopped(term, broker_id, refused, done)
