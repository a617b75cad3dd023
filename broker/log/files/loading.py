"""Loads a log from its folder when a broker starts, and recovers it if the last shutdown was not clean. Runs in a thread.

First an unfinished replacement of segments is completed or undone: `.deleted` and `.cleaned` files are removed; a complete `.swap` file
becomes the segment, an incomplete one is renamed. After a clean shutdown all files are used as they are; only the end of the active segment
is read, after its last index entry. Otherwise batches from the recovery point on are read and their CRCs checked. The log is truncated
before the first invalid or incomplete batch, and later segments are removed. Indexes of these segments, leader epochs and producer states
are rebuilt from the batches. A missing or inconsistent index is always rebuilt, and so are leader epochs whose file cannot be read.

Messages of magic 0 and 1 are refused, and no file is changed for them.

Every damage that is repaired or ignored is logged, with the file and the consequence. Files that do not belong to a log are not touched.

Source: `LogLoader`, `LogSegment.recover` and `ProducerStateManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
import os
from array import array
from typing import NamedTuple

from klamm.broker.log.files import indexes, names
from klamm.broker.log.files.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    CorruptCheckpoint,
    encode_leader_epochs,
    read_leader_epochs,
)
from klamm.broker.log.files.log_files import LogFiles, snapshot_entries
from klamm.broker.log.files.marker_files import PARTITION_METADATA
from klamm.broker.log.files.producer_replay import active, latest_snapshot, replayed, snapshot_offsets, states_at, take
from klamm.broker.log.files.producer_snapshot import encode_snapshot
from klamm.broker.log.producers import REMEMBERED_BATCHES, ProducerStates
from klamm.broker.log.scan import each_batch, first_header, old_message_at
from klamm.broker.log.storage import AbortedTransaction, BatchMetadata, EpochEntry, LoadedLog, LoadedSegment, LoadRules, ProducerEntry
from klamm.machine.replaced_file import remove_temporaries, replace_file
from klamm.machine.system_calls import cut_file, read_file, remove, write_file
from klamm.protocol.records.batch import MAGIC, BatchHeader, CorruptRecords, computed_crc

log = logging.getLogger(__name__)

TAIL_BYTES = 128 << 10
"""Bytes at the end of a log that are read for earlier batches of producers."""
UNREADABLE = ".unreadable"
"""Suffix that is added to the name of an unusable file, which is kept."""


class Checkpoints(NamedTuple):
    """The offsets of one log in the checkpoint files of the directory; 0 if there is none."""

    log_start_offset: int = 0
    recovery_point: int = 0
    high_watermark: int = 0


def load_log(folder: str, checkpoints: Checkpoints, is_clean: bool, rules: LoadRules = LoadRules()) -> LoadedLog:
    """Load the log in `folder`, and repair its files. `is_clean`: the last shutdown was clean. Raises OSError, CorruptRecords."""
    return _Loading(folder, checkpoints, is_clean, rules).load()


def new_log(folder: str) -> LoadedLog:
    """What `load_log` returns for a log whose folder was just made, with one empty segment. Raises OSError."""
    created_ms = os.stat(f"{folder}/{names.segment_name(0, names.LOG_SUFFIX)}").st_mtime_ns // 1_000_000
    return LoadedLog([LoadedSegment(0, 0, created_ms)], 0, 0, 0, 0, [], [])


class _Loading:
    def __init__(self, folder: str, checkpoints: Checkpoints, is_clean: bool, rules: LoadRules) -> None:
        self.folder = folder
        self.rules = rules
        self.checkpoints = checkpoints
        self.is_clean = is_clean
        self.files = LogFiles(folder, 0)
        self.segments: list[LoadedSegment] = []
        self.epochs: list[EpochEntry] = []
        self.are_epochs_lost = False
        """Whether there are no leader epochs on disk."""
        self.is_changed = False
        """Whether there were segments that a clean shutdown would not leave."""

    def load(self) -> LoadedLog:
        finish_swaps(self.folder)
        remove_temporaries(self.folder, (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA))
        self.epochs = self._read_epochs()
        bases = self._segments_in_folder()
        for base_offset in bases:
            self.segments.append(self._load_segment(base_offset))
        if not self.is_clean:
            self._recover_from(self.checkpoints.recovery_point)
        start = self.checkpoints.log_start_offset
        if self.segments:
            start = max(start, self.segments[0].base_offset)
        next_offset = self._next_offset(start)
        if next_offset < self.checkpoints.high_watermark:
            log.warning(
                "%s: the log ends at %d, before its high watermark %d of replication-offset-checkpoint: what was between is not here",
                self.folder, next_offset, self.checkpoints.high_watermark,
            )
        if self.segments and start > next_offset:
            log.warning("%s: the log start offset %d is beyond the end %d; the log starts again there", self.folder, start, next_offset)
            for segment in self.segments:
                self._remove(segment.base_offset)
            self.segments = []
            next_offset = start
        if not self.segments:
            self.files.create_segment(start)
            self.segments.append(self._empty(start))
            next_offset = start
        for segment in self.segments:
            self._set_rolling_timestamp(segment)
        if self.are_epochs_lost:
            self._build_epochs()
        self._put_epochs_in_order(start, next_offset)
        producers = self._producers(start, next_offset)
        recovery_point = next_offset if self.is_clean and not self.is_changed else min(self.checkpoints.recovery_point, next_offset)
        return LoadedLog(
            segments=self.segments,
            next_offset=next_offset,
            log_start_offset=start,
            high_watermark=max(start, min(self.checkpoints.high_watermark, next_offset)),
            recovery_point=recovery_point,
            epochs=self.epochs,
            producers=producers,
        )

    # --- segments

    def _segments_in_folder(self) -> list[int]:
        listed = set(os.listdir(self.folder))
        bases = {int(name.removesuffix(names.LOG_SUFFIX)) for name in listed if names.is_named_by_offset(name, names.LOG_SUFFIX)}
        for name in sorted(listed):
            suffix = os.path.splitext(name)[1]
            if suffix not in names.SEGMENT_SUFFIXES:
                continue
            if not names.is_named_by_offset(name, suffix):
                log.warning("%s: %s is left alone and not read: its name is not the offset of a segment", self.folder, name)
            elif names.base_offset_of(name) not in bases:
                log.warning("%s: %s has no segment and is removed", self.folder, name)
                remove(f"{self.folder}/{name}")
        return sorted(bases)

    def _empty(self, base_offset: int) -> LoadedSegment:
        status = os.stat(self.files.path(base_offset, names.LOG_SUFFIX))
        return LoadedSegment(base_offset, status.st_size, status.st_mtime_ns // 1_000_000)

    def _load_segment(self, base_offset: int) -> LoadedSegment:
        """Load a segment from its indexes, or from its batches if the indexes are invalid."""
        segment = self._empty(base_offset)
        try:
            self._take_indexes(segment)
        except (FileNotFoundError, indexes.CorruptIndex) as error:
            log.warning("%s: the indexes of segment %d are built again: %s", self.folder, base_offset, error)
            self.is_changed = True
            self._rebuild(segment)
        return segment

    def _take_indexes(self, segment: LoadedSegment) -> None:
        base = segment.base_offset
        path = self.files.path(base, names.INDEX_SUFFIX)
        offsets = indexes.read_offset_index(read_file(path), base, segment.size)
        time_path = self.files.path(base, names.TIME_INDEX_SUFFIX)
        times = indexes.read_time_index(read_file(time_path), base)
        aborted_path = self.files.path(base, names.TXN_INDEX_SUFFIX)
        if os.path.exists(aborted_path):
            segment.aborted = indexes.read_aborted(read_file(aborted_path), base)
        cut_file(path, len(offsets) * indexes.OFFSET_ENTRY.size)
        cut_file(time_path, len(times) * indexes.TIME_ENTRY.size)
        if offsets:
            segment.index_offsets, segment.index_positions = (array("q", column) for column in zip(*offsets, strict=True))
        if times:
            segment.time_index_timestamps, segment.time_index_offsets = (array("q", column) for column in zip(*times, strict=True))
            segment.max_timestamp, segment.offset_of_max_timestamp = times[-1]

    def _set_rolling_timestamp(self, segment: LoadedSegment) -> None:
        if not segment.size:
            return
        header = self._first_header(segment)
        if header is None or header.magic < MAGIC:
            self._refuse_old_messages(segment, 0)
        else:
            segment.rolling_timestamp = header.max_timestamp

    def _refuse_old_messages(self, segment: LoadedSegment, position: int) -> None:
        """Raises CorruptRecords if the bytes at this position of a segment are a message of magic 0 or 1. They are whole, but Klamm cannot
        read them; so they must not be cut.
        """
        path = self.files.path(segment.base_offset, names.LOG_SUFFIX)
        magic = old_message_at(path, position)
        if magic is not None:
            raise CorruptRecords(
                f"{os.path.basename(path)} has messages of magic {magic} at {position}, the format of Apache Kafka before 0.11. Klamm "
                "cannot read it from files. Its bytes were not changed. Write the records again in the present format, or remove the folder"
            )

    def _next_offset(self, start: int) -> int:
        """The offset after the last batch, which is searched from the last index entry of the active segment on."""
        if not self.segments:
            return start
        active = self.segments[-1]
        position = active.index_positions[-1] if active.index_positions else 0
        next_offset, end = active.base_offset, position
        path = self.files.path(active.base_offset, names.LOG_SUFFIX)
        try:
            for batch in each_batch(path, position):
                if batch.header.base_offset < next_offset:
                    raise CorruptRecords(f"offset {batch.header.base_offset} where {next_offset} is due")
                next_offset, end = batch.header.next_offset, batch.end
                if batch.header.max_timestamp > active.max_timestamp:
                    active.max_timestamp, active.offset_of_max_timestamp = batch.header.max_timestamp, batch.header.last_offset
        except CorruptRecords as error:
            if end == position > 0:
                why = f"no batch at {end}, which they name"
                log.warning("%s: the indexes of segment %d are built again: %s", self.folder, active.base_offset, why)
                self.is_changed = True
                self._rebuild(active)
                return self._next_offset(start)
            log.warning("%s: segment %d ends at %d: %s", self.folder, active.base_offset, end, error)
        if end < active.size:
            self._refuse_old_messages(active, end)
            log.warning("%s: %d bytes behind the last whole batch of the last segment are cut", self.folder, active.size - end)
            self.is_changed = True
            os.truncate(path, end)
            active.size = end
        return next_offset

    # --- recovery

    def _recover_from(self, recovery_point: int) -> None:
        """Read all batches of segments that may be incomplete on disk; the log ends before the first invalid one."""
        holding = [s for s in self.segments if s.base_offset <= recovery_point]
        first = holding[-1].base_offset if holding else recovery_point
        for position, segment in enumerate(self.segments):
            if segment.base_offset < first:
                continue
            cut = self._rebuild(segment)
            if cut:
                for later in self.segments[position + 1 :]:
                    log.warning("%s: segment %d is removed: it comes after the end of the log", self.folder, later.base_offset)
                    self._remove(later.base_offset)
                del self.segments[position + 1 :]
                return

    def _rebuild(self, segment: LoadedSegment) -> int:
        """Rebuild the indexes of a segment from its batches. Returns the number of bytes truncated from its end."""
        path = self.files.path(segment.base_offset, names.LOG_SUFFIX)
        states = ProducerStates(states_at(self.files, self._bases(), segment.base_offset, self.rules.producers_after_ms))
        offsets: list[tuple[int, int]] = []
        times: list[tuple[int, int]] = []
        aborted: list[AbortedTransaction] = []
        max_timestamp = offset_of_max = last_indexed = -1
        end = 0
        last_offset = segment.base_offset - 1
        try:
            for batch in each_batch(path):
                header = batch.header
                if computed_crc(batch.block, batch.at, header.size) != header.crc:
                    raise CorruptRecords(f"wrong CRC at offset {header.base_offset}")
                if header.base_offset <= last_offset or header.last_offset < header.base_offset:
                    raise CorruptRecords(f"offset {header.base_offset} after {last_offset}")
                last_offset = header.last_offset
                if header.max_timestamp > max_timestamp:
                    max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
                if batch.position - max(last_indexed, 0) > self.rules.index_interval_bytes:
                    offsets.append((header.last_offset, batch.position))
                    last_indexed = batch.position
                    if not times or max_timestamp > times[-1][0]:
                        times.append((max_timestamp, offset_of_max))
                if header.leader_epoch >= 0 and (not self.epochs or header.leader_epoch > self.epochs[-1].epoch):
                    self.epochs.append(EpochEntry(header.leader_epoch, header.base_offset))
                ended = take(states, batch)
                if ended is not None:
                    aborted.append(ended)
                end = batch.end
        except CorruptRecords as error:
            log.warning("%s: segment %d is cut at %d of %d bytes: %s", self.folder, segment.base_offset, end, segment.size, error)
        if max_timestamp >= 0 and (not times or max_timestamp > times[-1][0]):
            times.append((max_timestamp, offset_of_max))
        cut = segment.size - end
        if cut:
            self._refuse_old_messages(segment, end)
            log.info("%s: %d bytes behind the last whole batch of segment %d are cut", self.folder, cut, segment.base_offset)
            os.truncate(path, end)
        self._write_indexes(segment.base_offset, offsets, times, aborted)
        segment.size = end
        segment.index_offsets = array("q", (offset for offset, _ in offsets))
        segment.index_positions = array("q", (position for _, position in offsets))
        segment.time_index_timestamps = array("q", (timestamp for timestamp, _ in times))
        segment.time_index_offsets = array("q", (offset for _, offset in times))
        segment.max_timestamp, segment.offset_of_max_timestamp, segment.aborted = max_timestamp, offset_of_max, aborted
        return cut

    def _write_indexes(
        self,
        base_offset: int,
        offsets: list[tuple[int, int]],
        times: list[tuple[int, int]],
        aborted: list[AbortedTransaction],
    ) -> None:
        write_file(self.files.path(base_offset, names.INDEX_SUFFIX), indexes.encode_offset_index(offsets, base_offset))
        write_file(self.files.path(base_offset, names.TIME_INDEX_SUFFIX), indexes.encode_time_index(times, base_offset))
        path = self.files.path(base_offset, names.TXN_INDEX_SUFFIX)
        if aborted:
            write_file(path, indexes.encode_aborted(aborted))
        else:
            remove(path)

    def _remove(self, base_offset: int) -> None:
        for suffix in names.SEGMENT_SUFFIXES:
            remove(self.files.path(base_offset, suffix))

    # --- leader epochs

    def _read_epochs(self) -> list[EpochEntry]:
        path = f"{self.folder}/{LEADER_EPOCH_CHECKPOINT}"
        epochs: list[EpochEntry] = []
        try:
            epochs = [EpochEntry(*entry) for entry in read_leader_epochs(read_file(path))]
        except FileNotFoundError:
            pass  # the batches show whether that is an error
        except CorruptCheckpoint as error:
            log.warning("%s: %s cannot be read: %s", self.folder, LEADER_EPOCH_CHECKPOINT, error)
        self.are_epochs_lost = not epochs
        return epochs

    def _build_epochs(self) -> None:
        """Read the leader epochs from the batches. If the first batch has no epoch, as in old formats, the log has no epochs."""
        first = next((header for segment in self.segments if (header := self._first_header(segment)) is not None), None)
        if first is None or first.leader_epoch < 0:
            return
        epochs: list[EpochEntry] = []
        for segment in self.segments:
            try:
                for batch in each_batch(self.files.path(segment.base_offset, names.LOG_SUFFIX)):
                    if batch.header.leader_epoch > (epochs[-1].epoch if epochs else -1):
                        epochs.append(EpochEntry(batch.header.leader_epoch, batch.header.base_offset))
            except CorruptRecords as error:
                log.warning("%s: segment %d is read for its leader epochs up to a damage: %s", self.folder, segment.base_offset, error)
        log.warning("%s: no leader epoch is known by %s; they are taken from the batches: %s", self.folder, LEADER_EPOCH_CHECKPOINT,
                    ", ".join(f"epoch {entry.epoch} from {entry.start_offset}" for entry in epochs))
        self.epochs = epochs

    def _first_header(self, segment: LoadedSegment) -> BatchHeader | None:
        return first_header(self.files.path(segment.base_offset, names.LOG_SUFFIX))

    def _put_epochs_in_order(self, start: int, next_offset: int) -> None:
        """Truncate the epochs at both ends to the log: none begins at the log end or later, or before the log start. Writes the file."""
        before = self.epochs
        kept = [entry for entry in before if entry.start_offset < next_offset]
        older = [entry for entry in kept if entry.start_offset <= start]
        if older:
            kept = [EpochEntry(older[-1].epoch, start), *kept[len(older) :]]
        self.epochs = kept
        path = f"{self.folder}/{LEADER_EPOCH_CHECKPOINT}"
        if kept != before or (kept and (self.are_epochs_lost or not self.is_clean)):
            replace_file(path, encode_leader_epochs(kept), flush=False)

    # --- producers

    def _bases(self) -> list[int]:
        return [segment.base_offset for segment in self.segments]

    def _with_earlier_batches(self, entries: list[ProducerEntry]) -> list[ProducerEntry]:
        """The states of a snapshot, with earlier batches of each producer that are at the end of the log.

        A snapshot only has the last batch. A producer with several requests in flight repeats them all after a restart. Without the earlier
        batches the first ones would be refused, as in Apache Kafka.
        """
        if not any(entry.batches for entry in entries):
            return entries
        seen: dict[tuple[int, int], list[BatchMetadata]] = {}
        left = TAIL_BYTES
        tails = []
        for segment in reversed(self.segments):
            indexed = [position for position in segment.index_positions if position <= segment.size - left]
            tails.append((segment.base_offset, indexed[-1] if indexed else 0))
            left -= segment.size
            if left <= 0:
                break
        for base_offset, position in reversed(tails):
            for batch in each_batch(self.files.path(base_offset, names.LOG_SUFFIX), position):
                header = batch.header
                if header.producer_id >= 0 and not header.is_control:
                    metadata = BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
                    seen.setdefault((header.producer_id, header.producer_epoch), []).append(metadata)
        more = []
        for entry in entries:
            batches = tuple(seen.get((entry.producer_id, entry.epoch), ())[-REMEMBERED_BATCHES:])
            is_same = batches and entry.batches and batches[-1].last_offset == entry.batches[-1].last_offset
            more.append(entry._replace(batches=batches) if is_same else entry)
        return more

    def _producers(self, start: int, next_offset: int) -> list[ProducerEntry]:
        """The producer states at the log end, of producers that are not idle for too long. Snapshots above it, or of missing segments, are
        removed.

        Apache Kafka forgets idle producers when it loads a snapshot. After a kill it writes one at the log end first.
        """
        bases = {segment.base_offset for segment in self.segments}
        offsets = snapshot_offsets(self.folder)
        latest = max((offset for offset in offsets if offset <= next_offset), default=-1)
        for offset in offsets:
            if offset > next_offset or (offset not in bases and offset != latest):
                remove(self.files.path(offset, names.SNAPSHOT_SUFFIX))
        found, entries = latest_snapshot(self.files, next_offset, self.rules.producers_after_ms)
        if found == next_offset:
            return self._with_earlier_batches(entries)
        states = replayed(self.files, self._bases(), found, entries, next_offset)
        if next_offset > start and not self.is_clean:
            write_file(self.files.path(next_offset, names.SNAPSHOT_SUFFIX), encode_snapshot(snapshot_entries(states)))
            return active(states, self.rules.producers_after_ms)
        return states


def finish_swaps(folder: str) -> None:
    """Complete or undo a replacement of segments that the end of the process has interrupted.

    Raises CorruptRecords, without a change, if a `.swap` file cannot be read and the replaced segments are renamed already.
    """
    listed = os.listdir(folder)
    cleaned = [names.base_offset_of(name) for name in listed if name.endswith(names.CLEANED_SUFFIX)]
    from_cleaned = min((offset for offset in cleaned if offset is not None), default=None)
    unfinished: list[str] = []
    swaps: dict[int, list[str]] = {}
    for name in listed:
        if name.endswith((names.DELETED_SUFFIX, names.CLEANED_SUFFIX)):
            unfinished.append(name)
        elif name.endswith(names.SWAP_SUFFIX):
            base_offset = names.base_offset_of(name)
            if base_offset is None or (from_cleaned is not None and base_offset >= from_cleaned):
                unfinished.append(name)  # an incomplete split or cleaning
            else:
                swaps.setdefault(base_offset, []).append(name)
    whole: dict[int, int] = {}
    for base_offset in sorted(swaps):
        segment = names.segment_name(base_offset, names.LOG_SUFFIX)
        swap = segment + names.SWAP_SUFFIX
        if swap not in listed:
            continue
        try:
            whole[base_offset] = _last_offset(f"{folder}/{swap}", base_offset)
        except CorruptRecords as error:
            if segment not in listed:
                raise CorruptRecords(f"{swap} is not whole ({error}), and there is no {segment}") from error
            log.warning("%s: %s is not whole and gets the name %s: %s. The segments that it should replace stay as they are",
                        folder, swap, swap + UNREADABLE, error)
            for name in swaps.pop(base_offset):
                os.replace(f"{folder}/{name}", f"{folder}/{name}{UNREADABLE}")
    for name in unfinished:
        remove(f"{folder}/{name}")
    for base_offset, files in swaps.items():
        if base_offset in whole:
            _remove_segments(folder, base_offset, whole[base_offset])
        for name in sorted(files):
            os.replace(f"{folder}/{name}", f"{folder}/{name.removesuffix(names.SWAP_SUFFIX)}")


def _last_offset(path: str, base_offset: int) -> int:
    """The last offset of a cleaned segment, its base offset if it has no batch. Raises CorruptRecords if the file has other bytes."""
    last_offset, end = base_offset - 1, 0
    for batch in each_batch(path):
        header = batch.header
        if computed_crc(batch.block, batch.at, header.size) != header.crc:
            raise CorruptRecords(f"wrong CRC at offset {header.base_offset}")
        if header.base_offset <= last_offset:
            raise CorruptRecords(f"offset {header.base_offset} after {last_offset}")
        last_offset, end = header.last_offset, batch.end
    if end != os.path.getsize(path):
        raise CorruptRecords(f"no whole batch at {end}")
    return max(last_offset, base_offset)


def _remove_segments(folder: str, first: int, last: int) -> None:
    """Remove the segments with base offsets from `first` to `last`."""
    for name in os.listdir(folder):
        offset = names.base_offset_of(name)
        if os.path.splitext(name)[1] in names.SEGMENT_SUFFIXES and offset is not None and first <= offset <= last:
            remove(f"{folder}/{name}")
