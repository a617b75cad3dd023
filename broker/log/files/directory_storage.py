"""The storage of one log in a log directory: a queue of commands on the loop, executed by one thread at a time (ADR 8).

What was queued while a run was in a thread goes together in the next one. The directory starts the runs, of several logs in one turn to a
thread where they only append; see `LogDirectory`. A failed command fails the whole directory: the queue is dropped, and everyone who waits
is woken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from klamm.broker.log.files import names
from klamm.broker.log.files.log_files import NOTHING, LogFiles, Outcome
from klamm.broker.log.files.scan import read_batches
from klamm.broker.log.storage import (
    Append,
    Command,
    DeleteSegments,
    ProducerEntry,
    ReadCommand,
    Replace,
    StartAt,
    StorageListener,
    Truncate,
    WriteEpochs,
)

T = TypeVar("T")

QUICK = (Append, WriteEpochs)
"""Commands of a few microseconds: runs of these share a turn with those of other logs."""
MOVES_BATCHES = (Truncate, StartAt, Replace)
"""Commands after which a position in a segment's file may mean another batch: no read goes on beside them."""


REPLACED_MS = 60_000
"""How long the renamed files of cleaned segments stay."""


class Home(Protocol):
    """What a storage needs of its directory (`LogDirectory`)."""

    path: str
    is_offline: bool
    is_closed: bool

    def schedule(self, storage: DirectoryStorage) -> None:
        """Execute what is queued for a log soon."""

    def read(self, storage: DirectoryStorage, command: ReadCommand) -> Awaitable[bytes]:
        """Read from a log."""

    def read_producers(self, storage: DirectoryStorage, offset: int, segments: Sequence[int]) -> Awaitable[list[ProducerEntry]]:
        """Read the states of a log's producers at an offset."""

    def flush_later(self, storage: DirectoryStorage, offset: int) -> None:
        """Force what is before `offset` to disk."""

    def remove_later(self, files: LogFiles, segments: Sequence[int], delay_ms: int) -> None:
        """Remove the renamed files of segments after a while."""


