"""What a log knows of producers, and how far its records can be read: the high watermark and the last stable offset.

After a truncation the states of producers are read again, from memory or from files. Nothing can be appended until they are known.

Source: `UnifiedLog` and `ProducerStateManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LocalLog, LogEnvironment, base_offset_of
from klamm.broker.log.producers import OpenTransaction, ProducerStates, entries_with
from klamm.broker.log.storage import AbortedTransaction, BatchMetadata, ProducerEntry, Storage
from klamm.broker.log.transaction_markers import read_marker
from klamm.broker.log.verifications import Verification, Verifications
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import BatchHeader, CorruptRecords
from klamm.protocol.records.validation import Origin

log_ = logging.getLogger(__name__)

_NO_PRODUCERS = ProducerStates()
_PRODUCERS_READ = 256 * 1024


class ProducerLog(LocalLog):
    """The segments of one log, and the states of its producers."""

    __slots__ = ("_are_producers_known", "_producers", "_reading_producers", "_verifications", "high_watermark", "last_stable_offset")

    def __init__(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, environment: LogEnvironment, storage: Storage | None
    ) -> None:
        super().__init__(topic, partition, topic_id, config, environment, storage)
        self.high_watermark = self.last_stable_offset = 0
        self._producers: ProducerStates | None = None
        self._are_producers_known = True
        """False after a truncation, until the producer states have been read again."""
        self._reading_producers: asyncio.Task[None] | None = None
        self._verifications: Verifications | None = None

    def active_producers(self) -> tuple[ProducerEntry, ...]:
        """The producers that the log knows, as DescribeProducers shows them."""
        return () if self._producers is None else self._producers.entries()

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were idle for `expiration_ms`."""
        producers = self._producers
        if producers is not None:
            producers.remove_expired(now_ms, expiration_ms)
            if producers.is_empty:
                self._producers = None
        if self._verifications is not None:
            self._verifications.remove_expired(now_ms, expiration_ms)

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, adds: bool = False) -> Verification | None:
        """A verification for records of a transaction with this first sequence number; None if the producer has an open transaction here,
        which makes it superfluous. `adds`: of transactions v2, each of which has an epoch of its own."""
        if self.has_open_transaction(producer_id, epoch) if adds else self.is_in_transaction(producer_id):
            return None
        if self._verifications is None:
            self._verifications = Verifications()
        return self._verifications.begin(producer_id, epoch, sequence, now_ms)

    def check_verified(self, producer_id: int, verification: Verification | None) -> None:
        """Check that records of a transaction may be appended now: it is open here, or it was verified. Raises ApiError."""
        if not self.is_in_transaction(producer_id):
            (self._verifications or Verifications()).check(producer_id, verification)

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that are open in this log, the oldest first. They are not known while it `is_truncating`."""
        return [] if self._producers is None else self._producers.open_transactions()

    def is_in_transaction(self, producer_id: int) -> bool:
        """Whether a transaction of this producer is open in this log, whatever its epoch."""
        return self._producers is not None and self._producers.is_in_transaction(producer_id)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this producer and epoch is open in this log."""
        return self._producers is not None and self._producers.has_open_transaction(producer_id, epoch)

    def _check_producer(self, header: BatchHeader, data: bytes, origin: Origin) -> BatchMetadata | None:
        """The earlier batch of which this one is a duplicate; None if it may be appended. Raises ApiError."""
        producers, is_client = _NO_PRODUCERS if self._producers is None else self._producers, origin is Origin.CLIENT
        if is_client:
            duplicate = producers.duplicate_of(header)
            if duplicate is not None:
                return duplicate
        if header.is_control:
            marker = read_marker(data, header)
            if marker is not None:
                producers.check_marker(header, marker)
        else:
            producers.check(header, is_client, self._verifications)
        return None

    def _update_producers(self, data: bytes, headers: list[BatchHeader]) -> list[AbortedTransaction]:
        aborted: list[AbortedTransaction] = []
        producers = self._producers
        position = 0
        for header in headers:
            if header.producer_id >= 0:
                if producers is None:
                    producers = self._producers = ProducerStates()
                    producers.high_watermark_moved(self.high_watermark)
                entry = producers.take(header, data, position)
                if entry is not None:
                    aborted.append(entry)
                if self._verifications is not None and header.is_transactional:
                    self._verifications.end(header.producer_id)
            position += header.size
        if producers is not None:
            self._update_last_stable_offset()
        return aborted

    def set_high_watermark(self, offset: int) -> bool:
        """Set the high watermark, at most to the log end; returns whether it, or the last stable offset, has moved."""
        if self._producers is None and self.high_watermark < offset <= self.log_end_offset and self.log_start_offset <= offset:
            self.high_watermark = self.last_stable_offset = offset
            return True
        offset = max(min(offset, self.log_end_offset), self.log_start_offset)
        before = self.high_watermark, self.last_stable_offset
        self.high_watermark = offset
        if self._producers is not None:
            self._producers.high_watermark_moved(offset)
        self._update_last_stable_offset()
        return before != (self.high_watermark, self.last_stable_offset)

    def _update_last_stable_offset(self) -> None:
        first = None if self._producers is None else self._producers.first_unstable_offset
        high_watermark = self.high_watermark
        self.last_stable_offset = high_watermark if first is None else min(max(first, self.log_start_offset), high_watermark)

    def _read_producers(self) -> Awaitable[None] | None:
        """Read the producer states again, if a truncation made them unknown. Returns None if they are known, otherwise an awaitable.

        Nothing can be appended until then. The work continues if its caller is cancelled.
        """
        if self._are_producers_known:
            return None
        if self.storage is None and self._resident <= _PRODUCERS_READ and not any(segment.resident_from for segment in self.segments):
            states = ProducerStates()
            for segment in self.segments:
                for chunk in segment.chunks:
                    states.take_all(chunk)
            self._take_producers(entries_with(states, self.active_producers()))
            return None
        if self._reading_producers is None:
            self._reading_producers = asyncio.ensure_future(self._read_producers_from(self.storage))
        return asyncio.shield(self._reading_producers)

    def resume_reading_producers(self) -> None:
        """Read the producer states of a log whose broker has ended while they were read. Nothing can be appended until then."""
        self._read_producers()
        if self._reading_producers is not None:
            self._reading_producers.add_done_callback(lambda done: done.cancelled() or done.exception())  # it was logged

    async def _read_producers_here(self) -> Sequence[ProducerEntry]:
        """The producer states of a long log in memory, or of one that has batches in temporary files. Raises ApiError."""
        states = ProducerStates()
        for segment in list(self.segments):
            offset: int | None = segment.base_offset
            while offset is not None:
                if segment.has_in_memory(offset):
                    data = segment.chunks_from(offset, _PRODUCERS_READ)
                else:
                    data = [await self.segment_bytes(segment, offset, _PRODUCERS_READ)]
                offset = None
                for batches in data:
                    offset = states.take_all(batches)
                await asyncio.sleep(0)  # a read in memory does not wait
        return entries_with(states, self.active_producers())

    async def _read_producers_from(self, storage: Storage | None) -> None:
        """Read the producer states from files. Raises ApiError(KAFKA_STORAGE_ERROR); the next truncation tries again."""
        try:
            while not self._are_producers_known:
                offset, segments = self.next_offset, [*map(base_offset_of, self.segments)]
                try:
                    if storage is None:
                        entries: Sequence[ProducerEntry] = await self._read_producers_here()
                    else:
                        entries = await storage.read_producers(offset, segments, self.environment.producers_after_ms())
                except KeyError:
                    if segments == [*map(base_offset_of, self.segments)]:
                        return  # the log was deleted
                    continue
                if self.next_offset == offset and not self._are_producers_known:
                    self._take_producers(entries)
        except (OSError, CorruptRecords) as error:
            log_.error("%r: the states of producers cannot be read: %s", self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            self._reading_producers = None

    def _take_producers(self, entries: Sequence[ProducerEntry]) -> None:
        if self._producers is None:
            self._producers = ProducerStates()
        self._producers.read_again(entries, self.next_offset)
        self._producers.high_watermark_moved(self.high_watermark)
        self._are_producers_known = True
        self._update_last_stable_offset()

    def _producers_to_write(self) -> tuple[ProducerEntry, ...] | None:
        return self.active_producers() if self._are_producers_known else None
