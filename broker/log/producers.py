"""The producer states of a log: epochs of producers, sequence numbers of their last five batches, and open transactions.

A leader checks a client's batch before it appends it. A batch that equals one of the last five is a duplicate and gets the offsets of the
first one. A gap in the sequence gets OUT_OF_ORDER_SEQUENCE_NUMBER, an older epoch INVALID_PRODUCER_EPOCH; a new epoch begins with sequence
0. An unknown producer id may begin with any sequence, because its batches may have been deleted. A follower accepts what its leader
accepted.

The last stable offset is the first offset of the oldest transaction that is open or whose marker is not replicated yet. Batches above the
high watermark are remembered in addition to the five, so that most truncations to the high watermark or later can restore the former
states. If they cannot (the states were loaded from files at a later offset, an epoch or a marker is removed, or the truncation is below the
high watermark), `truncate_to` returns False, and the log reads the states again from its records.

Source: `ProducerStateManager`, `ProducerAppendInfo`, `ProducerStateEntry` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klamm.broker.log.storage import AbortedTransaction, BatchMetadata, ProducerEntry
from klamm.broker.log.transaction_markers import Marker, read_marker
from klamm.broker.log.verifications import Verifications
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH
from klamm.protocol.records.batch import LAST_SEQUENCE, TRANSACTIONAL, BatchHeader, Buffer, each_header

REMEMBERED_BATCHES = 5
_MOST_BATCHES = 255
_NO_SEQUENCE = -1
_NONE = 2**63


class _Producer:
    """The state of one producer id. `open_first_offset` is -1 without an open transaction."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "has_past", "last_timestamp", "open_first_offset")

    def __init__(self, epoch: int = NO_EPOCH, coordinator_epoch: int = -1, open_first_offset: int = -1, last_timestamp: int = -1) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.open_first_offset = open_first_offset
        self.last_timestamp = last_timestamp
        self.batches: list[BatchMetadata] = []
        self.has_past = False
        """Whether it had earlier batches, or an earlier epoch."""

    def take_epoch(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.has_past = self.has_past or bool(self.batches)
            self.batches.clear()
            self.epoch = epoch


def is_active(producer: _Producer | ProducerEntry, after_ms: int) -> bool:
    """Whether it has an open transaction, or did something after this time."""
    return producer.open_first_offset >= 0 or producer.last_timestamp > after_ms


class OpenTransaction(NamedTuple):
    """A transaction that is open in a log. `coordinator_epoch` is that of the producer's last marker, -1 if it had none."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int


class _Completed(NamedTuple):
    """A transaction whose marker may not be replicated yet."""

    producer_id: int
    first_offset: int
    last_offset: int


class ProducerStates:
    """The producer states of one log."""

    __slots__ = ("_completed", "_first_completed", "_high_watermark", "_last_marker", "_loaded_at", "_open", "_producers")

    def __init__(self, entries: Iterable[ProducerEntry] = (), loaded_at: int = 0) -> None:
        """`entries` are the states at the offset `loaded_at`."""
        self._completed: list[_Completed] = []
        self._first_completed = _NONE
        """The smallest first offset of these transactions."""
        self._high_watermark = 0
        self._take(entries, loaded_at)

    def _take(self, entries: Iterable[ProducerEntry], loaded_at: int) -> None:
        self._producers: dict[int, _Producer] = {}
        self._open: dict[int, int] = {}
        """First offset of an open transaction → producer id, in increasing order of offsets."""
        self._loaded_at = loaded_at
        self._last_marker = -1
        for entry in sorted(entries, key=_open_first_offset):
            producer = _Producer(entry.epoch, entry.coordinator_epoch, entry.open_first_offset, entry.last_timestamp)
            producer.batches.extend(entry.batches)
            producer.has_past = not entry.batches
            self._producers[entry.producer_id] = producer
            if entry.open_first_offset >= 0:
                self._open[entry.open_first_offset] = entry.producer_id

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered: no producer, and no transaction that holds the last stable offset."""
        return not self._producers and not self._completed

    # --- checks of a leader

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch among the last five with the same epoch and sequence numbers, None if there is none."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in producer.batches[-REMEMBERED_BATCHES:]:
            if batch.last_sequence == last and _first_sequence(batch) == first:
                return batch
        return None

    def check(self, header: BatchHeader, is_client: bool, verifications: Verifications | None = None) -> None:
        """Check a data batch of a client or a coordinator before it is appended. Raises ApiError.

        Of the batches that wait for `verifications` the one with the lowest sequence number is appended first.
        """
        producer = self._producers.get(header.producer_id)
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer is not None and epoch < producer.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {producer.epoch}",
            )
        if is_client and verifications is not None:
            verifications.check_sequence(producer_id, header.base_sequence)
        if producer is None:
            return
        if is_client:
            self._check_sequence(producer, header)
        if producer.open_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {producer_id}")

    def _check_sequence(self, producer: _Producer, header: BatchHeader) -> None:
        first = header.base_sequence
        if producer.epoch == NO_EPOCH:
            return
        if header.producer_epoch != producer.epoch:
            if first != 0:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {header.producer_id}: {header.producer_epoch} (request epoch), "
                    f"{first} (seq. number), {producer.epoch} (current producer epoch)",
                )
            return
        last = producer.batches[-1].last_sequence if producer.batches else _NO_SEQUENCE
        if first != last + 1 and not (first == 0 and last == LAST_SEQUENCE):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id}: {first} (incoming seq. number), "
                f"{last} (current end sequence number)",
            )

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Check the marker of a coordinator. Raises ApiError."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if producer.coordinator_epoch > marker.coordinator_epoch:
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    # --- appends

    def take(self, header: BatchHeader, data: Buffer, position: int = 0) -> AbortedTransaction | None:
        """Apply a batch with a producer id, which was appended or read again from the log. Returns the entry of the transaction index if it
        is an abort marker.
        """
        if not header.is_control:
            self.appended(header)
            return None
        marker = read_marker(data, header, position)
        return None if marker is None else self.marker_appended(header, marker)

    def take_all(self, data: bytes) -> int | None:
        """Apply all batches of a producer in these bytes; returns the offset after the last batch, None if there is none."""
        offset = None
        for position, header in each_header(data):
            offset = header.next_offset
            if header.producer_id >= 0:
                self.take(header, data, position)
        return offset

    def appended(self, header: BatchHeader) -> None:
        """Apply a data batch with a producer id that was appended."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer()
        producer.take_epoch(header.producer_epoch)
        batches = producer.batches
        batches.append(BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp))
        if len(batches) > REMEMBERED_BATCHES and (
            batches[REMEMBERED_BATCHES].last_offset < self._high_watermark or len(batches) > _MOST_BATCHES
        ):
            del batches[0]
            producer.has_past = True
        producer.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL and producer.open_first_offset < 0:
            producer.open_first_offset = header.base_offset
            self._open[header.base_offset] = header.producer_id

    def marker_appended(self, header: BatchHeader, marker: Marker) -> AbortedTransaction | None:
        """Apply a transaction marker that was appended. Returns the entry of the transaction index if it aborts an open transaction."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = _Producer()
        producer.take_epoch(header.producer_epoch)
        producer.has_past = producer.has_past or not producer.batches
        self._last_marker = header.last_offset
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = marker.timestamp
        first_offset = producer.open_first_offset
        if first_offset < 0:
            return None
        producer.open_first_offset = -1
        marker_offset = header.base_offset
        self._open.pop(first_offset, None)
        self._completed.append(_Completed(header.producer_id, first_offset, marker_offset))
        self._first_completed = min(self._first_completed, first_offset)
        last_stable_offset = next(iter(self._open), marker_offset + 1)
        if marker.is_commit:
            return None
        return AbortedTransaction(header.producer_id, first_offset, marker_offset, last_stable_offset)

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that are open, the oldest first."""
        return [
            OpenTransaction(producer_id, producer.epoch, producer.coordinator_epoch, first_offset)
            for first_offset, producer_id in self._open.items()
            if (producer := self._producers.get(producer_id)) is not None
        ]

    def is_in_transaction(self, producer_id: int) -> bool:
        """Whether a transaction of this producer is open, whatever its epoch."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.open_first_offset >= 0

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this producer and epoch is open."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.open_first_offset >= 0

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open, or whose marker is not below the high watermark; None if there is none."""
        first = min(next(iter(self._open), _NONE), self._first_completed)
        return None if first == _NONE else first

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forget completed transactions whose markers are below the high watermark: they are stable."""
        self._high_watermark = high_watermark
        if self._completed and self._completed[0].last_offset < high_watermark:
            self._keep([transaction for transaction in self._completed if transaction.last_offset >= high_watermark])

    def _keep(self, completed: list[_Completed]) -> None:
        self._completed = completed
        self._first_completed = min((transaction.first_offset for transaction in completed), default=_NONE)

    # --- the rest

    def truncate_to(self, offset: int) -> bool:
        """Forget batches at this offset or later, and producers without remaining batches.

        Returns whether these are now the exact states at the offset. If not, the caller must call `read_again`.
        """
        is_exact = offset >= self._loaded_at and offset > self._last_marker
        offset = self._start_of_batch_with(offset)
        reopened = [transaction for transaction in self._completed if transaction.last_offset >= offset > transaction.first_offset]
        self._keep([transaction for transaction in self._completed if transaction.last_offset < offset])
        for producer_id, producer in list(self._producers.items()):
            batches = producer.batches
            had = len(batches)
            while batches and batches[-1].last_offset >= offset:
                batches.pop()
            if had != len(batches) and producer.has_past and len(batches) < REMEMBERED_BATCHES:
                is_exact = False
            if had and not batches:
                del self._producers[producer_id]
                continue
            if had != len(batches):
                producer.last_timestamp = batches[-1].timestamp
            if producer.open_first_offset >= offset:
                producer.open_first_offset = -1
        for transaction in reopened:
            again = self._producers.get(transaction.producer_id)
            if again is not None:
                again.open_first_offset = transaction.first_offset
        self._open = {
            producer.open_first_offset: producer_id
            for producer_id, producer in sorted(self._producers.items(), key=_open_offset_of)
            if producer.open_first_offset >= 0
        }
        return is_exact

    def _start_of_batch_with(self, offset: int) -> int:
        """The base offset of the remembered batch that contains this offset; without one the offset itself."""
        for producer in self._producers.values():
            for batch in reversed(producer.batches):
                if batch.last_offset < offset:
                    break
                if batch.last_offset - batch.offset_delta < offset:
                    return batch.last_offset - batch.offset_delta
        return offset

    def read_again(self, entries: Iterable[ProducerEntry], offset: int) -> None:
        """Replace the states after a truncation to this offset."""
        self._take(entries, offset)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that were idle for `expiration_ms`; returns their number."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if not is_active(producer, now_ms - expiration_ms)
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def entries(self) -> tuple[ProducerEntry, ...]:
        """All producers, for a snapshot and for DescribeProducers."""
        return tuple(self._each_entry())

    def _each_entry(self) -> Iterator[ProducerEntry]:
        for producer_id, producer in self._producers.items():
            yield ProducerEntry(
                producer_id,
                producer.epoch,
                producer.coordinator_epoch,
                producer.open_first_offset,
                producer.last_timestamp,
                tuple(producer.batches[-REMEMBERED_BATCHES:]),
            )


def _first_sequence(batch: BatchMetadata) -> int:
    return (batch.last_sequence - batch.offset_delta) & LAST_SEQUENCE


def _open_first_offset(entry: ProducerEntry) -> int:
    return entry.open_first_offset


def _open_offset_of(item: tuple[int, _Producer]) -> int:
    return item[1].open_first_offset


def entries_with(states: ProducerStates, known: Iterable[ProducerEntry]) -> tuple[ProducerEntry, ...]:
    """The producers of a log in memory, from all its batches. For a producer whose batches were deleted, the `known` ones count."""
    entries = {entry.producer_id: entry for entry in states.entries()}
    for former in known:
        read = entries.get(former.producer_id)
        if former.batches and read is None:
            entries[former.producer_id] = former
        elif read is not None:
            batches = max(read.batches, former.batches, key=len)
            begun = [offset for offset in (read.open_first_offset, former.open_first_offset) if offset >= 0]
            is_open = read.open_first_offset >= 0
            entries[former.producer_id] = read._replace(batches=batches, open_first_offset=min(begun) if is_open else -1)
    return tuple(entries.values())
