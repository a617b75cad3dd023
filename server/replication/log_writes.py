"""Waits until logs on disk have written their appended records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from klamm.broker.partition import HostedPartition, Role


async def all_written(partitions: Iterable[HostedPartition]) -> None:
    """Return when the present records of all logs are written. A log does not count any more if its replica is not a follower, or its disk
    failed. Logs in memory are always written.
    """
    waiting = _Waiting()
    for partition in partitions:
        waiting.add(partition)
    await waiting.done()


class _Waiting:
    """Watches partitions until each log is written up to its target offset."""

    def __init__(self) -> None:
        self._targets: dict[HostedPartition, int] = {}
        self._done: asyncio.Future[None] | None = None

    def add(self, partition: HostedPartition) -> None:
        replica_log = partition.log
        if replica_log is not None and replica_log.log_end_offset < replica_log.next_offset and partition not in self._targets:
            self._targets[partition] = replica_log.next_offset
            partition.watch(self)

    async def done(self) -> None:
        if not self._targets:
            return
        self._done = asyncio.get_running_loop().create_future()
        try:
            await self._done
        finally:
            for partition in self._targets:
                partition.unwatch(self)

    def partition_changed(self, partition: HostedPartition) -> None:
        target = self._targets.get(partition)
        if target is None or not _is_over(partition, target):
            return
        del self._targets[partition]
        partition.unwatch(self)
        if not self._targets and self._done is not None and not self._done.done():
            self._done.set_result(None)


def _is_over(partition: HostedPartition, target: int) -> bool:
    replica_log = partition.log
    if replica_log is None or partition.offline or partition.role is not Role.FOLLOWER:
        return True
    return replica_log.log_end_offset >= target or replica_log.next_offset < target
