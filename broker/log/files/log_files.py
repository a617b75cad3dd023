"""The files of one log, for its only writer: it executes commands by system calls. Everything runs in a thread of the log's directory.

Consecutive appends of a run are one write to the segment, and one write to each index that gets entries. Files of the active segment stay
open between runs until the directory closes them. Only `flush` forces data to disk. An OSError goes to the caller, which then executes
nothing more; incomplete writes are truncated at the next start (`broker/log/files/loading.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple, assert_never

from klamm.broker.log.files import indexes, names
from klamm.broker.log.files.checkpoints import LEADER_EPOCH_CHECKPOINT, encode_leader_epochs
from klamm.broker.log.files.producer_snapshot import SnapshotEntry, encode_snapshot
from klamm.broker.log.storage import (
    Append,
    Close,
    Command,
    DeleteSegments,
    Flush,
    ProducerEntry,
    Replace,
    Roll,
    StartAt,
    Truncate,
    WriteEpochs,
    WriteSnapshot,
)
from klamm.machine.replaced_file import replace_file
from klamm.machine.system_calls import MAX_BUFFERS, append_to, cut_file, read_file, remove, sync_folder, write_all, write_at, write_file

NOTHING = -1


class Outcome(NamedTuple):
    """The outcome of a run: the written log end offset, the offset up to which it was forced to disk, and the last roll."""

    written: int
    flushed: int
    rolled: Roll | None
    """The last roll of the run; segments before it must be flushed."""


class LogFiles:
    """The folder of one log. `base_offset` is that of the active segment.

    The age of records without timestamps is that of their file. If the broker has another clock than the system, `time_ms` is that clock
    (ms since 1970), and files get its times: a start compares them with the same clock.
    """

    def __init__(self, folder: str, base_offset: int, time_ms: Callable[[], int] | None = None) -> None:
        self.folder = folder
        self.base_offset = base_offset
        self._time_ms = time_ms
        self._log = self._index = self._time_index = -1

    @property
    def is_open(self) -> bool:
        """Whether files are open between runs."""
        return self._log >= 0

    def path(self, base_offset: int, suffix: str) -> str:
        """The path of a file of a segment."""
        return f"{self.folder}/{base_offset:020d}{suffix}"

    def execute(self, commands: Sequence[Command]) -> Outcome:
        """Execute commands in order. Raises OSError."""
        written = flushed = NOTHING
        rolled: Roll | None = None
        position = 0
        while position < len(commands):
            command = commands[position]
            position += 1
            if isinstance(command, Append):
                run = [command]
                for following in commands[position : position + MAX_BUFFERS - 1]:
                    if not isinstance(following, Append) or following.segment != command.segment:
                        break
                    run.append(following)
                position += len(run) - 1
                self._append(run)
                written = run[-1].next_offset
                continue
            match command:
                case Roll(base_offset, time_index, producers):
                    self._roll(base_offset, time_index, producers)
                    rolled = command
                case Truncate(next_offset, segment, size, deleted):
                    self._truncate(next_offset, segment, size, deleted)
                    written, flushed = next_offset, min(flushed, next_offset)
                    rolled = rolled if rolled is not None and rolled.base_offset <= next_offset else None
                case StartAt(offset, deleted):
                    self._start_at(offset, deleted)
                    written, flushed, rolled = offset, min(flushed, offset), None
                case DeleteSegments(segments):
                    self._retire(segments)
                case Replace():
                    self._replace(command)
                case WriteEpochs(entries):
                    replace_file(f"{self.folder}/{LEADER_EPOCH_CHECKPOINT}", encode_leader_epochs(entries), flush=False)
                case WriteSnapshot(offset, producers):
                    self._write_snapshot(offset, producers)
                case Flush(offset, unflushed):
                    self.flush(unflushed, offset)
                    flushed = offset
                case Close():
                    self._close_log(command)
                    flushed = command.offset
                case _:
                    assert_never(command)
        return Outcome(written, flushed, rolled)

    def close(self) -> None:
        """Close the open files; the next append opens them again."""
        for descriptor in (self._log, self._index, self._time_index):
            if descriptor >= 0:
                os.close(descriptor)
        self._log = self._index = self._time_index = -1

    def create_segment(self, base_offset: int) -> None:
        """Create the empty files of a segment, which becomes the active one. Existing files with these names are replaced."""
        self.close()
        self.base_offset = base_offset
        for suffix in (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
            os.close(os.open(self.path(base_offset, suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
        self._set_time(self.path(base_offset, names.LOG_SUFFIX))

    def flush(self, segments: Iterable[int], offset: int) -> None:
        """Force these segments, the snapshot of `offset` and the checkpoint of epochs to disk, then the folder.

        It does not use the open files, so it can run at the same time as appends. Files that were deleted in the meantime are skipped.
        """
        paths = [self.path(base_offset, suffix) for base_offset in segments for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT_SUFFIX)]
        for path in (*paths, self.path(offset, names.SNAPSHOT_SUFFIX), f"{self.folder}/{LEADER_EPOCH_CHECKPOINT}"):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(self.folder)

    # commands

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT
        self._log = os.open(self.path(self.base_offset, names.LOG_SUFFIX), flags, 0o644)
        self._index = os.open(self.path(self.base_offset, names.INDEX_SUFFIX), flags | os.O_APPEND, 0o644)
        self._time_index = os.open(self.path(self.base_offset, names.TIME_INDEX_SUFFIX), flags | os.O_APPEND, 0o644)

    def _append(self, run: Sequence[Append]) -> None:
        if self._log < 0:
            self._open()
        base = self.base_offset
        write_at(self._log, [command.data for command in run], run[0].position)
        self._set_time(self._log)
        entries = [command.index for command in run if command.index is not None]
        if entries:
            write_all(self._index, indexes.encode_offset_index(entries, base))
        entries = [command.time_index for command in run if command.time_index is not None]
        if entries:
            write_all(self._time_index, indexes.encode_time_index(entries, base))
        aborted = [entry for command in run for entry in command.aborted]
        if aborted:
            append_to(self.path(base, names.TXN_INDEX_SUFFIX), indexes.encode_aborted(aborted))

    def _roll(self, base_offset: int, time_index: tuple[int, int] | None, producers: Iterable[ProducerEntry] | None) -> None:
        self._append_time_index(time_index)
        if producers is not None:
            self._write_snapshot(base_offset, producers)
        self.create_segment(base_offset)

    def _truncate(self, next_offset: int, segment: int, size: int, deleted: Iterable[int]) -> None:
        self.close()
        for base_offset in sorted(deleted, reverse=True):
            self._remove_segment(base_offset)
        self.base_offset = segment
        os.truncate(self.path(segment, names.LOG_SUFFIX), size)
        self._set_time(self.path(segment, names.LOG_SUFFIX))
        cut_indexes(self, segment, next_offset, size)
        for offset in self._snapshots():
            if offset > next_offset:
                remove(self.path(offset, names.SNAPSHOT_SUFFIX))

    def _start_at(self, offset: int, deleted: Iterable[int]) -> None:
        self.close()
        for base_offset in deleted:
            self._remove_segment(base_offset)
        for snapshot in self._snapshots():
            remove(self.path(snapshot, names.SNAPSHOT_SUFFIX))
        self.create_segment(offset)

    def _retire(self, segments: Iterable[int]) -> None:
        """Rename the files of segments. The directory removes them later; see `remove_retired`."""
        for base_offset in segments:
            for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT_SUFFIX):
                path = self.path(base_offset, suffix)
                try:
                    os.rename(path, path + names.DELETED_SUFFIX)
                except FileNotFoundError:
                    continue

    def remove_retired(self, segments: Iterable[int]) -> None:
        """Remove the files that `DeleteSegments` or `Replace` renamed."""
        for base_offset in segments:
            for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT_SUFFIX):
                remove(self.path(base_offset, suffix) + names.DELETED_SUFFIX)

    def _replace(self, command: Replace) -> None:
        """Replace segments in the steps of Apache Kafka: `.cleaned`, then `.swap`, then in use. A start after any step finds complete
        files. The new segment is as old as the last one that it replaces (`LogCleaner.cleanSegments`).
        """
        base = command.base_offset
        written_ns = os.stat(self.path(command.segments[-1], names.LOG_SUFFIX)).st_mtime_ns
        files = {
            names.LOG_SUFFIX: command.data,
            names.INDEX_SUFFIX: indexes.encode_offset_index(command.index, base),
            names.TIME_INDEX_SUFFIX: indexes.encode_time_index(command.time_index, base),
        }
        if command.aborted:
            files[names.TXN_INDEX_SUFFIX] = indexes.encode_aborted(command.aborted)
        for suffix, data in files.items():
            write_file(self.path(base, suffix) + names.CLEANED_SUFFIX, data, flush=True)
        os.utime(self.path(base, names.LOG_SUFFIX) + names.CLEANED_SUFFIX, ns=(written_ns, written_ns))
        for suffix in (suffix for suffix in reversed(names.SEGMENT_SUFFIXES) if suffix in files):
            path = self.path(base, suffix)
            os.rename(path + names.CLEANED_SUFFIX, path + names.SWAP_SUFFIX)
        for base_offset in command.segments:
            for suffix in (*names.SEGMENT_SUFFIXES, *(() if base_offset == base else (names.SNAPSHOT_SUFFIX,))):
                path = self.path(base_offset, suffix)
                try:
                    os.rename(path, path + names.DELETED_SUFFIX)
                except FileNotFoundError:
                    continue
        for suffix in files:
            path = self.path(base, suffix)
            os.rename(path + names.SWAP_SUFFIX, path)

    def _close_log(self, command: Close) -> None:
        self._append_time_index(command.time_index)
        if command.producers is not None:
            self._write_snapshot(command.offset, command.producers)
        self.close()
        self.flush(command.unflushed, command.offset)

    def _append_time_index(self, entry: tuple[int, int] | None) -> None:
        if entry is not None:
            append_to(self.path(self.base_offset, names.TIME_INDEX_SUFFIX), indexes.encode_time_index([entry], self.base_offset))

    def _write_snapshot(self, offset: int, producers: Iterable[ProducerEntry]) -> None:
        write_file(self.path(offset, names.SNAPSHOT_SUFFIX), encode_snapshot(snapshot_entries(producers)))

    def _snapshots(self) -> list[int]:
        found = [names.base_offset_of(name) for name in os.listdir(self.folder) if name.endswith(names.SNAPSHOT_SUFFIX)]
        return [offset for offset in found if offset is not None]

    def _set_time(self, file: str | int) -> None:
        """Give a file, a path or descriptor, the time of the broker's clock if that is not the system's."""
        if self._time_ms is not None:
            now_ns = self._time_ms() * 1_000_000
            os.utime(file, ns=(now_ns, now_ns))

    def _remove_segment(self, base_offset: int) -> None:
        for suffix in names.SEGMENT_SUFFIXES:
            remove(self.path(base_offset, suffix))


def snapshot_entries(producers: Iterable[ProducerEntry]) -> Iterable[SnapshotEntry]:
    """The entries of a snapshot for these producer states: only the last batch of each."""
    for entry in producers:
        last = entry.batches[-1] if entry.batches else None
        yield SnapshotEntry(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=-1 if last is None else last.last_sequence,
            last_offset=-1 if last is None else last.last_offset,
            offset_delta=0 if last is None else last.offset_delta,
            timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            txn_first_offset=entry.open_first_offset,
        )


def cut_indexes(files: LogFiles, segment: int, next_offset: int, size: int) -> None:
    """Remove the entries at `next_offset` and later from the indexes of a segment."""
    path = files.path(segment, names.INDEX_SUFFIX)
    relative = next_offset - segment
    kept = takewhile(lambda e: e[0] < relative and e[1] < size, indexes.OFFSET_ENTRY.iter_unpack(read_file(path)))
    cut_file(path, indexes.OFFSET_ENTRY.size * sum(1 for _ in kept))
    path = files.path(segment, names.TIME_INDEX_SUFFIX)
    kept_times = takewhile(lambda e: e[1] < relative, indexes.TIME_ENTRY.iter_unpack(read_file(path)))
    cut_file(path, indexes.TIME_ENTRY.size * sum(1 for _ in kept_times))
    path = files.path(segment, names.TXN_INDEX_SUFFIX)
    if os.path.exists(path):
        aborted = takewhile(lambda e: e[3] < next_offset, indexes.ABORTED_ENTRY.iter_unpack(read_file(path)))
        cut_file(path, indexes.ABORTED_ENTRY.size * sum(1 for _ in aborted))
