"""The memory limit of all logs in a process, and what happens when it is reached.

All logs of all brokers in a process share one budget (`klamm.log.memory.bytes`). A log reserves memory before it appends. When the budget
is used up, the oldest batches of the process leave the memory, and no record is lost. A log on disk drops bytes that are in its files. The
batches of a log in memory are written to a temporary file (`broker/log/spill.py`), and read from there (ADR 22). A thread begins to write
when 7/8 of the budget are used. If it does not keep up, an append that would exceed the budget waits for it. If the files cannot be
written, such an append is refused with KAFKA_STORAGE_ERROR; the partition stays online, and everything that was appended stays.

Replicas of one partition in a process share the bytes of batches (`shared_chunks`): a follower keeps the leader's object where it has
received equal bytes. The budget counts them for each replica.

Age is counted in bytes: `tick` is the number of bytes that the process has appended. Each segment notes the tick of about every megabyte.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol

from klamm.broker.log.spill import SpillFile, SpillFolder
from klamm.machine.freed_memory import FreedMemory
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import BatchHeader

log = logging.getLogger(__name__)

CHUNK_OVERHEAD = 80
"""Memory of a chunk in addition to its data, in bytes: the object, its entries in lists, and rounding by the allocator."""
SHARED_BYTES = 1024
"""Smaller chunks of another replica are not shared: many of them in one piece need less memory and time."""
DEFAULT_LIMIT = 1 << 30
_ROUND_BYTES = 8 << 20
"""About as much is written to temporary files at a time."""


class Piece(NamedTuple):
    """The oldest batches of a log in memory, and their position in the temporary file. Call `written` when they are there."""

    file: SpillFile
    position: int
    chunks: list[bytes]
    written: Callable[[], None]


class MemoryHolder(Protocol):
    """The part of a log that the budget needs."""

    def oldest_tick(self) -> int | None:
        """The tick of the oldest batches that need not stay in memory, None if there are none."""

    def drop_oldest(self) -> int:
        """Drop about a megabyte of the oldest batches of a log on disk; returns the number of freed bytes, 0 for a log in memory."""

    def oldest_piece(self, until: int, most: int, folder: SpillFolder) -> Piece | None:
        """The oldest batches of a log in memory, up to this tick and this number of bytes; None if there are none."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of which it is a replica."""

    def chunk_at(self, offset: int) -> bytes | None:
        """The chunk in memory that begins with the batch at this offset, None if there is none."""


class _Round(NamedTuple):
    pieces: list[Piece]
    done: Future[None]


