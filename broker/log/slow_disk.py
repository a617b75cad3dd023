"""A slow disk: operations of a log wait before they happen, for tests and for programs that steer a cluster.

A `DiskDelays` says which operations wait, and for how long. Of one log, appends and flushes wait together in runs: while a run waits, what
comes later is the next run. So the log end offset that others see moves later, and everything that needs it waits with it: the response to
a Produce request, the next fetch of a follower. Reads wait each for itself. Nothing else of the broker waits: in Apache Kafka a slow disk
holds the thread of the request and the lock of its log.

A log in memory has no file, but its appends and reads wait in the same way. The logs of a real broker are no `SlowLog`s and have no
`DiskDelays`; while a `DiskDelays` delays nothing, an operation costs one look at `is_active`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Generic, Literal, Protocol, TypeVar

from klamm.broker.log.storage import (
    Append,
    Close,
    Command,
    Flush,
    ProducerEntry,
    ReadCommand,
    Replace,
    StartAt,
    Storage,
    StorageListener,
    Truncate,
)
from klamm.protocol.nouns import TopicPartition

T = TypeVar("T")

DiskOperation = Literal["append", "flush", "read"]
APPEND: tuple[DiskOperation, ...] = ("append",)
READ: tuple[DiskOperation, ...] = ("read",)


class Delay(Protocol):
    """Operations that wait."""

    def cancel(self) -> None:
        """Nobody waits any more."""


class DiskDelays(Protocol):
    """What delays the operations of one broker's logs."""

    is_active: bool
    """Whether anything is delayed. Nothing else is called while it is not."""

    def begin(
        self, operations: Collection[DiskOperation], partition: TopicPartition, directory: str | None, over: Callable[[], None]
    ) -> Delay | None:
        """Let these operations of a log wait; None if they need not. `over` is called on the event loop when they have waited.

        `directory` is the log directory, None for a log in memory.
        """

    def slows_reads(self, partition: TopicPartition, directory: str | None) -> bool:
        """Whether a read of this log would wait."""


async def wait_to_read(delays: DiskDelays, partition: TopicPartition, directory: str | None) -> None:
    """Return when a read of a log may happen."""
    over = asyncio.Event()
    delay = delays.begin(READ, partition, directory, over.set)
    if delay is not None:
        try:
            await over.wait()
        finally:
            delay.cancel()


class LateRuns(Generic[T]):
    """The operations of one log that wait, in their order."""

    def __init__(
        self, begin: Callable[[Sequence[T], Callable[[], None]], Delay | None], execute: Callable[[Sequence[T]], None]
    ) -> None:
        """`begin` lets a run wait and calls its second argument afterwards, or returns None; `execute` is called with runs that have
        waited."""
        self._begin = begin
        self._execute = execute
        self._delay: Delay | None = None
        self._run: list[T] = []
        """What waits now; empty if nothing does."""
        self._next: list[T] = []
        self._idle: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> list[T]:
        """All that waits, in order."""
        return self._run + self._next

    def takes(self, item: T) -> bool:
        """Keep an operation if it has to wait, or if another one before it does. Returns False if it may happen now."""
        if self._run:
            self._next.append(item)
            return True
        self._delay = self._begin([item], self._over)
        if self._delay is None:
            return False
        self._run = [item]
        return True

    def change(self, changed: Callable[[T], T]) -> None:
        """Replace each operation that waits by another."""
        self._run, self._next = [*map(changed, self._run)], [*map(changed, self._next)]

    def drop(self) -> None:
        """Forget all that waits."""
        if self._delay is not None:
            self._delay.cancel()
        self._delay = None
        self._run, self._next = [], []
        self._wake()

    async def drain(self) -> None:
        """Return when nothing waits."""
        while self._run:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    def _over(self) -> None:
        while True:
            self._delay = None
            run, self._run, self._next = self._run, self._next, []
            self._execute(run)
            if self._delay is not None:
                return  # executing the run has begun another one
            if not self._run:
                break
            self._delay = self._begin(self._run, self._over)
            if self._delay is not None:
                return
        self._wake()

    def _wake(self) -> None:
        idle, self._idle = self._idle, []
        for each in idle:
            if not each.done():
                each.set_result(None)


class SlowStorage:
    """Implements `Storage` for a log on disk: commands wait before they come to the real storage, in their order."""

    def __init__(self, storage: Storage, delays: DiskDelays, partition: TopicPartition) -> None:
        self._storage = storage
        self._delays = delays
        self._partition = partition
        self._listener: StorageListener | None = None
        self._late = LateRuns[Command](self._begin, self._pass_on)

    @property
    def directory(self) -> str:
        return self._storage.directory

    def attach(self, listener: StorageListener) -> None:
        self._listener = listener
        self._storage.attach(self)

    def execute(self, command: Command) -> None:
        if not ((self._delays.is_active or self._late.waiting) and self._late.takes(command)):
            self._storage.execute(command)

    def read(self, command: ReadCommand) -> Awaitable[bytes | None]:
        return self._storage.read(command) if not self._moves_batches else self._read_later(command)

    async def _read_later(self, command: ReadCommand) -> bytes | None:
        """Batches at their positions after the commands that wait: the log has its new positions already."""
        await self._late.drain()
        return await self._storage.read(command)

    async def read_producers(self, offset: int, segments: Sequence[int], after_ms: int) -> list[ProducerEntry]:
        await self._late.drain()
        return await self._storage.read_producers(offset, segments, after_ms)

    async def drain(self) -> None:
        await self._late.drain()
        await self._storage.drain()

    def drop(self) -> None:
        """The log is deleted, or its broker has ended: what waits does not happen."""
        self._late.drop()

    # the listener of the real storage

    def written(self, next_offset: int) -> None:
        """Pass on, unless a command that waits truncates the log."""
        if self._listener is not None and self._cut is None:
            self._listener.written(next_offset)

    def flushed(self, offset: int) -> None:
        """Pass on, at most the end of the log after the commands that wait."""
        if self._listener is not None:
            self._listener.flushed(offset if self._cut is None else min(offset, self._cut))

    def failed(self, error: OSError) -> None:
        """Pass on; what waits does not happen."""
        self._late.drop()
        if self._listener is not None:
            self._listener.failed(error)

    @property
    def _moves_batches(self) -> bool:
        return any(isinstance(command, (Truncate, StartAt, Replace)) for command in self._late.waiting)

    @property
    def _cut(self) -> int | None:
        """The lowest log end offset after the commands that wait; None if none of them truncates."""
        ends = [
            command.next_offset if isinstance(command, Truncate) else command.offset
            for command in self._late.waiting
            if isinstance(command, (Truncate, StartAt))
        ]
        return min(ends, default=None)

    def _begin(self, run: Sequence[Command], over: Callable[[], None]) -> Delay | None:
        operations = list(dict.fromkeys(operation for each in run if (operation := _operation_of(each)) is not None))
        return self._delays.begin(operations, self._partition, self.directory, over) if operations else None

    def _pass_on(self, run: Sequence[Command]) -> None:
        for command in run:
            self._storage.execute(command)


def _operation_of(command: Command) -> DiskOperation | None:
    """The operation as which a command is delayed. Others are not delayed for themselves."""
    if isinstance(command, Append):
        return "append"
    return "flush" if isinstance(command, (Flush, Close)) else None
