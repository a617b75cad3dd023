"""Controlled shutdown: a broker is about to stop; leaders on it are elected elsewhere first (controller 10.4)."""

from __future__ import annotations

import logging

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.decisions import elections
from klamm.controller.partitions import partition_machine, replica_machine
from klamm.controller.phases import ShutdownLeadersMoved
from klamm.controller.states import ReplicaState
from klamm.controller.term import Term
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH, TopicPartition

log = logging.getLogger("klamm.controller")


async def controlled_shutdown(term: Term, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
    """Move leaders away and take the broker out of the ISRs; the partitions it still leads.

    Raises ApiError: STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE, UNKNOWN_SERVER_ERROR (an unknown id with an epoch, as Apache Kafka).
    """
    cluster = term.cluster
    broker = cluster.brokers.get(broker_id)
    if broker_epoch != NO_EPOCH:
        if broker is None:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} is not registered")
        if broker_epoch < broker.epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker epoch {broker_epoch} is older than {broker.epoch}")
    if broker is None:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
    log.info("broker %d requests controlled shutdown", broker_id)
    cluster.shutdown_began(broker_id)
    if term.metadata_log is not None:
        term.metadata_log.shutdown_began(broker_id)
    held = _held(cluster, broker_id)
    led = [p for p in held if p.info is not None and p.info.leader == broker_id]
    followed = [p for p in held if p.info is not None and p.info.leader != broker_id]
    await partition_machine.to_online(term, led, elections.ControlledShutdown())
    await term.reach(lambda: ShutdownLeadersMoved(cluster.epoch, broker_id))
    if followed:
        with term.sender.batch() as batch:
            for p in followed:
                batch.stop(broker_id, p, delete=False)
        await replica_machine.move(term, {broker_id: followed}, ReplicaState.OFFLINE)
    return [p.key for p in _held(cluster, broker_id) if p.info is not None and p.info.leader == broker_id]


def _held(cluster: Cluster, broker_id: int) -> list[Partition]:
    """Replicated partitions of a broker that have leadership and are not being deleted."""
    return [p for p in cluster.partitions_on(broker_id) if len(p.assignment.replicas) > 1 and p.info is not None and not p.topic.queued]
