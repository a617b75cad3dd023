"""The counters of a broker that has an endpoint for its metrics. Imported only by such a broker.

Counters are plain integers, and distributions are counts in buckets of fixed bounds. All are changed on the event loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from klamm.broker.fetch_reads import PartitionRead
from klamm.broker.fetch_sessions import FetchPartition
from klamm.broker.leaders import Leaders
from klamm.broker.log.log import AppendResult
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import Buffer, CorruptRecords
from klamm.protocol.records.validation import Assigned, Origin, Refused
from klamm.seams.clock import Clock
from klamm.seams.value_class import dataclass
from klamm.server.metrics.controller_counts import ControllerCounts
from klamm.server.metrics.request_counts import RequestCounts

_NOT_READ = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
})
"""Codes of partitions that a Fetch request names and that are not even tried."""
_EXPECTED_OF_PRODUCE = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR,
})
_EXPECTED_OF_FETCH = _NOT_READ | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID,
}
"""Errors that Kafka does not count as failed requests: they are part of the normal life of a cluster."""


class TopicCounts:
    """Data of one topic, or of all topics."""

    __slots__ = (
        "bytes_in", "bytes_out", "bytes_rejected", "failed_fetches", "failed_produces", "fetches", "keyless_records", "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.bytes_in = self.bytes_out = self.bytes_rejected = self.messages_in = self.keyless_records = 0
        self.produces = self.fetches = self.failed_produces = self.failed_fetches = 0


class DataCounts:
    """What clients and followers write and read."""

    def __init__(self) -> None:
        self.all = TopicCounts()
        self.topics: defaultdict[str, TopicCounts] = defaultdict(TopicCounts)
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def fetched(self, by_follower: bool, rows: Sequence[tuple[FetchPartition, PartitionRead]]) -> None:
        """A Fetch request read these partitions."""
        total = self.all
        for partition, read in rows:
            name = partition.topic.name
            if name is None or read.error_code in _NOT_READ:
                continue
            topic = self.topics[name]
            total.fetches += 1
            topic.fetches += 1
            if by_follower:
                self.replication_bytes_out += read.size
            else:
                total.bytes_out += read.size
                topic.bytes_out += read.size
            if read.error_code and read.error_code not in _EXPECTED_OF_FETCH:
                total.failed_fetches += 1
                topic.failed_fetches += 1

    def replicated(self, size: int) -> None:
        """Records of this size came from a leader."""
        self.replication_bytes_in += size

    def appended(self, topic: str, size: int, result: AppendResult) -> None:
        """Records are in the log of a partition."""
        for each in (self.all, self.topics[topic]):
            each.produces += 1
            each.bytes_in += size
            if not result.is_duplicate:
                each.messages_in += result.last_offset - result.base_offset + 1

    def refused(self, topic: str, size: int, code: ErrorCode, keyless: int = 0) -> None:
        """Records are not appended."""
        for each in (self.all, self.topics[topic]):
            each.produces += 1
            each.keyless_records += keyless
            if code is ErrorCode.MESSAGE_TOO_LARGE:
                each.bytes_rejected += size
            if code not in _EXPECTED_OF_PRODUCE:
                each.failed_produces += 1

    def forget(self, hosted: set[str]) -> None:
        """Keep the counters of topics that this broker hosts, as Kafka removes the metrics of the others."""
        for topic in self.topics.keys() - hosted:
            del self.topics[topic]


class CountedAppends:
    """The appends of producers, counted. Stands in the place of those of `Leaders`."""

    def __init__(self, leaders: Leaders, counts: DataCounts) -> None:
        self._leaders = leaders
        self._counts = counts

    def append(
        self, replica: HostedPartition, records: Buffer, version: int, required_acks: int, origin: Origin, now_ms: int
    ) -> AppendResult:
        try:
            result = self._leaders.append(replica, records, version, required_acks, origin, now_ms)
        except (ApiError, Refused, CorruptRecords) as error:
            self._refused(replica, len(records), error)
            raise
        self._counts.appended(replica.topic, len(records), result)
        return result

    def append_assigned(
        self, replica: HostedPartition, assigned: Assigned, required_acks: int, origin: Origin, now_ms: int
    ) -> AppendResult:
        try:
            result = self._leaders.append_assigned(replica, assigned, required_acks, origin, now_ms)
        except (ApiError, Refused) as error:
            self._refused(replica, len(assigned.data), error)
            raise
        self._counts.appended(replica.topic, len(assigned.data), result)
        return result

    def append_run(
        self, replica: HostedPartition, run: Sequence[Assigned], required_acks: int, origin: Origin, now_ms: int
    ) -> list[AppendResult]:
        """Each batch of the run counts as its request. A run that fails does not count: its requests are then appended one by one."""
        results = self._leaders.append_run(replica, run, required_acks, origin, now_ms)
        for assigned, result in zip(run, results, strict=True):
            self._counts.appended(replica.topic, len(assigned.data), result)
        return results

    def _refused(self, replica: HostedPartition, size: int, error: ApiError | Refused | CorruptRecords) -> None:
        if isinstance(error, CorruptRecords):
            self._counts.refused(replica.topic, size, ErrorCode.CORRUPT_MESSAGE)
            return
        keyless = len(error.record_errors) if isinstance(error, Refused) and "without key" in (error.message or "") else 0
        self._counts.refused(replica.topic, size, error.code, keyless)


@dataclass(frozen=True, slots=True)
class Counts:
    """All counters of one broker."""

    data: DataCounts
    requests: RequestCounts
    controller: ControllerCounts

    @classmethod
    def at_zero(cls, clock: Clock) -> Counts:
        """New counters."""
        return cls(DataCounts(), RequestCounts(clock.monotonic), ControllerCounts(clock.monotonic))

    def count_appends(self, replicas: ReplicaManager) -> None:
        """Count what producers append to the partitions that this broker leads."""
        counted = CountedAppends(replicas.leaders, self.data)
        replicas.append, replicas.append_assigned, replicas.append_run = counted.append, counted.append_assigned, counted.append_run
