"""The states of producers as they follow from batches that were found on disk.

Apache Kafka rebuilds them after an unclean end from the last producer snapshot and the batches behind it. Batches in a log were validated
when they were appended, so nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as TooShort
from typing import NamedTuple

from klamm.broker.log.files.producer_snapshot import SnapshotEntry
from klamm.broker.log.storage import AbortedTransaction, BatchMetadata, ProducerEntry
from klamm.protocol.records.batch import HEADER_SIZE, BatchHeader

KEPT = 5
"""Batches remembered of each producer."""
_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """The end of a transaction as a control batch says it."""

    is_abort: bool
    coordinator_epoch: int


class Replay:
    """States by producer id, starting from those of a snapshot."""

    def __init__(self, entries: Iterable[SnapshotEntry] = ()) -> None:
        self._states = {entry.producer_id: _of_snapshot(entry) for entry in entries}

    def entries(self) -> list[ProducerEntry]:
        """All states."""
        return list(self._states.values())

    def add(self, header: BatchHeader, block: bytes, at: int) -> AbortedTransaction | None:
        """Take the batch at `at` of `block`; the entry of the transaction index when it ends an aborted transaction."""
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        state = self._states.get(producer_id)
        if state is None or header.producer_epoch != state.epoch:
            coordinator_epoch = -1 if state is None else state.coordinator_epoch
            opened = -1 if state is None else state.open_first_offset
            state = ProducerEntry(producer_id, header.producer_epoch, coordinator_epoch, opened, -1, ())
        aborted = None
        if header.is_control:
            marker = read_marker(block, at)
            if marker is not None:
                if marker.is_abort and state.open_first_offset >= 0:
                    aborted = AbortedTransaction(
                        producer_id, state.open_first_offset, header.last_offset, self._stable_after(producer_id, header)
                    )
                state = state._replace(
                    coordinator_epoch=marker.coordinator_epoch, open_first_offset=-1, last_timestamp=header.max_timestamp
                )
        else:
            batch = BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            opened = state.open_first_offset
            if header.is_transactional and opened < 0:
                opened = header.base_offset
            state = state._replace(
                open_first_offset=opened, last_timestamp=header.max_timestamp, batches=(*state.batches[1 - KEPT :], batch)
            )
        self._states[producer_id] = state
        return aborted

    def _stable_after(self, producer_id: int, header: BatchHeader) -> int:
        """The last stable offset when the transaction of this producer has ended with this marker."""
        opened = [s.open_first_offset for s in self._states.values() if s.open_first_offset >= 0 and s.producer_id != producer_id]
        return min(opened, default=header.next_offset)


def read_marker(block: bytes, at: int) -> Marker | None:
    """The marker in the control batch at `at`, None for a control batch of another kind."""
    try:
        position = at + HEADER_SIZE
        _, position = _varint(block, position)  # length of the record
        position += 1  # attributes
        _, position = _varint(block, position)  # timestamp
        _, position = _varint(block, position)  # offset
        _, position = _varint(block, position)  # length of the key
        _, kind = _KEY.unpack_from(block, position)
        _, position = _varint(block, position + _KEY.size)  # length of the value
        _, coordinator_epoch = _VALUE.unpack_from(block, position)
    except (IndexError, TooShort):
        return None
    return Marker(kind == _ABORT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None


def _varint(block: bytes, position: int) -> tuple[int, int]:
    """A zigzag number and the position behind it. Raises IndexError."""
    value = shift = 0
    while True:
        byte = block[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _of_snapshot(entry: SnapshotEntry) -> ProducerEntry:
    batches: tuple[BatchMetadata, ...] = ()
    if entry.last_offset >= 0:
        batches = (BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp),)
    return ProducerEntry(
        entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.txn_first_offset, entry.timestamp, batches
    )
