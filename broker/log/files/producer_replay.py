"""The producer states at an offset of a log, from its latest snapshot up to there and the batches after it. Runs in a thread.

Source: `UnifiedLog.rebuildProducerState` and `ProducerStateManager.truncateAndReload` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

from klamm.broker.log.files import names
from klamm.broker.log.files.log_files import LogFiles
from klamm.broker.log.files.producer_snapshot import CorruptSnapshot, SnapshotEntry, read_snapshot
from klamm.broker.log.producers import ProducerStates, is_active
from klamm.broker.log.scan import Scanned, each_batch
from klamm.broker.log.storage import AbortedTransaction, BatchMetadata, ProducerEntry
from klamm.machine.system_calls import read_file, remove

log = logging.getLogger(__name__)


def snapshot_offsets(folder: str) -> list[int]:
    """The offsets that have a snapshot, in increasing order."""
    found = [names.base_offset_of(name) for name in os.listdir(folder) if names.is_named_by_offset(name, names.SNAPSHOT_SUFFIX)]
    return sorted(offset for offset in found if offset is not None)


def active(entries: Iterable[ProducerEntry], after_ms: int) -> list[ProducerEntry]:
    """Those that are active after this time (ms)."""
    return [one for one in entries if is_active(one, after_ms)]


def latest_snapshot(files: LogFiles, offset: int, after_ms: int) -> tuple[int, list[ProducerEntry]]:
    """(offset, active entries) of the latest readable snapshot up to `offset`; (-1, []) if there is none."""
    for candidate in reversed(snapshot_offsets(files.folder)):
        if candidate > offset:
            continue
        path = files.path(candidate, names.SNAPSHOT_SUFFIX)
        try:
            return candidate, active(map(_of_snapshot, read_snapshot(read_file(path))), after_ms)
        except CorruptSnapshot as error:
            log.warning("%s: snapshot %d is removed: %s", files.folder, candidate, error)
            remove(path)
    return -1, []


def replayed(files: LogFiles, segments: Sequence[int], offset: int, entries: list[ProducerEntry], until: int) -> list[ProducerEntry]:
    """The states at `until`, from the entries of a snapshot and the batches from its offset on. `segments` are base offsets.

    Raises OSError, CorruptRecords.
    """
    states = ProducerStates(entries)
    for position, base_offset in enumerate(segments):
        following = segments[position + 1] if position + 1 < len(segments) else until
        if following <= offset or base_offset >= until:
            continue
        for batch in each_batch(files.path(base_offset, names.LOG_SUFFIX)):
            if batch.header.base_offset >= until:
                break
            if batch.header.base_offset >= offset:
                take(states, batch)
    return list(states.entries())


def states_at(files: LogFiles, segments: Sequence[int], offset: int, after_ms: int) -> list[ProducerEntry]:
    """The states at an offset, from a snapshot without producers that are idle since `after_ms`. Raises OSError, CorruptRecords."""
    found, entries = latest_snapshot(files, offset, after_ms)
    return entries if found == offset else replayed(files, segments, found, entries, offset)


def states_in_thread(files: LogFiles, segments: Sequence[int], offset: int, after_ms: int) -> list[ProducerEntry]:
    """See `Storage.read_producers`."""
    try:
        return states_at(files, segments, offset, after_ms)
    except FileNotFoundError as gone:
        raise KeyError(offset) from gone


def take(states: ProducerStates, batch: Scanned) -> AbortedTransaction | None:
    """Apply a batch to the states; returns the entry of the transaction index if the batch aborts a transaction."""
    return states.take(batch.header, batch.block, batch.at) if batch.header.producer_id >= 0 else None


def _of_snapshot(entry: SnapshotEntry) -> ProducerEntry:
    batches: tuple[BatchMetadata, ...] = ()
    if entry.last_offset >= 0:
        batches = (BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp),)
    return ProducerEntry(
        entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.txn_first_offset, entry.timestamp, batches
    )
