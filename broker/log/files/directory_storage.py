"""The storage of one log in a log directory: a queue of commands on the event loop, executed by one thread at a time (ADR 8).

Commands that are queued during a run form the next run. The directory starts the runs; if they only append, it passes those of several logs
to one call of a thread (see `LogDirectory`). A failed command takes the whole directory offline: the queue is dropped, and all waiting
callers are woken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from klamm.broker.log.files import names
from klamm.broker.log.files.log_files import NOTHING, LogFiles, Outcome
from klamm.broker.log.scan import read_batches
from klamm.broker.log.storage import (
    Append,
    Command,
    DeleteSegments,
    ProducerEntry,
    ReadCommand,
    Replace,
    Roll,
    StartAt,
    StorageListener,
    Truncate,
    WriteEpochs,
)

T = TypeVar("T")
UNCHANGED = 2**63 - 1

QUICK = (Append, WriteEpochs)
"""Commands that take a few microseconds; runs of these share a call of a thread with those of other logs."""
CUTS = (Truncate, StartAt)
MOVES_BATCHES = (*CUTS, Replace)
"""Commands after which another batch may be at a position in a segment's file; no read happens at the same time."""


REPLACED_MS = 60_000
"""Time until the renamed files of cleaned segments are removed."""


class Home(Protocol):
    """What a storage needs from its directory (`LogDirectory`)."""

    path: str
    is_offline: bool
    is_closed: bool

    def schedule(self, storage: DirectoryStorage) -> None:
        """Execute the queued commands of a log soon."""

    def read(self, storage: DirectoryStorage, command: ReadCommand) -> Awaitable[bytes | None]:
        """Read from a log."""

    def read_producers(
        self, storage: DirectoryStorage, offset: int, segments: Sequence[int], after_ms: int
    ) -> Awaitable[list[ProducerEntry]]:
        """Read the producer states of a log at an offset."""

    def flush_later(self, storage: DirectoryStorage, segments: Sequence[int], offset: int) -> None:
        """Force segments, and everything else before `offset`, to disk, then call `closed_segments_flushed`."""

    def remove_later(self, files: LogFiles, segments: Sequence[int], delay_ms: int) -> None:
        """Remove the renamed files of segments after `delay_ms`."""


