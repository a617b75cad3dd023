"""All log directories of one broker: the directory of each log, the directory for a new log, and failures.

A new log goes to the directory with the fewest logs, as in Apache Kafka. When the last directory fails, the broker must end; its owner
gets `on_failed` and checks `is_any_online`.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from klamm.broker.log.files import names
from klamm.broker.log.files.directory import DuplicateLogs, LogDirectory
from klamm.broker.log.files.directory_storage import DirectoryStorage
from klamm.broker.log.files.log_copies import copy_segments, finish_copy, forget_move, remove_copy
from klamm.broker.log.storage import DirectorySpace, LoadedLog, ReadLoadRules, Storage
from klamm.broker.replication_quotas import ReplicationQuota
from klamm.machine.system_calls import sync_folder
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock

log = logging.getLogger("klamm.broker.log.files.directory")

LITTLE = 1 << 20
"""Maximum bytes that are copied while the writer of a moving log is held, and largest piece of a throttled move, as in Apache Kafka."""
SMALLEST = 64 << 10
"""Piece (bytes) of a move that is throttled to a low rate."""
PIECES_IN_A_SECOND = 4
UNTHROTTLED = 64 << 20
"""Piece (bytes) of a move that is not throttled."""


@dataclass(slots=True)
class Move:
    """The move of a log to the directory `path`. `copied` are the bytes of its segments that are there already."""

    path: str
    task: asyncio.Future[None]
    copied: int = 0


class LogDirectories:
    """Implements `Directories`. `on_failed(path, partitions)` is called once for a failed directory, with the logs in it."""

    def __init__(
        self,
        paths: Sequence[str],
        executor_of: Callable[[str], Executor],
        clock: Clock,
        unique: Callable[[], str],
        delete_delay_ms: int = 60_000,
        most_files: int = 600,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """`executor_of` makes the threads of a directory. `unique` returns 32 hex digits for the names of folders to delete. Each directory
        keeps at most `most_files` open between writes. `quota` throttles moves.
        """
        self.on_failed: Callable[[str, list[TopicPartition]], None] = lambda path, partitions: None
        self.found: dict[TopicPartition, bytes] = {}
        """Partition → topic id (zero if unknown) of the logs that existed at the start, in online directories."""
        self._unique = unique
        self._quota = ReplicationQuota(1, 1, clock, of_all=True) if quota is None else quota
        self._directories = [
            LogDirectory(path, executor_of(path), clock, self._directory_failed, delete_delay_ms, most_files)
            for path in dict.fromkeys(paths)
        ]
        self._opening: dict[TopicPartition, asyncio.Future[None]] = {}
        self._moving: dict[TopicPartition, Move] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._finishing: dict[TopicPartition, asyncio.Future[None]] = {}
        self._deleting: dict[TopicPartition, asyncio.Future[None]] = {}

    # --- start and end

    async def start(self, read_rules: ReadLoadRules | None = None) -> None:
        """Load all logs. A directory that cannot be used goes offline; see `is_any_online`.

        Raises DirectoryInUse and DuplicateLogs, before any log is changed, and what `read_rules` raises.
        """
        await self._each(LogDirectory.prepare)
        await self._settle_duplicates()
        await self._each(lambda directory: directory.load(read_rules))
        for directory in self._online():
            self.found |= directory.topic_ids

    async def _each(self, work: Callable[[LogDirectory], Awaitable[None]]) -> None:
        """Call `work` for all online directories at the same time. A directory that fails goes offline; other exceptions are raised."""
        results = await asyncio.gather(*(work(directory) for directory in self._online()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, OSError):
                raise result

    async def _settle_duplicates(self) -> None:
        """If a crash at the end of a move has left two folders of a log, delete the old one. Raises DuplicateLogs for other duplicates."""
        homes: dict[TopicPartition, list[LogDirectory]] = {}
        for directory in self._online():
            for key in directory.topic_ids:
                homes.setdefault(key, []).append(directory)
        left = {key: (_sides_of_move(key, found), found) for key, found in homes.items() if len(found) > 1}
        unexplained = {key: found for key, (sides, found) in left.items() if sides is None}
        if unexplained:
            raise DuplicateLogs(
                "; ".join(
                    f"{topic}-{partition} is in {' and in '.join(directory.path for directory in found)}"
                    for (topic, partition), found in sorted(unexplained.items())
                )
                + ": the broker cannot know which one is right. Nothing was deleted; move all but one of them away and start again"
            )
        for key, (sides, _) in left.items():
            if sides is not None:
                old, new = sides
                log.warning("%s-%d: a move from %s to %s was not finished; what is in %s is deleted", *key, old.path, new.path, old.path)
                new.checkpoints.merge(old.checkpoints, key)
                await old.delete(*key, self._unique())
        for key, found in homes.items():
            # an offline directory may still have the old folder, so the mark of the new one stays
            for directory in found:
                move = directory.moves.get(key)
                if move is not None and key in directory.topic_ids and not (move[1] and self.has_failed):
                    await directory.submit(forget_move, f"{directory.path}/{names.log_folder(*key)}")

    def with_records(self) -> Mapping[TopicPartition, bytes]:
        """Partition → topic id of the loaded logs with records that are not opened yet. Opening one of them does not need the disk."""
        return {key: directory.topic_ids[key] for directory in self._online() for key in directory.loaded}

    async def close(self, offsets: Iterable[tuple[str, int, int, int]]) -> None:
        """Clean shutdown: execute queued commands, write the checkpoints (see `checkpoint`), and mark the directories as complete."""
        rows = list(offsets)
        await self._end_moves()
        await asyncio.gather(*(directory.close(rows) for directory in self._directories))

    async def abandon(self) -> None:
        """End like a killed process. Returns when no thread works in any directory."""
        await self._end_moves()
        await asyncio.gather(*(directory.abandon() for directory in self._directories))

    async def _end_moves(self) -> None:
        """Cancel moves, but wait for a move that is nearly finished."""
        for moving in self._moving.values():
            moving.task.cancel()
        tasks = set(self._tasks)
        if tasks:
            await asyncio.wait(tasks)

    # --- state

    @property
    def is_any_online(self) -> bool:
        return bool(self._online())

    @property
    def has_failed(self) -> bool:
        """Whether one of them is offline."""
        return len(self._online()) < len(self._directories)

    @property
    def paths(self) -> list[str]:
        """Absolute paths of all directories, also of those that are offline."""
        return [directory.path for directory in self._directories]

    @property
    def offline_paths(self) -> list[str]:
        """Those of directories that are offline."""
        return [directory.path for directory in self._directories if directory.is_offline]

    def path_of(self, topic: str, partition: int) -> str | None:
        """The path of the directory that has a log, None if there is none."""
        directory = self._home(topic, partition)
        return None if directory is None else directory.path

    async def space(self) -> list[DirectorySpace]:
        """All directories with the space on their volumes."""
        return [await _space(directory) for directory in self._directories]

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if not directory.is_offline]

    def _home(self, topic: str, partition: int) -> LogDirectory | None:
        return next((directory for directory in self._online() if (topic, partition) in directory.topic_ids), None)

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        partitions = list(directory.topic_ids)
        for key in partitions:
            self.found.pop(key, None)
        self.on_failed(directory.path, partitions)

    # --- logs

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> tuple[Storage, LoadedLog]:
        """See `Directories.open`."""
        deleting = self._deleting.get(TopicPartition(topic, partition))
        if deleting is not None:
            await asyncio.wait({deleting})
        directory = self._home(topic, partition)
        if directory is None:
            if not is_new and self.has_failed:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} may be in a log directory that is offline")
            directory = min(self._online(), key=lambda candidate: len(candidate.topic_ids), default=None)
        if directory is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        directory.topic_ids.setdefault(TopicPartition(topic, partition), topic_id)
        try:
            return await directory.open(topic, partition, topic_id)
        except OSError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def move(self, topic: str, partition: int, path: str) -> None:
        """Move a log to another directory, in the background, and cancel a move in progress. If it is already there, only cancel."""
        key = TopicPartition(topic, partition)
        moving = self._moving.pop(key, None)
        if moving is not None:
            moving.task.cancel()
        source = self._home(topic, partition)
        target = next((directory for directory in self._online() if directory.path == path), None)
        if source is None or target is None or source is target:
            return
        task = asyncio.ensure_future(self._move(source, target, key))
        self._moving[key] = Move(path, task)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._moved(key, done))

    def target_of(self, topic: str, partition: int) -> str | None:
        """The path of the directory to which a log is being moved, None if it is not."""
        moving = self._moving.get(TopicPartition(topic, partition))
        return None if moving is None else moving.path

    def copied_of(self, topic: str, partition: int) -> int:
        moving = self._moving.get(TopicPartition(topic, partition))
        return 0 if moving is None else moving.copied

    def _moved(self, key: TopicPartition, done: asyncio.Future[None]) -> None:
        self._tasks.discard(done)
        moving = self._moving.get(key)
        if moving is not None and moving.task is done:
            del self._moving[key]
        if not done.cancelled() and done.exception() is not None:
            log.error("%s-%d has not moved: %s", *key, done.exception())

    async def _move(self, source: LogDirectory, target: LogDirectory, key: TopicPartition) -> None:
        folder, final = (f"{directory.path}/{names.log_folder(*key)}" for directory in (source, target))
        unique = self._unique()
        copy = f"{target.path}/{names.future_folder(*key, unique)}"
        storage = source.storages.get(key)
        move = self._moving[key]
        is_done = False
        try:
            while True:
                changes = 0 if storage is None else storage.changes
                is_little = await self._copy(storage, target, folder, copy, move)
                if storage is not None and storage.changes != changes:
                    await target.submit(remove_copy, copy)
                    move.copied = 0
                elif is_little:
                    break
            files = None if storage is None else storage.files
            if storage is not None:
                await storage.hold()
            try:
                if source.is_offline or source.storages.get(key) is not storage:
                    return
                if storage is not None and storage.changes != changes:
                    await target.submit(remove_copy, copy)
                self._moving.pop(key, None)  # from now on the move cannot be cancelled
                self._finishing[key] = finishing = target.submit(finish_copy, folder, copy, final, unique)
                await finishing
                is_done = True
                target.take_over(source, key)
            finally:
                self._finishing.pop(key, None)
                if storage is not None:
                    storage.release()
        finally:
            if not is_done:
                target.submit(remove_copy, copy).add_done_callback(lambda done: done.cancelled() or done.exception())
        await target.checkpoint([])
        if await source.retire(files, *key, self._unique()) and key in target.topic_ids:
            await source.submit(sync_folder, source.path)
            await target.submit(forget_move, final)
        log.info("%s-%d has moved from %s to %s", *key, source.path, target.path)

    async def _copy(self, storage: DirectoryStorage | None, target: LogDirectory, folder: str, copy: str, move: Move) -> bool:
        """Copy segments as fast as the quota allows, until little is left, or until the log changes in another way than by growing.

        Returns whether the rest is small enough to be copied at once.
        """
        changes = 0 if storage is None else storage.changes
        while storage is None or storage.changes == changes:
            await self._quota.below()
            bound = self._quota.bound
            piece = UNTHROTTLED if bound is None else max(min(bound // PIECES_IN_A_SECOND, LITTLE), SMALLEST)
            copied = await target.submit(copy_segments, folder, copy, piece)
            move.copied += copied
            if self._quota.is_active:
                self._quota.record(copied)
            if copied < min(piece, LITTLE):
                return True
        return False

    def delete(self, topic: str, partition: int) -> None:
        """See `Directories.delete`."""
        key = TopicPartition(topic, partition)
        moving = self._moving.pop(key, None)
        if moving is not None:
            moving.task.cancel()
        self.found.pop(key, None)
        if self._home(topic, partition) is None:
            return
        deleting = self._deleting[key] = asyncio.ensure_future(self._delete(topic, partition))
        deleting.add_done_callback(lambda _: self._deleting.pop(key, None))

    async def _delete(self, topic: str, partition: int) -> None:
        finishing = self._finishing.get(TopicPartition(topic, partition))
        if finishing is not None:
            await asyncio.wait({finishing})
            await asyncio.sleep(0)  # let the cancelled move end
        directory = self._home(topic, partition)
        if directory is not None:
            await directory.delete(topic, partition, self._unique())

    async def deletions(self) -> None:
        """Wait until the folders of all deleted logs have their new names."""
        if self._deleting:
            await asyncio.wait(set(self._deleting.values()))

    def checkpoint(self, offsets: Iterable[tuple[str, int, int, int]]) -> Awaitable[None]:
        """See `Directories.checkpoint`. The result can be ignored."""
        rows = list(offsets)
        return asyncio.ensure_future(self._checkpoint(rows))

    def look(self) -> Awaitable[None]:
        """See `Directories.look`. The result can be ignored."""
        return asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        await asyncio.gather(*(directory.look() for directory in self._directories))

    def cleaned(self, topic: str, partition: int, clean_offset: int) -> None:
        """See `Directories.cleaned`."""
        directory = self._home(topic, partition)
        if directory is not None:
            directory.checkpoints.clean_offsets[TopicPartition(topic, partition)] = clean_offset

    async def _checkpoint(self, rows: Sequence[tuple[str, int, int, int]]) -> None:
        await asyncio.gather(*(directory.checkpoint(rows) for directory in self._directories))

    def topic_ids(self) -> Mapping[TopicPartition, bytes]:
        """Partition → topic id of all logs in online directories."""
        return {key: topic_id for directory in self._online() for key, topic_id in directory.topic_ids.items()}


def _sides_of_move(key: TopicPartition, found: Sequence[LogDirectory]) -> tuple[LogDirectory, LogDirectory] | None:
    """(directory with the old folder, directory with the new folder) of a log, if both are from one move; otherwise None."""
    moves = [directory.moves.get(key) for directory in found]
    if len(found) != 2 or moves[0] is None or moves[1] is None or moves[0][0] != moves[1][0] or moves[0][1] == moves[1][1]:
        return None
    return (found[1], found[0]) if moves[0][1] else (found[0], found[1])


async def _space(directory: LogDirectory) -> DirectorySpace:
    if not directory.is_offline:
        try:
            usage = await directory.submit(shutil.disk_usage, directory.path)
        except OSError as error:
            log.warning("log directory %s: cannot read its free space: %s", directory.path, error)
        else:
            return DirectorySpace(directory.path, False, usage.total, usage.free)
    return DirectorySpace(directory.path, True, -1, -1)
