"""Reads records of a topic: from given offsets, or as a member of a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import CommitFailedError, RebalanceInProgressError

from klamm.admin.calls.settings import Security
from klamm.admin.records.codecs import use_own_codecs
from klamm.admin.records.record_errors import as_admin_errors

POLL_MS = 200
METADATA_AGE_MS = 2000
"""A group reads partitions that are added to its topic after this time."""
REBALANCING = "<rebalancing>"
"""The state of a member that joins, in kafka-python 3. Before that the metadata of a group had no state."""
COMMIT_S = 30.0
"""Time within which a group must have rebalanced for the last commit."""


class ReadRecord(NamedTuple):
    """A record. `timestamp` is in ms, -1 without one."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Start(NamedTuple):
    """Where to begin in each partition: `offset` records after the beginning of its log if `absolute`, else so many before its end."""

    offset: int
    absolute: bool


class RecordReader:
    """Reads one topic. Every method may raise AdminError.

    In a group offsets are committed every five seconds, when partitions are given up, and at the end. A record counts as read when the
    caller goes on to the next one.
    """

    def __init__(
        self, bootstrap_server: str, topic: str, client_id: str, group: str | None, from_end: bool, read_committed: bool, security: Security
    ) -> None:
        """In a group partitions without a committed offset begin at the first record, or `from_end` behind the last one."""
        self._topic = topic
        self._group = group
        self._pending: dict[Any, int] = {}
        self._is_ending = False
        use_own_codecs()
        with as_admin_errors():
            self._consumer = KafkaConsumer(
                bootstrap_servers=bootstrap_server, client_id=client_id, group_id=group, enable_auto_commit=group is not None,
                auto_offset_reset="latest" if from_end else "earliest", allow_auto_create_topics=False,
                isolation_level="read_committed" if read_committed else "read_uncommitted", metadata_max_age_ms=METADATA_AGE_MS, **security,
            )
            if group is not None:
                self._consumer.subscribe([topic], listener=_Assigned(self._assigned))
                # A leader of a group that joins before it knows the partitions assigns nothing, and joins again when it does.
                self._consumer.partitions_for_topic(topic)

    def begin(self, partitions: Sequence[int], start: Start) -> None:
        """Read these partitions from `start` on, without a group. An offset out of range is moved into it."""
        owned = [TopicPartition(self._topic, partition) for partition in partitions]
        with as_admin_errors():
            self._consumer.assign(owned)
            firsts, ends = self._consumer.beginning_offsets(owned), self._consumer.end_offsets(owned)
            for each in owned:
                wanted = start.offset if start.absolute else ends[each] - start.offset
                self._consumer.seek(each, max(firsts[each], min(wanted, ends[each])))

    def records(self, most: int | None, to_end: bool) -> Iterator[ReadRecord]:
        """At most `most` records; with `to_end` those up to the ends that the partitions have when they are first read."""
        left = most
        ends: dict[Any, int] = {}
        while left is None or left > 0:
            with as_admin_errors():
                polled = self._poll(left)
            self._pending = {partition: batch[0].offset for partition, batch in polled.items()}
            for partition, batch in polled.items():
                for row in batch:
                    self._pending[partition] = row.offset
                    yield ReadRecord(row.topic, row.partition, row.offset, row.timestamp, row.key, row.value, tuple(row.headers))
                    left = None if left is None else left - 1
                del self._pending[partition]
            if to_end and self._is_at_end(ends):
                return

    def _is_at_end(self, ends: dict[Any, int]) -> bool:
        """Whether all partitions of this reader have been read up to their ends, which are looked up once and kept in `ends`."""
        with as_admin_errors():
            owned = self._consumer.assignment()
            if not owned:
                return False
            new = [each for each in owned if each not in ends]
            if new:
                ends.update(self._consumer.end_offsets(new))
            return all(self._consumer.position(each) >= ends[each] for each in owned)

    def _poll(self, most: int | None) -> dict[Any, list[Any]]:
        if self._group is not None and getattr(self._consumer.group_metadata(), "state", None) == REBALANCING:
            # kafka-python 3 forgets that it joins because the topic's partitions changed, if a poll ends before it has joined.
            self._consumer._coordinator.request_rejoin()
        polled: dict[Any, list[Any]] = self._consumer.poll(timeout_ms=POLL_MS, max_records=most)
        return polled

    def _assigned(self, partitions: Collection[Any]) -> None:
        if self._is_ending:
            self._consumer.pause(*partitions)

    def _commit_at_end(self) -> None:
        """Commit what has been read. While the group rebalances it cannot be: then the member joins again, and reads nothing meanwhile."""
        self._is_ending = True
        owned, offsets = self._consumer.assignment(), {}
        for each in owned:
            offset = self._pending[each] if each in self._pending else self._consumer.position(each, timeout_ms=POLL_MS)
            if offset is not None:
                offsets[each] = OffsetAndMetadata(offset, "", -1)
        self._consumer.pause(*owned)
        give_up = time.monotonic() + COMMIT_S
        while offsets:
            try:
                self._consumer.commit(offsets)
            except (CommitFailedError, RebalanceInProgressError):
                if time.monotonic() > give_up:
                    raise
                self._poll(None)
                offsets = {each: offset for each, offset in offsets.items() if each in self._consumer.assignment()}
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with as_admin_errors():
            try:
                if self._group is not None:
                    self._commit_at_end()
            finally:
                self._consumer.close(autocommit=False)


class _Assigned(ConsumerRebalanceListener):
    """Calls `assigned` with partitions that this member gets."""

    def __init__(self, assigned: Callable[[Collection[Any]], None]) -> None:
        self._assigned = assigned

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Partitions were assigned."""
        self._assigned(assigned)

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        """Partitions are given up; their offsets were committed before."""
