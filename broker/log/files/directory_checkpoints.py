"""The checkpoints of one log directory: four files with an offset of each log.

They are read at the start, noted while the broker runs, and written from time to time and at the end. A log that moves to another directory
takes its checkpoints along. Methods with a name ending in `_in_thread` read or write files and run in a thread, one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from klamm.broker.log.files import checkpoints as files_of
from klamm.broker.log.files import names
from klamm.broker.log.files.loading import Checkpoints
from klamm.machine.replaced_file import replace_file
from klamm.machine.system_calls import read_file
from klamm.protocol.nouns import TopicPartition

log = logging.getLogger(__name__)

MOST_NAMED = 5
"""Maximum number of logs that a log line names."""
WITHOUT_CHECKPOINT = {
    files_of.LOG_START_OFFSET_CHECKPOINT: "records that were deleted by DeleteRecords come back",
    files_of.RECOVERY_POINT_CHECKPOINT: "after an unclean end logs are read from their start, and cut at the first damage",
    files_of.REPLICATION_OFFSET_CHECKPOINT: "high watermarks begin at the start of the logs",
    files_of.CLEANER_OFFSET_CHECKPOINT: "compacted logs are compacted from their start again",
}
"""Checkpoint file → the consequence if it is missing, for the log."""


class DirectoryCheckpoints:
    """The checkpoints of the logs in the directory with this path."""

    def __init__(self, path: str) -> None:
        self.clean_offsets: dict[TopicPartition, int] = {}
        """Compacted log → offset up to which it was compacted."""
        self._path = path
        self._offsets: dict[TopicPartition, Checkpoints] = {}
        self._missing: list[str] = []
        """Checkpoint files that were missing at the start."""
        self._watermarked: list[TopicPartition] = []
        """The logs in the last written checkpoint of high watermarks."""
        self._start_offsets_written: Mapping[TopicPartition, int] | None = None
        """Log start offsets above zero, as the latest checkpoint has them: the smallest one."""

    @property
    def are_written(self) -> bool:
        """Whether they have been written since the start."""
        return self._start_offsets_written is not None

    def of(self, key: TopicPartition) -> Checkpoints:
        return self._offsets.get(key, Checkpoints())

    def of_all(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, Checkpoints]:
        find, absent = self._offsets.get, Checkpoints()
        return {key: find(key, absent) for key in keys}

    def note(self, key: TopicPartition, log_start_offset: int, high_watermark: int) -> None:
        """Store the present offsets of an open log."""
        self._offsets[key] = Checkpoints(log_start_offset, self.of(key).recovery_point, high_watermark)

    def note_recovery_point(self, key: TopicPartition, recovery_point: int) -> None:
        noted = self.of(key)
        if noted.recovery_point != recovery_point:
            self._offsets[key] = noted._replace(recovery_point=recovery_point)

    def forget(self, key: TopicPartition) -> None:
        """The log is deleted."""
        self._offsets.pop(key, None)
        self.clean_offsets.pop(key, None)

    def merge(self, source: DirectoryCheckpoints, key: TopicPartition) -> None:
        """Adopt the checkpoints of a log whose move to here was ended by a crash, perhaps before its checkpoints were moved."""
        theirs, ours = source._offsets.get(key), self._offsets.get(key)
        if theirs is not None:
            self._offsets[key] = theirs if ours is None else Checkpoints(
                max(theirs.log_start_offset, ours.log_start_offset),
                min(theirs.recovery_point, ours.recovery_point),
                max(theirs.high_watermark, ours.high_watermark),
            )
        if key in source.clean_offsets:
            self.clean_offsets.setdefault(key, source.clean_offsets[key])

    def take_over(self, source: DirectoryCheckpoints, key: TopicPartition) -> None:
        """Adopt the checkpoints of a log that has moved here from another directory."""
        if key in source._offsets:
            self._offsets[key] = source._offsets.pop(key)
        if key in source.clean_offsets:
            self.clean_offsets[key] = source.clean_offsets.pop(key)

    def warn_of_missing(self, present: Collection[TopicPartition]) -> None:
        """Log which checkpoint files are missing, and which logs of the last checkpoint, if these are the logs of the directory."""
        if present:
            for name in self._missing:
                log.warning("log directory %s has logs, but no %s: %s", self._path, name, WITHOUT_CHECKPOINT[name])
        gone = sorted(key for key in self._watermarked if key not in present)
        if gone:
            listed = ", ".join(names.log_folder(*key) for key in gone[:MOST_NAMED])
            log.warning(
                "log directory %s: %d logs of replication-offset-checkpoint have no folder: %s%s. They were deleted or moved just before "
                "the broker ended, or are missing", self._path, len(gone), listed, ", …" if len(gone) > MOST_NAMED else "",
            )

    def read_in_thread(self) -> None:
        """Read all files. Raises OSError if one cannot be read."""
        starts, points, watermarks = (
            self._read(name)
            for name in (
                files_of.LOG_START_OFFSET_CHECKPOINT, files_of.RECOVERY_POINT_CHECKPOINT, files_of.REPLICATION_OFFSET_CHECKPOINT,
            )
        )
        self.clean_offsets = self._read(files_of.CLEANER_OFFSET_CHECKPOINT)
        self._watermarked = [key for key, high_watermark in watermarks.items() if high_watermark]
        for key in starts.keys() | points.keys() | watermarks.keys():
            self._offsets[key] = Checkpoints(starts.get(key, 0), points.get(key, 0), watermarks.get(key, 0))

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """The offsets of a checkpoint file, {} if there is none. Raises OSError if it cannot be read."""
        try:
            return files_of.read_offsets(read_file(f"{self._path}/{name}"))
        except FileNotFoundError:
            self._missing.append(name)
            return {}
        except files_of.CorruptCheckpoint as error:
            consequence = WITHOUT_CHECKPOINT[name]
            raise OSError(
                f"{self._path}/{name} cannot be read: {error}. Without it {consequence}. Repair it, or remove it to accept that"
            ) from error

    def write_in_thread(self, offsets: Mapping[TopicPartition, Checkpoints], cleaned: Mapping[TopicPartition, int]) -> None:
        """Write these offsets to all files; those in `cleaned` are clean offsets. Raises OSError."""
        checkpoints = {
            files_of.RECOVERY_POINT_CHECKPOINT: {key: value.recovery_point for key, value in offsets.items()},
            files_of.LOG_START_OFFSET_CHECKPOINT: {k: v.log_start_offset for k, v in offsets.items() if v.log_start_offset},
            files_of.REPLICATION_OFFSET_CHECKPOINT: {key: value.high_watermark for key, value in offsets.items()},
            files_of.CLEANER_OFFSET_CHECKPOINT: {key: offset for key, offset in cleaned.items() if key in offsets},
        }
        for name, values in checkpoints.items():
            self._write(name, values)
        self._start_offsets_written = checkpoints[files_of.LOG_START_OFFSET_CHECKPOINT]

    def write_again_in_thread(self) -> None:
        """Write the smallest file again as it is. Raises OSError."""
        self._write(files_of.LOG_START_OFFSET_CHECKPOINT, self._start_offsets_written or {})

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        replace_file(f"{self._path}/{name}", files_of.encode_offsets(offsets), flush=True)
