"""The bound of the memory that the logs of a process take, and what goes when it is reached.

All logs of all brokers of a process share one budget (`klamm.log.memory.bytes`). A log reserves memory before it appends. When the budget
is used up, the oldest batches of the process go first: a log in memory loses them (its log start offset moves, as by retention, never
beyond its high watermark), a log on disk only forgets bytes that are in its files. When nothing may go, the append is refused with
KAFKA_STORAGE_ERROR; the partition stays online.

Age is counted in bytes: `tick` is the number of bytes that the process has appended. Each segment notes the tick of about every megabyte.
"""

from __future__ import annotations

from typing import Protocol

from klamm.protocol.errors import ApiError, ErrorCode

CHUNK_OVERHEAD = 80
"""Bytes that a chunk takes besides its data: the object, its places in lists, and memory that the allocator rounds up."""
DEFAULT_LIMIT = 1 << 30


class MemoryHolder(Protocol):
    """A log, as the budget sees it."""

    def oldest_tick(self) -> int | None:
        """The tick of the oldest batches that may go, None when none may."""

    def drop_oldest(self) -> int:
        """Let about a megabyte of the oldest batches go; the bytes that this freed."""


class MemoryBudget:
    """Bytes of records in memory. `limit` may be changed at any time."""

    __slots__ = ("_holders", "limit", "tick", "used")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.used = 0
        self.tick = 0
        self._holders: set[MemoryHolder] = set()

    def reserve(self, size: int) -> None:
        """Reserve this number of bytes. Raises ApiError(KAFKA_STORAGE_ERROR) when they cannot be had."""
        if self.used + size > self.limit:
            self.make_space(size)
        self.used += size
        self.tick += size

    def make_space(self, size: int) -> None:
        """Drop old batches until this number of bytes can be reserved. Raises ApiError(KAFKA_STORAGE_ERROR) when they cannot."""
        if self.used + size > self.limit and not self._free(size):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the logs of this process may take {self.limit} bytes of memory")

    def release(self, size: int) -> None:
        """Give back what was reserved."""
        self.used -= size

    def hold(self, holder: MemoryHolder) -> None:
        """This log has batches in memory."""
        self._holders.add(holder)

    def forget(self, holder: MemoryHolder) -> None:
        """This log has none any more."""
        self._holders.discard(holder)

    def _free(self, size: int) -> bool:
        """Let old batches go until `size` fits, and a 64th of the bound more, so that the logs are not gone through for every append."""
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
