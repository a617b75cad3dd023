"""One log directory: its logs at the start, its threads, its failure and its end. Its checkpoints are in `directory_checkpoints.py`.

At the start the directory is locked like in Apache Kafka, `.kafka_cleanshutdown` is read and removed, and the threads of the directory load
every log. A log without records is not kept in memory; it is opened when it is used. Quick commands for several logs, queued in one pass of
the event loop, are executed by one call of a thread.

An OSError of any work takes the directory offline, once: all its logs fail, and the owner of the directories is called. After that no work
is given to a thread. The event loop never waits for a disk here.

Source: `LogManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

from klamm.broker.log.files import checkpoints as files_of
from klamm.broker.log.files import marker_files, names
from klamm.broker.log.files.directory_checkpoints import DirectoryCheckpoints
from klamm.broker.log.files.directory_storage import DirectoryStorage, execute_all, read_in_thread
from klamm.broker.log.files.directory_threads import DirectoryThreads
from klamm.broker.log.files.loading import Checkpoints, load_log, new_log
from klamm.broker.log.files.log_files import NOTHING, LogFiles, Outcome
from klamm.broker.log.files.producer_replay import states_in_thread
from klamm.broker.log.storage import Command, LoadedLog, LoadRules, ProducerEntry, ReadCommand, ReadLoadRules
from klamm.machine.replaced_file import remove_temporaries, replace_file
from klamm.machine.system_calls import read_file, remove, write_file
from klamm.protocol.nouns import ZERO_UUID, TopicPartition
from klamm.protocol.records.batch import CorruptRecords
from klamm.seams.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

LOGS_OF_A_TURN = 32
FILES_OF_A_LOG = 3
"""Number of files of an active segment that stay open between runs."""
LOADED_IN_A_TURN = 16
REPLACED = (
    files_of.RECOVERY_POINT_CHECKPOINT, files_of.LOG_START_OFFSET_CHECKPOINT, files_of.REPLICATION_OFFSET_CHECKPOINT,
    files_of.CLEANER_OFFSET_CHECKPOINT, marker_files.META_PROPERTIES,
)
"""Files of the directory itself."""
T = TypeVar("T")


class DirectoryFailed(OSError):
    """The directory is offline already."""


class DirectoryInUse(Exception):
    """Another process has locked the directory. The text is one line for the user."""


class DuplicateLogs(Exception):
    """Raised if a log is found in several directories; its text is one line."""


class LogDirectory:
    """One of `log.dirs`. Methods are called on the event loop; those with a name ending in `_in_thread` run in a thread."""

    def __init__(
        self,
        path: str,
        executor: Executor,
        clock: Clock,
        on_failed: Callable[[LogDirectory, OSError], None],
        delete_delay_ms: int,
        most_files: int,
    ) -> None:
        """At most `most_files` stay open between runs, those of the most recently written logs."""
        self.path = os.path.abspath(path)
        self.is_offline = False
        self.is_closed = False
        self.is_loaded = False
        """Whether all logs were loaded; otherwise a clean shutdown is not possible."""
        self.was_clean = False
        """Whether the last shutdown was clean."""
        self.topic_ids: dict[TopicPartition, bytes] = {}
        """The logs in this directory → topic id from `partition.metadata`, zero without that file."""
        self.moves: dict[TopicPartition, tuple[str, bool]] = {}
        """Logs with a `klamm.move` file from a crash at the end of a move → (id of the move, whether this is the new folder)."""
        self.loaded: dict[TopicPartition, LoadedLog] = {}
        """Logs with records that were loaded at the start and are not opened yet."""
        self.storages: dict[TopicPartition, DirectoryStorage] = {}
        self._clock = clock
        self._time_ms = None if clock is SYSTEM_CLOCK else clock.now_ms
        """What gives files their times; None for the system."""
        self._on_failed = on_failed
        self._threads = DirectoryThreads(executor, self._check_online, self.fail)
        self.submit = self._threads.submit
        """Runs work in a thread of this directory. An OSError takes the directory offline and is raised."""
        self._delete_delay_ms = delete_delay_ms
        self._most_open = max(most_files // FILES_OF_A_LOG, 1)
        self.checkpoints = DirectoryCheckpoints(self.path)
        self._rules: Mapping[str, LoadRules] = {}
        self._opening: dict[TopicPartition, asyncio.Future[Any]] = {}
        """Logs that a thread opens or creates now, also if nobody waits for that any more."""
        self._pending: list[DirectoryStorage] = []
        self._open: dict[DirectoryStorage, None] = {}
        """Logs whose files may be open, the least recently used first."""
        self._lock = -1
        self._unfinished: list[str] = []
        """Folders found at the start whose deletion, or whose move to here, was not finished."""
        self._writing_checkpoints = asyncio.Lock()
        self._checkpoints_wanted = 0
        self._checkpoints_begun = 0
        """Number of requested checkpoints that the latest started write includes."""

    # --- work in threads

    def _check_online(self) -> DirectoryFailed | None:
        return DirectoryFailed(f"log directory {self.path} is offline") if self.is_offline or self.is_closed else None

    def schedule(self, storage: DirectoryStorage) -> None:
        """Execute the queued commands of a log, together with those of other logs from this pass of the event loop."""
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._start_runs)
        self._pending.append(storage)

    def _start_runs(self) -> None:
        pending, self._pending = self._pending, []
        if self.is_offline or self.is_closed:
            return
        ready = [storage for storage in pending if not storage.has_to_wait()]
        quick = [storage for storage in ready if storage.is_quick]
        slow = [storage for storage in ready if not storage.is_quick]
        for start in range(0, len(quick), LOGS_OF_A_TURN):
            self._start_run(quick[start : start + LOGS_OF_A_TURN])
        for storage in slow:
            self._start_run([storage])
        self._close_unused()

    def _close_unused(self) -> None:
        """If too many files are open, close those of the least recently written logs."""
        if len(self._open) <= self._most_open:
            return
        unused = [storage for storage in self._open if not storage.is_running][: len(self._open) - self._most_open]
        for storage in unused:
            del self._open[storage]
            storage.is_running = True  # so that nothing else uses its files
        if unused:
            closed = self.submit(_close_all, [storage.files for storage in unused])
            closed.add_done_callback(lambda done: self._runs_finished([(storage, []) for storage in unused], done))

    def _start_run(self, storages: Sequence[DirectoryStorage]) -> None:
        for storage in storages:
            self._open.pop(storage, None)
            self._open[storage] = None
        runs = [(storage, storage.take()) for storage in storages]
        result = self.submit(execute_all, [(storage.files, run) for storage, run in runs])
        result.add_done_callback(lambda done: self._runs_finished(runs, done))

    def _runs_finished(
        self, runs: Sequence[tuple[DirectoryStorage, list[Command]]], done: asyncio.Future[list[Outcome | OSError]]
    ) -> None:
        if done.cancelled() or done.exception() is not None:
            error = None if done.cancelled() else done.exception()
            if error is not None and not isinstance(error, OSError):
                log.error("log directory %s: a command failed", self.path, exc_info=error)
                self.fail(OSError(str(error)))
            return
        for (storage, run), outcome in zip(runs, done.result(), strict=False):
            if isinstance(outcome, OSError):
                self.fail(outcome)
                return
            if not self.is_offline:
                storage.finished(run, outcome)

    def read(self, storage: DirectoryStorage, command: ReadCommand) -> Awaitable[bytes | None]:
        """See `Storage.read`."""
        return self.submit(read_in_thread, storage.files, command)

    def read_producers(
        self, storage: DirectoryStorage, offset: int, segments: Sequence[int], after_ms: int
    ) -> Awaitable[list[ProducerEntry]]:
        """See `Storage.read_producers`."""
        return self.submit(states_in_thread, storage.files, segments, offset, after_ms)

    def flush_later(self, storage: DirectoryStorage, segments: Sequence[int], offset: int) -> None:
        """Force segments, and everything else before `offset`, to disk, at the same time as other commands of the log."""
        result = self.submit(_flush_in_thread, storage.files, segments, offset)
        result.add_done_callback(
            lambda done: storage.closed_segments_flushed(offset, not done.cancelled() and done.exception() is None and done.result())
        )

    def remove_later(self, files: LogFiles, segments: Sequence[int], delay_ms: int) -> None:
        """Remove the renamed files of segments after `delay_ms`."""
        self._clock.call_later(delay_ms / 1000, self._quietly, files.remove_retired, segments)

    def _quietly(self, work: Callable[..., object], *arguments: Any) -> None:
        if not self.is_offline and not self.is_closed:
            self.submit(work, *arguments).add_done_callback(_take_exception)

    def fail(self, error: OSError) -> None:
        """Take the directory offline. A second call does nothing."""
        if self.is_offline or self.is_closed:
            return
        self.is_offline = True
        log.error("log directory %s failed and is offline: %s", self.path, error)
        for storage in self.storages.values():
            storage.failed(error)
        self._unlock()
        self._on_failed(self, error)

    # --- start and end

    async def prepare(self) -> None:
        """Lock the directory and list its logs, without changing anything. Raises OSError after going offline, DirectoryInUse."""
        await self.submit(self._prepare_in_thread)

    async def load(self, read_rules: ReadLoadRules | None = None) -> None:
        """Load the logs. Raises OSError after going offline, and what `read_rules` raises."""
        await self.submit(self._begin_in_thread)
        folders = list(self.topic_ids)
        if read_rules is not None and folders:
            self._rules = await read_rules({topic for topic, _ in folders})
        turns = [folders[start : start + LOADED_IN_A_TURN] for start in range(0, len(folders), LOADED_IN_A_TURN)]
        results = await asyncio.gather(*(self.submit(self._load_in_thread, turn) for turn in turns), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            self.loaded |= result
        self.is_loaded = True
        if folders:
            how = "after a stop in order" if self.was_clean else "after an unclean end"
            log.info("log directory %s: %d logs loaded %s, %d with records", self.path, len(folders), how, len(self.loaded))

    def _prepare_in_thread(self) -> None:
        os.makedirs(self.path, exist_ok=True)
        self._lock = os.open(f"{self.path}/{marker_files.LOCK}", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise DirectoryInUse(f"log directory {self.path} is in use by another broker") from error
        self.checkpoints.read_in_thread()
        for entry in os.scandir(self.path):
            if entry.is_dir():
                self._take_folder(entry.name)

    def _begin_in_thread(self) -> None:
        self.checkpoints.warn_of_missing(self.topic_ids)
        marker = f"{self.path}/{marker_files.CLEAN_SHUTDOWN}"
        self.was_clean = os.path.exists(marker)
        remove(marker)
        remove_temporaries(self.path, REPLACED)
        for folder in self._unfinished:
            shutil.rmtree(folder, ignore_errors=True)

    def _take_folder(self, name: str) -> None:
        try:
            topic, partition, kind = names.parse_folder(name)
        except names.NotALog as error:
            if not name.startswith("."):
                log.warning("log directory %s: ignoring %s: %s", self.path, name, error)
            return
        folder = f"{self.path}/{name}"
        if kind == names.DELETE_FOLDER or kind == names.FUTURE_FOLDER:
            self._unfinished.append(folder)
        elif not kind:
            self.topic_ids[TopicPartition(topic, partition)] = _topic_id(folder)
            with contextlib.suppress(FileNotFoundError):
                self.moves[TopicPartition(topic, partition)] = marker_files.read_move(read_file(f"{folder}/{marker_files.MOVE}"))

    def _load_in_thread(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, LoadedLog]:
        found = {}
        for key in keys:
            loaded = self._load_one(key)
            if loaded.next_offset:
                found[key] = loaded
        return found

    def _load_one(self, key: TopicPartition) -> LoadedLog:
        folder = f"{self.path}/{names.log_folder(*key)}"
        try:
            loaded = load_log(folder, self.checkpoints.of(key), self.was_clean, self._rules.get(key[0], LoadRules()))
        except CorruptRecords as error:
            raise OSError(f"{folder} cannot be loaded: {error}") from error
        loaded.clean_offset = self.checkpoints.clean_offsets.get(key, 0)
        return loaded

    async def close(self, offsets: Iterable[tuple[str, int, int, int]]) -> None:
        """Clean shutdown: wait for queued commands, write the checkpoints and mark the logs as complete."""
        if self.is_offline or self.is_closed:
            return
        await asyncio.gather(*(storage.drain() for storage in self.storages.values()))
        async with self._writing_checkpoints:
            await self._threads.until_idle()
            self._note_offsets(offsets)
            if not self.is_offline and self.is_loaded:
                try:
                    await self._write_checkpoints()
                    await self.submit(self._end_in_thread)
                except OSError as error:
                    log.error("log directory %s: cannot shut down cleanly: %s", self.path, error)
            self.is_closed = True

    async def abandon(self) -> None:
        """End like a killed process: queued commands are dropped. Returns when no thread works here any more."""
        self.is_closed = True
        for storage in self.storages.values():
            storage.queue.clear()
            storage.wake()
        await self._threads.until_idle()
        for storage in self.storages.values():
            storage.files.close()
        self._unlock()

    def _end_in_thread(self) -> None:
        for storage in self.storages.values():
            storage.files.close()
        write_file(f"{self.path}/{marker_files.CLEAN_SHUTDOWN}", marker_files.encode_clean_shutdown(marker_files.UNKNOWN_EPOCH), flush=True)
        remove(f"{self.path}/{marker_files.LOCK}")
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- logs

    async def open(self, topic: str, partition: int, topic_id: bytes) -> tuple[DirectoryStorage, LoadedLog]:
        """Open a log in this directory; creates it if there is none. Returns its storage and its state on disk. Raises OSError."""
        key = TopicPartition(topic, partition)
        loaded = self.loaded.pop(key, None)
        if loaded is None:
            loaded = await self._open_undisturbed(key, self._open_in_thread, key, topic_id)
        elif topic_id != ZERO_UUID and self.topic_ids.get(key, ZERO_UUID) == ZERO_UUID:
            log.info("log directory %s: %s-%d has no partition.metadata; it is taken for the log of the present topic", self.path, *key)
            await self._open_undisturbed(key, self._write_topic_id_in_thread, key, topic_id)
        self.topic_ids[key] = topic_id if topic_id != ZERO_UUID else self.topic_ids.get(key, ZERO_UUID)
        files = LogFiles(f"{self.path}/{names.log_folder(topic, partition)}", loaded.segments[-1].base_offset, self._time_ms)
        storage = self.storages[key] = DirectoryStorage(self, topic, partition, files, loaded.recovery_point)
        return storage, loaded

    async def _open_undisturbed(self, key: TopicPartition, work: Callable[..., T], *arguments: Any) -> T:
        """The result of work in a thread on the folder of a log. It goes on if the caller is cancelled; a deletion waits for it."""
        opening = self._opening[key] = self.submit(work, *arguments)
        opening.add_done_callback(lambda done: self._opening.pop(key, None))
        opening.add_done_callback(_take_exception)
        return await asyncio.shield(opening)

    def _open_in_thread(self, key: TopicPartition, topic_id: bytes) -> LoadedLog:
        folder = f"{self.path}/{names.log_folder(*key)}"
        is_new = not os.path.isdir(folder)
        if is_new:
            os.mkdir(folder)
            LogFiles(folder, 0, self._time_ms).create_segment(0)
        if topic_id != ZERO_UUID and not os.path.exists(f"{folder}/{marker_files.PARTITION_METADATA}"):
            self._write_topic_id_in_thread(key, topic_id)
        if is_new and self.checkpoints.of(key) == Checkpoints() and key not in self.checkpoints.clean_offsets:
            return new_log(folder)
        return self._load_one(key)

    def _write_topic_id_in_thread(self, key: TopicPartition, topic_id: bytes) -> None:
        path = f"{self.path}/{names.log_folder(*key)}/{marker_files.PARTITION_METADATA}"
        replace_file(path, marker_files.encode_partition_metadata(topic_id), flush=False)

    def take_over(self, source: LogDirectory, key: TopicPartition) -> None:
        """Adopt a log that has moved here from another directory. Its storage is held."""
        self.topic_ids[key] = source.topic_ids.pop(key)
        self.checkpoints.take_over(source.checkpoints, key)
        storage = source.storages.pop(key, None)
        if storage is not None:
            source._open.pop(storage, None)
            self.storages[key] = storage
            storage.home = self
            storage.files = LogFiles(f"{self.path}/{names.log_folder(*key)}", storage.files.base_offset, self._time_ms)

    def delete(self, topic: str, partition: int, unique: str) -> Awaitable[None]:
        """Rename the folder of a log, after the present work of a thread in it, and remove it later. The result can be ignored."""
        key = TopicPartition(topic, partition)
        storage = self.storages.pop(key, None)
        if storage is not None:
            self._open.pop(storage, None)
        self.loaded.pop(key, None)
        self.topic_ids.pop(key, None)
        self.checkpoints.forget(key)
        return asyncio.ensure_future(self._delete(storage, topic, partition, unique))

    async def _delete(self, storage: DirectoryStorage | None, topic: str, partition: int, unique: str) -> None:
        opening = self._opening.get(TopicPartition(topic, partition))
        if opening is not None:
            await asyncio.wait({opening})
        if storage is not None:
            storage.queue.clear()
            await storage.drain()
        await self.retire(storage.files if storage is not None else None, topic, partition, unique)

    async def retire(self, files: LogFiles | None, topic: str, partition: int, unique: str) -> bool:
        """Rename the folder of an unused log, and remove it later; returns False if that failed."""
        renamed = f"{self.path}/{names.delete_folder(topic, partition, unique)}"
        try:
            await self.submit(_rename_folder, files, f"{self.path}/{names.log_folder(topic, partition)}", renamed)
        except OSError as error:
            log.warning("log directory %s: %s-%d cannot be deleted: %s", self.path, topic, partition, error)
            return False
        self._clock.call_later(self._delete_delay_ms / 1000, self._quietly, _remove_folder, renamed)
        return True

    # --- checkpoints

    async def checkpoint(self, offsets: Iterable[tuple[str, int, int, int]]) -> None:
        """Write the checkpoints; see `Directories.checkpoint`. An error takes the directory offline.

        There is one write at a time, and one write for all calls that come during another one.
        """
        self._note_offsets(offsets)
        self._checkpoints_wanted = wanted = self._checkpoints_wanted + 1
        async with self._writing_checkpoints:
            if self.is_offline or self.is_closed or self._checkpoints_begun >= wanted:
                return
            self._checkpoints_begun = self._checkpoints_wanted
            try:
                await self._write_checkpoints()
            except OSError as error:
                log.error("log directory %s: cannot write checkpoints: %s", self.path, error)

    async def look(self) -> None:
        """Write the smallest checkpoint again as it is. An error takes the directory offline. Nothing is done beside another write."""
        if self._writing_checkpoints.locked():
            return
        async with self._writing_checkpoints:
            if self.is_offline or self.is_closed or not self.checkpoints.are_written:
                return
            try:
                await self.submit(self.checkpoints.write_again_in_thread)
            except OSError as error:
                log.error("log directory %s: cannot be written: %s", self.path, error)

    def _note_offsets(self, offsets: Iterable[tuple[str, int, int, int]]) -> None:
        """Store the start offsets and high watermarks of open logs."""
        for topic, partition, log_start_offset, high_watermark in offsets:
            if (topic, partition) in self.storages:
                self.checkpoints.note(TopicPartition(topic, partition), log_start_offset, high_watermark)

    async def _write_checkpoints(self) -> None:
        """Write them: present recovery points for open logs, the values from the start for the others."""
        for key, storage in self.storages.items():
            self.checkpoints.note_recovery_point(key, storage.recovery_point)
        cleaned = dict(self.checkpoints.clean_offsets)
        await self.submit(self.checkpoints.write_in_thread, self.checkpoints.of_all(self.topic_ids), cleaned)


# in threads


def _topic_id(folder: str) -> bytes:
    """The topic id of a log, zero if it has none. Raises OSError if its file cannot be read."""
    path = f"{folder}/{marker_files.PARTITION_METADATA}"
    try:
        return marker_files.read_partition_metadata(read_file(path))
    except FileNotFoundError:
        return ZERO_UUID
    except marker_files.CorruptMarker as error:
        raise OSError(
            f"{path} cannot be read: {error}. It says of which topic the log is: a topic that was deleted and created again must not get "
            "the records of the old one. Remove the file if the log is that of the present topic, otherwise move the folder away"
        ) from error


def _flush_in_thread(files: LogFiles, segments: Sequence[int], offset: int) -> bool:
    """Force to disk; returns False if the log was deleted."""
    try:
        files.flush(segments, offset)
    except FileNotFoundError:
        return False
    return True


def _rename_folder(files: LogFiles | None, folder: str, renamed: str) -> None:
    if files is not None:
        files.close()
    try:
        os.rename(folder, renamed)
    except FileNotFoundError:
        return


def _remove_folder(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _close_all(open_files: Sequence[LogFiles]) -> list[Outcome | OSError]:
    for files in open_files:
        files.close()
    return [Outcome(NOTHING, NOTHING, None) for _ in open_files]


def _take_exception(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
