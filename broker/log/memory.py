"""The memory limit of all logs in a process, and what is dropped when it is reached.

All logs of all brokers in a process share one budget (`klamm.log.memory.bytes`). A log reserves memory before it appends. When the budget
is used up, the oldest batches of the process are dropped first. A log in memory loses them: its log start offset moves, as by retention,
but not beyond its high watermark. A log on disk only drops bytes that are in its files. If nothing can be dropped, the append is refused
with KAFKA_STORAGE_ERROR; the partition stays online.

Age is counted in bytes: `tick` is the number of bytes that the process has appended. Each segment notes the tick of about every megabyte.
"""

from __future__ import annotations

from typing import Protocol

from klamm.protocol.errors import ApiError, ErrorCode

CHUNK_OVERHEAD = 80
"""Memory of a chunk in addition to its data, in bytes: the object, its entries in lists, and rounding by the allocator."""
DEFAULT_LIMIT = 1 << 30


class MemoryHolder(Protocol):
    """The part of a log that the budget needs."""

    def oldest_tick(self) -> int | None:
        """The tick of the oldest batches that may be dropped, None if there are none."""

    def drop_oldest(self) -> int:
        """Drop about a megabyte of the oldest batches; returns the number of freed bytes."""


class MemoryBudget:
    """The memory budget of all logs in a process, in bytes. `limit` may be changed at any time."""

    __slots__ = ("_holders", "limit", "tick", "used")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.used = 0
        self.tick = 0
        self._holders: set[MemoryHolder] = set()

    def reserve(self, size: int) -> None:
        """Reserve this number of bytes. Raises ApiError(KAFKA_STORAGE_ERROR) if there is not enough memory."""
        if self.used + size > self.limit:
            self.make_space(size)
        self.used += size
        self.tick += size

    def make_space(self, size: int) -> None:
        """Drop old batches until this number of bytes can be reserved. Raises ApiError(KAFKA_STORAGE_ERROR) if that is not possible."""
        if self.used + size > self.limit and not self._free(size):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the logs of this process may take {self.limit} bytes of memory")

    def release(self, size: int) -> None:
        """Release reserved bytes."""
        self.used -= size

    def hold(self, holder: MemoryHolder) -> None:
        """Add a log that has batches in memory."""
        self._holders.add(holder)

    def forget(self, holder: MemoryHolder) -> None:
        """Remove a log that does not have batches in memory any more."""
        self._holders.discard(holder)

    def _free(self, size: int) -> bool:
        """Drop old batches until `size` fits, and a 64th of the limit more, so that not every append must search through all logs."""
        if size > self.limit:
            return False
        wanted = self.limit - size - self.limit // 64
        while self.used > wanted:
            holders = list(self._holders)
            ages = [(tick, index) for index, holder in enumerate(holders) if (tick := holder.oldest_tick()) is not None]
            if not ages:
                break
            ages.sort()
            freed = 0
            for (tick, index), (until, _) in zip(ages, [*ages[1:], (self.tick + 1, 0)], strict=True):
                holder = holders[index]
                at: int | None = tick
                while at is not None and at <= until and self.used > wanted:
                    dropped = holder.drop_oldest()
                    if dropped == 0:
                        break
                    freed += dropped
                    at = holder.oldest_tick()
                if self.used <= wanted:
                    break
            if freed == 0:
                break
        return self.used + size <= self.limit