class DirectoryStorage:
    """Implements `Storage`. `recovery_point`: everything before it is forced to disk."""

    __slots__ = (
        "_drained", "_in_thread", "_is_held", "_is_stopped", "_listener", "_moved", "_moving", "_reads", "_stopping", "changes", "files",
        "home", "is_running", "partition", "queue", "recovery_point", "topic",
    )  # fmt: skip

    def __init__(self, home: Home, topic: str, partition: int, files: LogFiles, recovery_point: int) -> None:
        self.home = home
        self.topic = topic
        self.partition = partition
        self.files = files
        self.recovery_point = recovery_point
        self.queue: deque[Command] = deque()
        self.is_running = False
        self._listener: StorageListener | None = None
        self._drained: list[asyncio.Future[None]] = []
        self._reads = 0
        self._is_held = False
        self._is_stopped = False
        self._in_thread = False
        self._stopping: list[asyncio.Future[None]] = []
        self.changes = 0
        """How many commands were executed that move batches."""
        self._moving = 0
        """Commands queued or executed now that move batches."""
        self._moved: list[asyncio.Future[None]] = []

    @property
    def directory(self) -> str:
        return self.home.path

    def attach(self, listener: StorageListener) -> None:
        self._listener = listener

    def execute(self, command: Command) -> None:
        if self.home.is_closed or self.home.is_offline:
            return
        self.queue.append(command)
        if isinstance(command, MOVES_BATCHES):
            self._moving += 1
        if not self.is_running:
            self.is_running = True
            self.home.schedule(self)

    async def read(self, command: ReadCommand) -> bytes:
        return await self._beside_writes(lambda: self.home.read(self, command))

    async def read_producers(self, offset: int, segments: Sequence[int]) -> list[ProducerEntry]:
        await self.drain()
        return await self._beside_writes(lambda: self.home.read_producers(self, offset, segments))

    async def _beside_writes(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read when no command that moves batches is queued or executed; none is executed meanwhile."""
        while self._moving or self._is_stopped:
            moved = asyncio.get_running_loop().create_future()
            self._moved.append(moved)
            await moved
        self._reads += 1
        try:
            return await read()
        finally:
            self._reads -= 1
            if not self._reads:
                _release(self._stopping)
                if self._is_held and not self._is_stopped:
                    self._is_held = False
                    self.home.schedule(self)

    async def drain(self) -> None:
        if self.is_running:
            drained = asyncio.get_running_loop().create_future()
            self._drained.append(drained)
            await drained

    @property
    def is_quick(self) -> bool:
        """Whether everything that is queued takes a few microseconds."""
        return all(isinstance(command, QUICK) for command in self.queue)

    def has_to_wait(self) -> bool:
        """Whether reads are under way that the next run would disturb. The last of them schedules the run again."""
        self._is_held = self._is_stopped or bool(self._reads and self._moving)
        return self._is_held

    async def hold(self) -> None:
        """Execute and read nothing until `release`; returns when nothing is under way. Commands are queued meanwhile."""
        self._is_stopped = True
        while (self._in_thread or self._reads) and not self.home.is_offline and not self.home.is_closed:
            stopping = asyncio.get_running_loop().create_future()
            self._stopping.append(stopping)
            await stopping

    def release(self) -> None:
        """Go on after `hold`, perhaps in another directory."""
        self._is_stopped = self._is_held = False
        if self.queue:
            self.home.schedule(self)
        else:
            self.wake()

    def take(self) -> list[Command]:
        """What the next run executes."""
        self._in_thread = True
        run = list(self.queue)
        self.queue.clear()
        return run

    def finished(self, run: list[Command], outcome: Outcome) -> None:
        """A run came back from its thread."""
        self._in_thread = False
        _release(self._stopping)
        for command in run:
            if isinstance(command, MOVES_BATCHES):
                self.changes += 1
            if isinstance(command, DeleteSegments):
                self.home.remove_later(self.files, command.segments, command.delay_ms)
            elif isinstance(command, Replace):
                self.home.remove_later(self.files, command.segments, REPLACED_MS)
        self._moving = sum(isinstance(command, MOVES_BATCHES) for command in self.queue)
        if not self._moving and not self._is_stopped:
            _release(self._moved)
        if outcome.flushed != NOTHING:
            self.flushed(outcome.flushed)
        if outcome.rolled != NOTHING:
            self.home.flush_later(self, outcome.rolled)
        is_cut = any(isinstance(command, Truncate | StartAt) for command in self.queue)  # what was written will go again
        if outcome.written != NOTHING and self._listener is not None and not is_cut:
            self._listener.written(outcome.written)
        if self.queue:
            self.home.schedule(self)
        else:
            self.wake()

    def flushed(self, offset: int) -> None:
        """Everything before this offset is forced to disk."""
        self.recovery_point = max(self.recovery_point, offset)
        if self._listener is not None:
            self._listener.flushed(offset)

    def failed(self, error: OSError) -> None:
        """The directory failed."""
        self.queue.clear()
        self._is_stopped = False
        self.wake()
        _release(self._stopping)
        if self._listener is not None:
            self._listener.failed(error)

    def wake(self) -> None:
        """Nothing is queued or executed any more: let go who waits for that."""
        self.is_running = False
        self._moving = 0
        if not self._is_stopped:
            _release(self._moved)
        _release(self._drained)


def _release(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()


def execute_all(runs: list[tuple[LogFiles, list[Command]]]) -> list[Outcome | OSError]:
    """In a thread: execute runs of several logs. After a failure nothing more is executed."""
    outcomes: list[Outcome | OSError] = []
    for files, run in runs:
        try:
            outcomes.append(files.execute(run))
        except OSError as error:
            outcomes.append(error)
            break
    return outcomes


def read_in_thread(files: LogFiles, command: ReadCommand) -> bytes:
    """In a thread: see `Storage.read`."""
    try:
        return read_batches(files.path(command.segment, names.LOG_SUFFIX), command)
    except FileNotFoundError as gone:
        raise KeyError(command.segment) from gone
