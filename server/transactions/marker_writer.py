"""Writes the markers that end transactions into partitions that this broker leads, for WriteTxnMarkers and for its own coordinator.

A marker is a control batch, and it counts once all replicas of the ISR have it. After that of a partition of the offsets topic, the group
coordinator learns whether the offsets of the transaction are committed.
Source: `KafkaApis.handleWriteTxnMarkersRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import NamedTuple

from klamm.broker.log.log import AppendResult
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.record import ControlType, control_batch
from klamm.seams.clock import Clock
from klamm.seams.pace import Pace
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC, GroupCoordinator
from klamm.server.produce.internal_appends import InternalAppends, outcome_of

log = logging.getLogger(__name__)


class TransactionEnd(NamedTuple):
    """What a marker says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


class MarkerWriter:
    """Writes markers into the logs of one broker. `timeout_ms` is how long a marker waits for the replicas."""

    def __init__(self, replicas: ReplicaManager, groups: GroupCoordinator, clock: Clock, timeout_ms: int) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._appends = InternalAppends(replicas, clock, timeout_ms)

    async def write(self, end: TransactionEnd, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Write a marker into each of these partitions; a code for each."""
        begun: dict[TopicPartition, asyncio.Future[AppendResult] | ErrorCode] = {}
        codes, pace = {}, Pace()
        for partition in partitions:
            await pace()
            begun[partition] = self._append(end, partition)
        for partition, appended in begun.items():
            await pace()
            codes[partition] = appended if isinstance(appended, ErrorCode) else await self._written(end, partition, appended)
        return codes

    def _append(self, end: TransactionEnd, partition: TopicPartition) -> asyncio.Future[AppendResult] | ErrorCode:
        if self._replicas.get(*partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        kind = ControlType.COMMIT if end.is_commit else ControlType.ABORT
        batch = control_batch(kind, 0, -1, end.producer_id, end.producer_epoch, end.coordinator_epoch, self._clock.now_ms())
        return self._appends.append(partition, batch)

    async def _written(self, end: TransactionEnd, partition: TopicPartition, appended: asyncio.Future[AppendResult]) -> ErrorCode:
        await asyncio.wait({appended})
        code, _ = outcome_of(appended, partition)
        if code is not ErrorCode.NONE:
            return code
        if partition.topic == OFFSETS_TOPIC:
            self._groups.transaction_ended(partition.partition, end.producer_id, end.is_commit)
        return ErrorCode.NONE
