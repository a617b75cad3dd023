"""The interface between a log and its storage.

A `Log` decides everything on the event loop: offsets, the place of a batch, when a segment is rolled, what is truncated or deleted. It
sends its decisions as commands, which are values. A log in memory has no storage. A log on disk has a `Storage`, which executes the
commands in order, at most one run of them at a time, in a thread (ADR 8), and calls its listener on the event loop. `written` moves the log
end offset that others see; `failed` is called once, and after it nothing is executed.

A segment is named by its base offset; a position is counted in bytes from the start of its file. The log keeps the index of each segment.
It keeps its last batches until they are written, and for some time after that. Other batches it reads with `Storage.read`, which scans the
file from an indexed position, in a thread.

`Directories` opens logs and returns their state on disk as a `LoadedLog`. Both are implemented in `broker/log/files/`.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

from klamm.protocol.nouns import TopicPartition
from klamm.seams.value_class import dataclass


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index: offsets of the first record and of the marker, and the last stable offset at that time."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class BatchMetadata(NamedTuple):
    """The sequence numbers and offsets of one batch of an idempotent producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """The state of one producer id, with all remembered batches, the oldest first. A snapshot file of Apache Kafka has only the last batch.

    `open_first_offset` is -1 without an open transaction.
    """

    producer_id: int
    epoch: int
    coordinator_epoch: int
    open_first_offset: int
    last_timestamp: int
    batches: tuple[BatchMetadata, ...]


class EpochEntry(NamedTuple):
    """A leader epoch, and the first offset that was written in it."""

    epoch: int
    start_offset: int


# Commands


@dataclass(frozen=True, slots=True)
class Append:
    """Write whole batches at the end of the active segment, and the entries of its indexes.

    `next_offset` is the log end offset when they are written. Index entries are (offset, position) and (timestamp, offset), absolute.
    """

    segment: int
    position: int
    data: bytes
    next_offset: int
    index: tuple[int, int] | None = None
    time_index: tuple[int, int] | None = None
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class Roll:
    """Close the active segment and begin one at this offset. `time_index` is the last entry of the closed one, if it needs one.

    The states of producers up to this offset are written as a snapshot, unless they are not known at the moment (None). The closed segment
    is flushed afterwards, with all others that are not: `unflushed`.
    """

    base_offset: int
    time_index: tuple[int, int] | None
    producers: tuple[ProducerEntry, ...] | None
    unflushed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to `next_offset`: `segment` keeps its first `size` bytes; later segments and later snapshots are deleted."""

    next_offset: int
    segment: int
    size: int
    deleted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartAt:
    """Delete all segments and snapshots, and begin an empty one at this offset."""

    offset: int
    deleted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeleteSegments:
    """Delete these segments like Apache Kafka: they are renamed now and removed after `file.delete.delay.ms`."""

    segments: tuple[int, ...]
    delay_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace these segments by a cleaned one. `data` are its batches; index entries are (offset, position) and (timestamp, offset).

    Reads that began before still see the old segments.
    """

    segments: tuple[int, ...]
    base_offset: int
    data: bytes
    index: Sequence[tuple[int, int]]
    time_index: Sequence[tuple[int, int]]
    aborted: Sequence[AbortedTransaction]


@dataclass(frozen=True, slots=True)
class WriteEpochs:
    """Write the leader epoch checkpoint."""

    entries: tuple[EpochEntry, ...]


