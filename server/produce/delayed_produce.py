"""Produce requests whose records are appended and not yet where their acks want them: they wait for the partitions, without polling.

With acks=-1 records have to be in all replicas of the ISR, with acks=1 in the file of a log on disk (ADR 8). The delayed Produce watches
its partitions and looks only at the one that has changed. Source: `DelayedProduce` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.errors import ErrorCode
from klamm.seams.clock import Clock, Timer

ALL_REPLICAS = -1


class Appended:
    """Records of one partition. `code` is None until it is settled what became of them."""

    __slots__ = ("code", "last_offset", "partition")

    def __init__(self, partition: HostedPartition, last_offset: int) -> None:
        self.partition = partition
        self.last_offset = last_offset
        self.code: ErrorCode | None = None

    def settle(self, replicas: ReplicaManager, acks: int) -> bool:
        """Look what became of them; whether that is known."""
        if self.code is None:
            self.code = settled(replicas, self.partition, self.last_offset, acks)
        return self.code is not None


def settled(replicas: ReplicaManager, partition: HostedPartition, last_offset: int, acks: int) -> ErrorCode | None:
    """What became of records that were appended up to `last_offset`; None while they have to wait."""
    if acks == ALL_REPLICAS:
        return replicas.replication_result(partition, last_offset)
    log = partition.log
    if log is not None and log.log_end_offset > last_offset:
        return ErrorCode.NONE
    if partition.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return None if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


class DelayedProduce:
    """Waits until all records of one request are settled, or the time-out is over; then calls `done`, once.

    Records that are not settled then keep None as their code: the request has timed out for them. The time-out is for the replicas: the
    file of this broker's own log is waited for in any case.
    """

    __slots__ = ("_acks", "_done", "_is_over", "_replicas", "_timer", "_waiting")

    def __init__(self, replicas: ReplicaManager, acks: int, appended: list[Appended], done: Callable[[], object]) -> None:
        """`appended` are not settled yet."""
        self._replicas = replicas
        self._acks = acks
        self._done: Callable[[], object] | None = done
        self._timer: Timer | None = None
        self._is_over = False
        self._waiting: dict[HostedPartition, Appended] = {one.partition: one for one in appended}
        for one in appended:
            one.partition.watch(self)

    def begin(self, clock: Clock, timeout_ms: int) -> None:
        """Start the time-out, which acks=1 does not have."""
        if self._acks == ALL_REPLICAS:
            self._timer = clock.call_later(max(timeout_ms, 0) / 1000, self._time_out)

    def partition_changed(self, partition: HostedPartition) -> None:
        """From the partition."""
        one = self._waiting.get(partition)
        if one is not None and one.settle(self._replicas, self._acks):
            del self._waiting[partition]
            partition.unwatch(self)
        if not self._waiting or (self._is_over and self._is_written()):
            self._finish()

    def _time_out(self) -> None:
        self._is_over = True
        if self._is_written():
            self._finish()

    def _is_written(self) -> bool:
        """Whether the own logs have the records, as far as this broker still leads."""
        return all(not partition.is_leader or partition.log_end_offset > one.last_offset for partition, one in self._waiting.items())

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            if self._timer is not None:
                self._timer.cancel()
            for partition in self._waiting:
                partition.unwatch(self)
            self._waiting = {}
            done()


async def wait_for_acks(replicas: ReplicaManager, clock: Clock, acks: int, appended: list[Appended], timeout_ms: int) -> None:
    """Return when all are settled or the time-out is over."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    DelayedProduce(replicas, acks, appended, end).begin(clock, timeout_ms)
    await ended