class DirectoryStorage:
    """Implements `Storage`. Everything before `recovery_point` is forced to disk. It is never above the end of the log."""

    __slots__ = (
        "_drained", "_flush_end", "_in_thread", "_is_flushing", "_is_held", "_is_stopped", "_listener", "_moved", "_moving", "_reads",
        "_stopping", "_to_flush", "changes", "files", "home", "is_running", "partition", "queue", "recovery_point", "topic",
    )

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
        """Number of executed commands that move batches."""
        self._moving = 0
        """Number of commands that move batches and are queued or being executed."""
        self._moved: list[asyncio.Future[None]] = []
        self._is_flushing = False
        """Whether closed segments are being forced to disk, at the same time as other commands; at most one flush for each log."""
        self._flush_end = 0
        """Maximum recovery point after the flush; a truncation in the meantime lowers it."""
        self._to_flush: Roll | None = None

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
            self._log_ends_at(_end_after(command))
        if not self.is_running:
            self.is_running = True
            self.home.schedule(self)

    async def read(self, command: ReadCommand) -> bytes | None:
        return await self._beside_writes(lambda: self.home.read(self, command))

    async def read_producers(self, offset: int, segments: Sequence[int], after_ms: int) -> list[ProducerEntry]:
        await self.drain()
        return await self._beside_writes(lambda: self.home.read_producers(self, offset, segments, after_ms))

    async def _beside_writes(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read while no command that moves batches is queued or being executed; such commands wait for the end of the read."""
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
        """Whether all queued commands are quick."""
        return all(isinstance(command, QUICK) for command in self.queue)

    def has_to_wait(self) -> bool:
        """Whether there are reads in progress that the next run would disturb. The last of them schedules the run again."""
        self._is_held = self._is_stopped or bool(self._reads and self._moving)
        return self._is_held

    async def hold(self) -> None:
        """Stop executing and reading until `release`; returns when nothing is in progress. Commands are queued in the meantime."""
        self._is_stopped = True
        while (self._in_thread or self._reads) and not self.home.is_offline and not self.home.is_closed:
            stopping = asyncio.get_running_loop().create_future()
            self._stopping.append(stopping)
            await stopping

    def release(self) -> None:
        """Continue after `hold`, perhaps in another directory."""
        self._is_stopped = self._is_held = False
        if self.queue:
            self.home.schedule(self)
        else:
            self.wake()

    def take(self) -> list[Command]:
        """Take the commands of the next run from the queue."""
        self._in_thread = True
        run = list(self.queue)
        self.queue.clear()
        return run

    def finished(self, run: list[Command], outcome: Outcome) -> None:
        """Process the outcome of a run."""
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
        end = min((_end_after(command) for command in self.queue if isinstance(command, CUTS)), default=UNCHANGED)
        if outcome.flushed != NOTHING:
            self.flushed(min(outcome.flushed, end))
        if outcome.rolled is not None and outcome.rolled.base_offset <= end:
            self._to_flush = outcome.rolled
            self._flush_closed_segments()
        is_cut = end != UNCHANGED  # written records will be truncated
        if outcome.written != NOTHING and self._listener is not None and not is_cut:
            self._listener.written(outcome.written)
        if self.queue:
            self.home.schedule(self)
        else:
            self.wake()

    def _log_ends_at(self, offset: int) -> None:
        """The log will be truncated to this offset."""
        self.recovery_point = min(self.recovery_point, offset)
        self._flush_end = min(self._flush_end, offset)
        if self._to_flush is not None and self._to_flush.base_offset > offset:
            self._to_flush = None

    def _flush_closed_segments(self) -> None:
        """Force closed segments to disk, together those of all rolls since the last time."""
        roll = self._to_flush
        if roll is None or self._is_flushing:
            return
        self._to_flush = None
        self._is_flushing, self._flush_end = True, roll.base_offset
        ends = (*roll.unflushed[1:], roll.base_offset)
        segments = [base for base, end in zip(roll.unflushed, ends, strict=True) if end > self.recovery_point]
        self.home.flush_later(self, segments, roll.base_offset)

    def closed_segments_flushed(self, offset: int, is_done: bool) -> None:
        """Called by the directory after the flush of closed segments, or after its failure."""
        self._is_flushing = False
        if is_done:
            self.flushed(min(offset, self._flush_end))
            self._flush_closed_segments()

    def flushed(self, offset: int) -> None:
        """Everything before this offset is forced to disk."""
        self.recovery_point = max(self.recovery_point, offset)
        if self._listener is not None:
            self._listener.flushed(offset)

    def failed(self, error: OSError) -> None:
        """Called by the directory when it has failed."""
        self.queue.clear()
        self._is_stopped = False
        self.wake()
        _release(self._stopping)
        if self._listener is not None:
            self._listener.failed(error)

    def wake(self) -> None:
        """Wake callers that wait until nothing is queued or being executed."""
        self.is_running = False
        self._moving = 0
        if not self._is_stopped:
            _release(self._moved)
        _release(self._drained)


def _end_after(command: Command) -> int:
    """The log end offset after a command that truncates the log; UNCHANGED for other commands."""
    match command:
        case Truncate(next_offset):
            return next_offset
        case StartAt(offset):
            return offset
    return UNCHANGED


def _release(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()


def execute_all(runs: list[tuple[LogFiles, list[Command]]]) -> list[Outcome | OSError]:
    """Execute runs of several logs, in a thread. After a failure nothing more is executed."""
    outcomes: list[Outcome | OSError] = []
    for files, run in runs:
        try:
            outcomes.append(files.execute(run))
        except OSError as error:
            outcomes.append(error)
            break
    return outcomes


def read_in_thread(files: LogFiles, command: ReadCommand) -> bytes | None:
    """Read batches, in a thread; see `Storage.read`."""
    try:
        return read_batches(files.path(command.segment, names.LOG_SUFFIX), command)
    except FileNotFoundError as gone:
        raise KeyError(command.segment) from gone
