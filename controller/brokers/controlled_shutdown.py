"""Controlled shutdown: a broker is about to stop; leaders on it are elected elsewhere first (controller 10.4)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.decisions import elections
from klamm.controller.partitions import partition_machine, replica_machine
from klamm.controller.procedures import SHUTDOWN, SHUTDOWN_PHASES, ShutdownStep
from klamm.controller.states import ReplicaState
from klamm.controller.term.term import Term
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
    stopping = _Stopping(broker_id, _held(cluster, broker_id))
    for step in SHUTDOWN:
        await SHUTDOWN_ACTIONS[step](term, stopping)
        phase = SHUTDOWN_PHASES.get(step)
        if phase is not None:
            await term.reach(partial(phase, cluster.epoch, broker_id))
    return [p.key for p in _held(cluster, broker_id) if p.info is not None and p.info.leader == broker_id]


def _held(cluster: Cluster, broker_id: int) -> list[Partition]:
    """Replicated partitions of a broker that have leadership and are not being deleted."""
    return [p for p in cluster.partitions_on(broker_id) if len(p.assignment.replicas) > 1 and p.info is not None and not p.topic.queued]


class _Stopping:
    """A broker that requests its shutdown, and what it leads and follows at that moment."""

    def __init__(self, broker_id: int, held: list[Partition]) -> None:
        self.broker_id = broker_id
        self.led = [p for p in held if p.info is not None and p.info.leader == broker_id]
        self.followed = [p for p in held if p.info is not None and p.info.leader != broker_id]


async def _move_leaders(term: Term, stopping: _Stopping) -> None:
    await partition_machine.to_online(term, stopping.led, elections.ControlledShutdown())


async def _shrink_isrs(term: Term, stopping: _Stopping) -> None:
    followed = stopping.followed
    if followed:
        with term.sender.batch() as batch:
            for p in followed:
                batch.stop(stopping.broker_id, p, delete=False)
        await replica_machine.move(term, {stopping.broker_id: followed}, ReplicaState.OFFLINE)


SHUTDOWN_ACTIONS: Mapping[ShutdownStep, Callable[[Term, _Stopping], Awaitable[None]]] = {
    ShutdownStep.MOVE_LEADERS: _move_leaders,
    ShutdownStep.SHRINK_ISRS: _shrink_isrs,
}
