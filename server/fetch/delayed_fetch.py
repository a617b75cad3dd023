"""Fetches that wait until there are enough bytes, something is wrong, or their time is over; and what all fetches of a broker share.

A waiting fetch is called when one of its partitions changes, and looks at this one only: what it counted before for the others still holds.
It ends at once when a partition cannot be read any more, when its offset is beyond what may be read, and when the logs part. It also
ends when its client has gone, or sends the next request of the same session. All partitions are read again at the end.
Source: `DelayedFetch` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from klamm.broker.fetch_reads import FetchParams, divergence, end_of, find
from klamm.broker.fetch_sessions import FetchPartition, FetchSessionCache
from klamm.broker.preferred_replica import RACK_AWARE_SELECTOR
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replication_quotas import ReplicationQuota
from klamm.configs.broker_config import BrokerConfig
from klamm.protocol.errors import ApiError

READ_AHEAD_BYTES = 256 << 20
"""Records from disk that are in memory for responses in the making, of all clients together."""

_AT_ONCE = -1


class ByteBudget:
    """A number of bytes that requests take and give back, in the order they come. One that is larger than all has it alone."""

    def __init__(self, size: int = READ_AHEAD_BYTES) -> None:
        self._size = size
        self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> int:
        """Wait for this number of bytes. Returns what `give` needs."""
        size = min(size, self._size)
        if not self._waiting and size <= self._free:
            self._free -= size
            return size
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            raise
        return size

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self._free += size
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= self._free):
            taken, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= taken
                turn.set_result(None)


class Fetches:
    """What the fetches of one broker share."""

    def __init__(self, config: BrokerConfig, randrange: Callable[[int], int]) -> None:
        self.sessions = FetchSessionCache(config.get("max.incremental.fetch.session.cache.slots"), randrange)
        self.budget = ByteBudget()
        self.max_bytes: int = config.get("fetch.max.bytes")
        self.names_closer_replicas = config.get("replica.selector.class") == RACK_AWARE_SELECTOR
        """Whether a consumer with a rack is sent to a replica in it."""
        self.params: dict[tuple[object, ...], FetchParams] = {}
        """What clients send again and again, by the fields of their requests."""


class DelayedFetch:
    """One waiting fetch."""

    __slots__ = ("_ended", "_params", "_quota", "_readable", "_replicas", "_sizes")

    def __init__(self, replicas: ReplicaManager, params: FetchParams, quota: ReplicationQuota | None = None) -> None:
        """`quota` is that of a leader whose follower fetches: what it holds back does not count."""
        self._replicas = replicas
        self._params = params
        self._quota = quota
        self._sizes: dict[FetchPartition, int] = {}
        self._readable = 0
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        return self._ended.done()

    async def wait(self) -> None:
        """Wait until it ends."""
        await self._ended

    def end(self) -> None:
        """End it, for its time is over or its client has gone."""
        if not self._ended.done():
            self._ended.set_result(None)

    overtaken = end

    def partition_changed(self, partition: FetchPartition) -> None:
        """Count what this partition gives now."""
        if self._ended.done():
            return
        size = self._count(partition)
        if size == _AT_ONCE:
            self._ended.set_result(None)
            return
        before = self._sizes.get(partition, 0)
        if size != before:
            self._sizes[partition] = size
            self._readable += size - before
            if self._readable >= self._params.min_bytes:
                self._ended.set_result(None)

    def _count(self, partition: FetchPartition) -> int:
        """The bytes that can be read, at most as many as the client takes; _AT_ONCE to end the wait."""
        offset = partition.fetch_offset
        try:
            replica = find(self._replicas, self._params, partition)
            end_offset = end_of(replica, self._params.isolation)
            if offset > end_offset or (partition.last_fetched_epoch >= 0 and divergence(replica, partition) is not None):
                return _AT_ONCE
        except ApiError:
            return _AT_ONCE
        log = replica.log
        if log is None or offset == end_offset:
            return 0
        if self._quota is not None and self._quota.holds_back(replica, self._params.replica_id):
            return 0
        return max(min(log.bytes_between(offset, end_offset), partition.max_bytes), 0)
