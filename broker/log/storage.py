"""The interface between a log and the place where its bytes are.

A `Log` decides everything on the loop: offsets, where a batch goes, when a segment is rolled, what is truncated or deleted. What it decided
it hands over as commands, which are values. A log in memory has no storage: its bytes are stored when it has them. A log on disk has a
`Storage`, which executes the commands in their order, at most one run of them at a time, in a thread (ADR 8), and calls its listener on the
loop. `written` moves the log end offset that others see; `failed` is called once, and after it nothing is executed.

A segment is named by its base offset, and a position is counted in bytes from the start of its file. The log keeps the index of each
segment, and the last batches of the log as long as they are not written and for some time after. What it does not have in memory it reads
through `Storage.read`, which scans the file from an indexed position, in a thread.

`Directories` opens logs and returns what is on disk, as a `LoadedLog`; `broker/log/files/` has both.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

from klamm.protocol.value_class import dataclass


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index: offsets of the first record and of the marker, and the last stable offset at that time."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class BatchMetadata(NamedTuple):
    """What is remembered of one batch of an idempotent producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """The state of one producer id: what a producer snapshot has of it, with all remembered batches, the oldest first.

    A snapshot file of Apache Kafka has the last batch only. -1 as `open_first_offset`: it has no open transaction.
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
    """Cut the log to `next_offset`: `segment` keeps its first `size` bytes, later segments and snapshots beyond the offset are deleted."""

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
    """Delete these segments, as Apache Kafka does: renamed now, removed after `file.delete.delay.ms`."""

    segments: tuple[int, ...]
    delay_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Replace:
    """A cleaned segment takes the place of these. `data` are its batches; index entries are (offset, position) and (timestamp, offset).

    Reads that were begun before still see the segments that go.
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
    """The last command of a broker that stops in order: everything goes to disk. `offset` is the log end offset.

    `time_index` is the last entry of the active segment, if it needs one; the states of producers are written as a snapshot, as by `Roll`.
    """

    offset: int
    time_index: tuple[int, int] | None
    producers: tuple[ProducerEntry, ...] | None
    unflushed: tuple[int, ...]


Command = Append | Roll | Truncate | StartAt | DeleteSegments | Replace | WriteEpochs | WriteSnapshot | Flush | Close


class ReadCommand(NamedTuple):
    """Batches of a segment's file: scan from `position` to the batch that holds `offset` (or the first after it) and read whole batches.

    Stop before `end_position`, before the first batch that ends at `end_offset` or later, and before `max_bytes` are exceeded;
    the first batch is read in any case with `min_one`.
    """

    segment: int
    position: int
    end_position: int
    offset: int
    end_offset: int
    max_bytes: int
    min_one: bool


class Storage(Protocol):
    """Where the bytes of one log are when they are not in memory only."""

    @property
    def directory(self) -> str:
        """The log directory, as `log.dirs` names it."""

    def attach(self, listener: StorageListener) -> None:
        """Set who gets the reports. Done once, before the first command."""

    def execute(self, command: Command) -> None:
        """Queue a command. Never blocks and never raises; a failure comes to the listener."""

    def read(self, command: ReadCommand) -> Awaitable[bytes]:
        """The batches, b"" when there are none. Raises OSError, which has come to the listener too; KeyError for a deleted segment."""

    async def read_producers(self, offset: int, segments: Sequence[int]) -> list[ProducerEntry]:
        """States of producers at this offset, by the latest snapshot and the batches after it, when what is queued now is executed.

        `segments` are the base offsets of the log. Raises OSError, which has come to the listener too; CorruptRecords; KeyError for a
        deleted log or segment.
        """

    async def drain(self) -> None:
        """Wait until what is queued now is executed, or has failed."""


class StorageListener(Protocol):
    """What a storage reports to its log, on the loop."""

    def written(self, next_offset: int) -> None:
        """Everything before this offset is written. Not called for appends that a Truncate or StartAt behind them in the queue cuts off."""

    def flushed(self, offset: int) -> None:
        """Everything before this offset is forced to disk; never beyond where a Truncate or StartAt behind it in the queue ends the log."""

    def failed(self, error: OSError) -> None:
        """A command failed; nothing is executed any more."""


# What is loaded


@dataclasses.dataclass(slots=True)
class LoadedSegment:
    """A segment as it was found on disk. The index arrays have the same length pairwise and rise."""

    base_offset: int
    size: int
    created_ms: int
    """When the file was made or last changed: it counts where no record has a timestamp."""
    rolling_timestamp: int = -1
    """Largest timestamp of the first batch, -1 when there is none."""
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
    """The cleaner has compacted everything before it."""


class LoadRules(NamedTuple):
    """What the configs of a topic and of the broker say about loading a log."""

    index_interval_bytes: int = 4096
    """Between entries of indexes that are built again."""
    producers_after_ms: int = -(2**63)
    """Producers of a snapshot that were idle since then or longer are forgotten, unless a transaction of theirs is open."""


ReadLoadRules = Callable[[Collection[str]], Awaitable[Mapping[str, LoadRules]]]
"""Topics → the rules for their logs. Raises ApiError when configs cannot be read at the moment."""


class DirectorySpace(NamedTuple):
    """A directory as DescribeLogDirs shows it. Bytes are -1 where they cannot be had."""

    path: str
    is_offline: bool
    total_bytes: int
    usable_bytes: int


class Directories(Protocol):
    """The log directories of one broker."""

    async def start(self, read_rules: ReadLoadRules | None = None) -> None:
        """Load all logs that are found, by the default rules without `read_rules`, which may raise ApiError."""

    def with_records(self) -> Mapping[tuple[str, int], bytes]:
        """The logs found that have records or had some: (topic, partition) → topic id, zero when it has none."""

    async def open(self, topic: str, partition: int, topic_id: bytes, is_new: bool) -> tuple[Storage, LoadedLog]:
        """The storage of a log, without a listener yet, and what is on disk of it; its folder is made if there is none.

        Raises ApiError(KAFKA_STORAGE_ERROR) when no directory is well, or when `is_new` is false, there is no folder and one has failed.
        """

    def path_of(self, topic: str, partition: int) -> str | None:
        """The directory that has a log, None when there is none."""

    async def space(self) -> list[DirectorySpace]:
        """All directories with the space on their volumes."""

    def move(self, topic: str, partition: int, path: str) -> None:
        """Move a log to another directory, in the background. To the directory where it is: a move that is under way ends."""

    def target_of(self, topic: str, partition: int) -> str | None:
        """The directory that a log moves to at present, None when it stays."""

    def delete(self, topic: str, partition: int) -> None:
        """Remove a log: its folder is renamed at once and removed later. What is queued for it is dropped."""

    def checkpoint(self, offsets: Sequence[tuple[str, int, int, int]]) -> Awaitable[None]:
        """Write the checkpoints of all directories: (topic, partition, log start offset, high watermark) each; recovery points it knows."""

    def cleaned(self, topic: str, partition: int, clean_offset: int) -> None:
        """The cleaner has compacted a log up to this offset; the next checkpoints say so."""

    async def close(self, offsets: Sequence[tuple[str, int, int, int]]) -> None:
        """Wait until all queues are empty, write the checkpoints as `checkpoint` does, and say that this was a clean stop."""