@dataclass(frozen=True, slots=True)
class WriteSnapshot:
    """Write a producer snapshot of this offset."""

    offset: int
    producers: tuple[ProducerEntry, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    """Force everything before this offset to disk; the recovery point moves there. `unflushed` are the segments that may need it."""

    offset: int
    unflushed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Close:
    """The last command of a clean shutdown: everything is forced to disk. `offset` is the log end offset.

    `time_index` is the last entry of the active segment, if it needs one; the states of producers are written as a snapshot, as by `Roll`.
    """

    offset: int
    time_index: tuple[int, int] | None
    producers: tuple[ProducerEntry, ...] | None
    unflushed: tuple[int, ...]


Command = Append | Roll | Truncate | StartAt | DeleteSegments | Replace | WriteEpochs | WriteSnapshot | Flush | Close


class ReadCommand(NamedTuple):
    """Read batches of a segment's file: scan from `position` to the batch that contains `offset` (or the first after it).

    Stop before `end_position`, before the first batch that ends at `end_offset` or later, and after `max_bytes`, which may be amid a batch;
    the first batch is read whole in any case with `min_one`.
    """

    segment: int
    position: int
    end_position: int
    offset: int
    end_offset: int
    max_bytes: int
    min_one: bool


class Storage(Protocol):
    """Stores the bytes of one log on disk."""

    @property
    def directory(self) -> str:
        """The log directory, as `log.dirs` names it."""

    def attach(self, listener: StorageListener) -> None:
        """Set the listener. Called once, before the first command."""

    def execute(self, command: Command) -> None:
        """Queue a command. Never blocks and never raises; a failure is reported to the listener."""

    def read(self, command: ReadCommand) -> Awaitable[bytes | None]:
        """Return the batches, b"" if none may be read, None if the segment has no batch from `offset` on. Raises OSError, which is also
        reported to the listener; KeyError for a deleted segment.
        """

    async def read_producers(self, offset: int, segments: Sequence[int], after_ms: int) -> list[ProducerEntry]:
        """Read the producer states at this offset, from the latest snapshot and the batches after it, after the queued commands.

        `segments` are the base offsets of the log. Producers in the snapshot that are idle since before `after_ms` are left out, unless
        they have an open transaction. Raises OSError, which is also reported to the listener; CorruptRecords; KeyError for a deleted log or
        segment.
        """

    async def drain(self) -> None:
        """Wait until the queued commands have been executed or have failed."""


class StorageListener(Protocol):
    """Gets the reports of a storage, on the event loop. A log is one."""

    def written(self, next_offset: int) -> None:
        """Everything before this offset is written. Not called for appends that a later queued Truncate or StartAt removes."""

    def flushed(self, offset: int) -> None:
        """Everything before this offset is forced to disk. It is not above the log end after a queued Truncate or StartAt."""

    def failed(self, error: OSError) -> None:
        """A command failed; nothing is executed any more."""


# What is loaded


@dataclasses.dataclass(slots=True)
class LoadedSegment:
    """A segment as it was found on disk. The arrays of an index have the same length and increase."""

    base_offset: int
    size: int
    created_ms: int
    """Time when the file was created or last changed; it counts if no record has a timestamp."""
    rolling_timestamp: int = -1
    """Largest timestamp of the first batch, -1 if there is none."""
    max_timestamp: int = -1
    offset_of_max_timestamp: int = -1
    index_offsets: array[int] = field(default_factory=lambda: array("q"))
    index_positions: array[int] = field(default_factory=lambda: array("q"))
    time_index_timestamps: array[int] = field(default_factory=lambda: array("q"))
    time_index_offsets: array[int] = field(default_factory=lambda: array("q"))
    aborted: list[AbortedTransaction] = field(default_factory=list)


@dataclasses.dataclass(slots=True)
class LoadedLog:
    """A log as it was found on disk and recovered: everything in it is written. A new log has one empty segment."""

    segments: list[LoadedSegment]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    recovery_point: int
    epochs: list[EpochEntry]
    producers: list[ProducerEntry]
    clean_offset: int = 0
    """The cleaner has compacted everything before this offset."""


class LoadRules(NamedTuple):
    """The configs of a topic and of the broker that matter for loading a log."""

    index_interval_bytes: int = 4096
    """Bytes between entries of rebuilt indexes."""
    producers_after_ms: int = -(2**63)
    """Producers in a snapshot that are idle since before this time are forgotten, unless they have an open transaction."""


ReadLoadRules = Callable[[Collection[str]], Awaitable[Mapping[str, LoadRules]]]
"""Topics → the rules for their logs. Raises ApiError if configs cannot be read at the moment."""


class DirectorySpace(NamedTuple):
    """A log directory, for DescribeLogDirs. Bytes are -1 if unknown."""

    path: str
    is_offline: bool
    total_bytes: int
    usable_bytes: int


class Directories(Protocol):
    """The log directories of one broker."""

    async def start(self, read_rules: ReadLoadRules | None = None) -> None:
        """Load all logs in the directories. Without `read_rules` the default rules are used. Raises what `read_rules` raises (ApiError)."""

    def with_records(self) -> Mapping[TopicPartition, bytes]:
        """(topic, partition) → topic id, zero if it has none, of the loaded logs that have, or had, records."""

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> tuple[Storage, LoadedLog]:
        """Open a log; creates its folder if there is none. Returns its storage, still without a listener, and its state on disk.

        Raises ApiError(KAFKA_STORAGE_ERROR) if no directory is online, or if the log is not new, has no folder, and a directory has failed.
        """

    def path_of(self, topic: str, partition: int) -> str | None:
        """The path of the directory that has a log, None if there is none."""

    async def space(self) -> list[DirectorySpace]:
        """All directories with the space on their volumes."""

    def move(self, topic: str, partition: int, path: str) -> None:
        """Move a log to another directory, in the background. If it is already there, a move in progress is cancelled."""

    def target_of(self, topic: str, partition: int) -> str | None:
        """The path of the directory to which a log is being moved, None if it is not."""

    def copied_of(self, topic: str, partition: int) -> int:
        """The bytes of a log that are in the directory to which it is being moved, 0 if it is not."""

    def delete(self, topic: str, partition: int) -> None:
        """Delete a log: its folder is renamed at once and removed later. Its queued commands are dropped."""

    def checkpoint(self, offsets: Sequence[tuple[str, int, int, int]]) -> Awaitable[None]:
        """Write the checkpoints of all directories. `offsets`: (topic, partition, log start offset, high watermark) of each log."""

    def look(self) -> Awaitable[None]:
        """Find out whether all directories can be written, although no checkpoint has changed; one that cannot goes offline."""

    def cleaned(self, topic: str, partition: int, clean_offset: int) -> None:
        """The cleaner has compacted a log up to this offset; the next checkpoint stores it."""

    async def close(self, offsets: Sequence[tuple[str, int, int, int]]) -> None:
        """Wait until all queues are empty, write the checkpoints like `checkpoint`, and mark the clean shutdown."""
