"""Compaction of batches: which records the cleaner keeps in the log of a compacted topic.

A round has two passes over the same batches, in the order of offsets. `note_keys` finds the last offset of each key in the part that was
never cleaned. `clean` then returns all batches of the cleaned and the uncleaned part, without records that have a later record with the
same key, without records of aborted transactions, and without expired tombstones and transaction markers. These get a delete horizon in the
first round that could remove them, and are removed in the first round after that time. Offsets of batches do not change. A batch without
remaining records is left out, except the last batch of an active producer, which stays as an empty header with the producer's last sequence
number.

Each pass has its own `AbortedReader`, which follows the transactions. Both passes decompress and compress: run them in a thread.

Source: `Cleaner` and `CleanedTransactionMetadata` of `LogCleaner.scala`, `MemoryRecords.filterTo` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klamm.broker.log.storage import AbortedTransaction
from klamm.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    each_header,
)
from klamm.protocol.records.record import ControlType, Record, encode_batch, read_control, read_records, seal

ALL_OFFSETS = 2**63 - 1


class LastRecord(NamedTuple):
    """The last batch of an active producer in this log."""

    offset: int | None
    """Last offset of its last data batch; None if that is not known any more: then its markers keep its epoch."""
    producer_epoch: int


class CleanRules(NamedTuple):
    """The rules of one round of the cleaner. Times are in milliseconds."""

    now_ms: int
    delete_retention_ms: int
    """`delete.retention.ms`: how long tombstones and markers stay."""
    last_offset: int = ALL_OFFSETS
    """The last offset that `note_keys` has read; all records after it are kept."""
    active_producers: Mapping[int, LastRecord] = {}


class AbortedReader:
    """Follows the transactions of a log while its batches are read in the order of their offsets.

    `entries` are the entries of the transaction index from the first of these batches on. `retained` are the aborted transactions that the
    index of the cleaned log needs: those with batches that were read before the marker.
    """

    def __init__(self, entries: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(entries, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """Producer id → (transaction, whether a batch of it was read)."""
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, (entry, False))

    def read_batch(self, header: BatchHeader) -> bool:
        """Read a data batch; returns whether it is part of an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (aborted[0], True)
        return True

    def read_control(self, header: BatchHeader, kind: ControlType | None) -> bool:
        """Read a control batch with a marker, or without one (None); returns whether no batch of its transaction is left before it."""
        self._begin_up_to(header.last_offset)
        match kind:
            case None:
                return True
            case ControlType.ABORT:
                aborted = self._aborted.pop(header.producer_id, None)
                if aborted is None or not aborted[1]:
                    return True
                self.retained.append(aborted[0])
                return False
            case ControlType.COMMIT:
                has_batches = header.producer_id in self._committed
                self._committed.discard(header.producer_id)
                return not has_batches
            case _:
                return False


def _marker(data: bytes, header: BatchHeader, position: int) -> ControlType | None:
    records = read_records(data, header, position)
    return read_control(records[0])[0] if records else None


def note_keys(data: bytes, latest: dict[bytes, int], aborted: AbortedReader, most_keys: int = ALL_OFFSETS) -> int:
    """Put the last offset of each key in the whole batches of `data` into `latest`; returns the offset after them.

    If `latest` has `most_keys`, it stops before the next batch and returns its base offset. Raises the exceptions of `read_records`.
    """
    next_offset = -1
    for position, header in each_header(data):
        if len(latest) >= most_keys:
            return header.base_offset
        next_offset = header.next_offset
        if header.is_control:
            aborted.read_control(header, _marker(data, header, position))
        elif not aborted.read_batch(header):
            for record in read_records(data, header, position):
                if record.key is not None:
                    latest[record.key] = record.offset
    return next_offset


def clean(data: bytes, latest: Mapping[bytes, int], rules: CleanRules, aborted: AbortedReader) -> bytes:
    """Return the remaining batches of the whole batches in `data`; b"" if there are none. Raises the exceptions of `read_records`."""
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    for position, header in each_header(data):
        records = read_records(data, header, position)
        is_marker_without_batches = False
        if header.is_control:
            can_discard = aborted.read_control(header, read_control(records[0])[0] if records else None)
            is_marker_without_batches = can_discard
            horizon = header.delete_horizon_ms
            discards = can_discard and horizon is not None and horizon <= rules.now_ms
        else:
            discards = aborted.read_batch(header)
        is_last = _is_last_of_producer(header, rules)
        if discards and not is_last:
            continue
        kept = [] if discards else records if header.is_control else _kept_records(records, header, latest, rules)
        if kept:
            needs_horizon = header.delete_horizon_ms is None and (
                is_marker_without_batches or any(record.value is None for record in kept)
            )
            if len(kept) == len(records) and not needs_horizon:
                parts.append(view[position : position + header.size])
            else:
                horizon = rules.now_ms + rules.delete_retention_ms if needs_horizon else header.delete_horizon_ms
                parts.append(_rewritten(header, kept, horizon))
        elif is_last:
            parts.append(_emptied(header))
    return b"".join(parts)


def _is_last_of_producer(header: BatchHeader, rules: CleanRules) -> bool:
    if header.producer_id <= NO_PRODUCER_ID:
        return False
    last = rules.active_producers.get(header.producer_id)
    if last is None:
        return False
    if last.offset is not None:
        return header.last_offset == last.offset
    return header.is_control and header.producer_epoch == last.producer_epoch


def _kept_records(records: list[Record], header: BatchHeader, latest: Mapping[bytes, int], rules: CleanRules) -> list[Record]:
    horizon = header.delete_horizon_ms
    keeps_tombstones = horizon is None or rules.now_ms < horizon
    return [
        record
        for record in records
        if record.offset > rules.last_offset
        or (
            record.key is not None
            and record.offset >= latest.get(record.key, -1)
            and (record.value is not None or keeps_tombstones)
        )
    ]


def _rewritten(header: BatchHeader, records: list[Record], horizon_ms: int | None) -> bytes:
    """The batch with only these records. Its offsets and sequence numbers do not change."""
    return encode_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        codec=header.codec,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes & (TRANSACTIONAL | CONTROL) | (0 if horizon_ms is None else DELETE_HORIZON),
        base_timestamp=horizon_ms,
        append_time_ms=header.max_timestamp if header.is_log_append_time else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _emptied(header: BatchHeader) -> bytes:
    """The batch without records."""
    attributes = header.attributes & (TRANSACTIONAL | CONTROL | LOG_APPEND_TIME)
    return seal(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