class MemoryBudget:
    """The memory budget of all logs in a process, in bytes. `limit` may be changed at any time."""

    __slots__ = ("_freed", "_holders", "_is_full", "_next_look", "_replicas", "_round", "_rounds", "_spills", "limit", "tick", "used")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.used = 0
        self.tick = 0
        self._holders: set[MemoryHolder] = set()
        self._replicas: dict[TopicPartition, set[MemoryHolder]] = {}
        self._spills = SpillFolder()
        self._round: _Round | None = None
        self._rounds = 0
        self._next_look = 0
        """The tick until which there is nothing to write before the budget is used up."""
        self._is_full = False
        """Whether the last temporary file could not be written."""
        self._freed = FreedMemory()

    def reserve(self, size: int) -> None:
        """Reserve this number of bytes. Raises ApiError(KAFKA_STORAGE_ERROR) if there is not enough memory."""
        if self.used + size > self.limit:
            self.make_space(size)
        self.used += size
        self.tick += size
        if self.used > self.limit - self.limit // 8 and self.tick >= self._next_look and self._round is None:
            self._write_early()

    def make_space(self, size: int) -> None:
        """Make free as much as is missing to reserve this number of bytes. Raises ApiError(KAFKA_STORAGE_ERROR) if that is not possible."""
        if self.used + size <= self.limit:
            return
        reason = f"the logs of this process may take {self.limit} bytes of memory"
        if size <= self.limit:
            self._drop(self.limit - size - self.limit // 64)
            try:
                while self.used + size > self.limit and self._start_round(self.used + size - self.limit):
                    self._finish_round()
            except OSError as error:
                reason += f", and temporary files cannot be written: {error}"
        if self.used + size > self.limit:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def release(self, size: int) -> None:
        """Release reserved bytes."""
        self.used -= size
        self._freed.add(size)

    def hold(self, holder: MemoryHolder) -> None:
        """Add a log that has batches in memory."""
        self._holders.add(holder)
        self._replicas.setdefault(holder.topic_partition, set()).add(holder)

    def forget(self, holder: MemoryHolder) -> None:
        """Remove a log that does not have batches in memory any more."""
        self._holders.discard(holder)
        replicas = self._replicas.get(holder.topic_partition)
        if replicas is not None:
            replicas.discard(holder)
            if not replicas:
                del self._replicas[holder.topic_partition]

    def shared_chunks(self, holder: MemoryHolder, data: bytes, headers: list[BatchHeader], ends: list[tuple[int, int]]) -> dict[int, bytes]:
        """Chunks of other logs of the partition that have the same bytes as these batches, by their position in the data. `ends` has
        (next offset, end position) of each batch.
        """
        shared: dict[int, bytes] = {}
        twins = [each for each in self._replicas.get(holder.topic_partition, ()) if each is not holder]
        if twins:
            position = covered = 0
            for header, (_, end) in zip(headers, ends, strict=True):
                if position >= covered:
                    for twin in twins:
                        chunk = twin.chunk_at(header.base_offset)
                        if chunk is not None and len(chunk) >= SHARED_BYTES and data.startswith(chunk, position):
                            shared[position] = chunk
                            covered = position + len(chunk)
                            break
                position = end
        return shared

    def close(self) -> None:
        """Remove the temporary files. The logs must not be used any more."""
        self._round = None
        self._spills.close()

    def _by_age(self) -> Iterator[tuple[MemoryHolder, int, int]]:
        """(log, tick of its oldest batches, the same of the next log) of all logs that can give memory, the oldest first."""
        holders = list(self._holders)
        ages = [(tick, index) for index, holder in enumerate(holders) if (tick := holder.oldest_tick()) is not None]
        ages.sort()
        for (tick, index), (until, _) in zip(ages, [*ages[1:], (self.tick + 1, 0)], strict=False):
            yield holders[index], tick, until

    def _drop(self, wanted: int) -> None:
        """Drop the oldest batches that are in files of logs on disk until this number of bytes is used. It is less than the limit by a
        64th, so that not every append must search through all logs.
        """
        freed = 1
        while self.used > wanted and freed:
            freed = 0
            for holder, tick, until in self._by_age():
                at: int | None = tick
                while at is not None and at <= until and self.used > wanted:
                    dropped = holder.drop_oldest()
                    if dropped == 0:
                        break
                    freed += dropped
                    at = holder.oldest_tick()
                if self.used <= wanted:
                    break

    # --- temporary files

    def _write_early(self) -> None:
        """Begin to write to temporary files in a thread, before the budget is used up. Without an event loop nothing happens."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if not self._start_round(self.used - self.limit + self.limit // 8 + self.limit // 64) or self._round is None:
            self._next_look = self.tick + self.limit // 64
            return
        self._round.done.add_done_callback(partial(self._tell, loop, self._rounds))  # not the round itself: a cycle would keep its batches

    def _tell(self, loop: asyncio.AbstractEventLoop, number: int, _: Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._written, number)

    def _written(self, number: int) -> None:
        """The thread has written the round with this number, unless an append has waited for it."""
        if self._round is None or self._rounds != number:
            return
        with contextlib.suppress(OSError):  # it was logged; an append that needs the memory tries again
            self._finish_round()
        if self.used > self.limit - self.limit // 8 and self.tick >= self._next_look:
            self._write_early()

    def _start_round(self, missing: int) -> bool:
        """Let the thread write the oldest batches of logs in memory, unless it does so already. Returns False if there are none."""
        if self._round is not None:
            return True
        left = min(missing, _ROUND_BYTES)
        pieces = []
        for holder, _, until in self._by_age():
            piece = holder.oldest_piece(until, left, self._spills)
            if piece is not None:
                pieces.append(piece)
                left -= sum(map(len, piece.chunks)) + CHUNK_OVERHEAD * len(piece.chunks)
                if left <= 0:
                    break
        if not pieces:
            return False
        self._rounds += 1
        self._round = _Round(pieces, self._spills.submit(_write, self._spills, pieces))
        return True

    def _finish_round(self) -> None:
        """Wait until the thread has written, and release the memory. Raises OSError if it could not write."""
        if self._round is None:
            return
        pieces, done = self._round
        self._round = None
        try:
            done.result()
        except OSError as error:
            self._next_look = self.tick + self.limit // 64
            if not self._is_full:
                self._is_full = True
                log.error("logs in memory exceed their budget, and temporary files cannot be written: %s", error)
            raise
        self._is_full = False
        for piece in pieces:
            piece.written()


def _write(folder: SpillFolder, pieces: list[Piece]) -> None:
    folder.make()
    for piece in pieces:
        piece.file.write(piece.position, piece.chunks)
