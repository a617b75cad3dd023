"""Reads records of a topic: from given offsets, or as a member of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafka import KafkaConsumer, TopicPartition

from klamm.admin.records.codecs import use_own_codecs
from klamm.admin.records.record_errors import as_admin_errors
from klamm.admin.settings import Security

POLL_MS = 200
METADATA_AGE_MS = 2000
"""A group reads partitions that are added to its topic after this time."""


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
    """Reads one topic. Every method may raise AdminError."""

    def __init__(
        self, bootstrap_server: str, topic: str, client_id: str, group: str | None, from_end: bool, read_committed: bool, security: Security
    ) -> None:
        """In a group partitions without a committed offset begin at the first record, or `from_end` behind the last one."""
        self._topic = topic
        self._group = group
        use_own_codecs()
        with as_admin_errors():
            self._consumer = KafkaConsumer(
                bootstrap_servers=bootstrap_server, client_id=client_id, group_id=group, enable_auto_commit=group is not None,
                auto_offset_reset="latest" if from_end else "earliest", allow_auto_create_topics=False,
                isolation_level="read_committed" if read_committed else "read_uncommitted", metadata_max_age_ms=METADATA_AGE_MS, **security,
            )
            if group is not None:
                # A leader of a group that joins before it knows the partitions assigns nothing, and may never assign again.
                self._consumer.partitions_for_topic(topic)
                self._consumer.subscribe([topic])

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
                polled = self._consumer.poll(timeout_ms=POLL_MS, max_records=left)
            for batch in polled.values():
                for row in batch:
                    yield ReadRecord(row.topic, row.partition, row.offset, row.timestamp, row.key, row.value, tuple(row.headers))
                    left = None if left is None else left - 1
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with as_admin_errors():
            self._consumer.close(autocommit=self._group is not None)
