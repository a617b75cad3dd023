"""Reads one partition for a Fetch request: the result has records up to the offset that the client may read, or an error.

A consumer reads up to the high watermark, or with read_committed up to the last stable offset. A follower reads up to the end of the log;
its fetch offset shows which records it has. From version 11 on a consumer may read from any replica; all others read from the leader only.
If the client sends its last fetched epoch and its log differs from this one, it gets the diverging epoch (KIP-595) instead of records. An
offset before the start or after the end of the log is OFFSET_OUT_OF_RANGE. An offset between the last readable one and the end gives
neither records nor an error. The high watermark in the result is from before the read.

The order of the checks is that of `ReplicaManager.readFromLog` and `Partition.fetchRecords` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from klamm.broker.fetch_sessions import FetchPartition
from klamm.broker.log.local_log import FileRead
from klamm.broker.partition import HostedPartition, Role
from klamm.broker.preferred_replica import NO_REPLICA, preferred_replica
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH, ZERO_UUID
from klamm.protocol.records.batch import is_cut

UNKNOWN = -1
MIN_ONE_SINCE = 3
NO_RECORDS = b""


class Isolation(IntEnum):
    """The offset up to which a fetch reads."""

    HIGH_WATERMARK = 0
    LAST_STABLE_OFFSET = 1
    LOG_END = 2


class FetchParams(NamedTuple):
    """The parameters that all partitions of a Fetch request share. `replica_id` is -1 for consumers."""

    version: int
    replica_id: int
    broker_epoch: int
    isolation: Isolation
    is_follower: bool
    leader_only: bool
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    rack: str
    """The rack of the consumer if the response may name a closer replica, else empty."""
    listener: str


class PartitionRead(NamedTuple):
    """The result for one partition. `size` is that of `records`; `aborted` has (producer id, first offset), None if not requested. Those of
    records in a file are known once they are read.

    `diverging` is (leader epoch, end offset).
    """

    error_code: int
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_replica: int = NO_REPLICA
    records: bytes | FileRead = NO_RECORDS
    size: int = 0
    diverging: tuple[int, int] | None = None

    @property
    def is_notable(self) -> bool:
        """Whether it has records, a diverging epoch or a preferred replica."""
        return self.size > 0 or self.diverging is not None or self.preferred_replica != NO_REPLICA


_FAILED = {int(code): PartitionRead(int(code)) for code in ErrorCode}
_OUT_OF_RANGE = _FAILED[ErrorCode.OFFSET_OUT_OF_RANGE]


def failed(code: int) -> PartitionRead:
    """The result with this error code, without records."""
    return _FAILED[code]


def end_of(replica: HostedPartition, isolation: Isolation) -> int:
    """The offset up to which a fetch may read now."""
    if isolation is Isolation.HIGH_WATERMARK:
        return replica.high_watermark
    return replica.log_end_offset if isolation is Isolation.LOG_END else replica.last_stable_offset


def find(replicas: ReplicaManager, params: FetchParams, partition: FetchPartition) -> HostedPartition:
    """The replica that a fetch of this partition reads. Raises ApiError."""
    name, epoch = partition.topic.name, partition.current_leader_epoch
    if name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if epoch < NO_EPOCH:
        epoch = NO_EPOCH
    if params.leader_only:
        return replicas.leader(name, partition.index, epoch)
    return replicas.replica(name, partition.index, epoch)


def end_offset_of_epoch(replica: HostedPartition, leader_epoch: int) -> tuple[int, int]:
    """(largest epoch not above this one, its end offset), as in OffsetForLeaderEpoch; (-1, -1) if unknown."""
    log = replica.log
    if log is not None:
        epoch, end_offset = log.epochs.end_offset_for(leader_epoch, log.log_end_offset)
        return epoch, end_offset
    # the log was never opened: only the present epoch is known, it began at 0, and nothing was written since
    if leader_epoch == NO_EPOCH or replica.role is not Role.LEADER or leader_epoch > replica.leader_epoch:
        return NO_EPOCH, UNKNOWN
    return leader_epoch, 0


def divergence(replica: HostedPartition, partition: FetchPartition) -> tuple[int, int] | None:
    """(epoch, end offset) after which the client's log differs from this one; None if it does not differ.

    Raises ApiError: OFFSET_OUT_OF_RANGE if that is not known.
    """
    fetched = partition.last_fetched_epoch
    epoch, end_offset = end_offset_of_epoch(replica, fetched)
    if end_offset == UNKNOWN or epoch == NO_EPOCH or partition.fetch_offset < replica.log_start_offset:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return (epoch, end_offset) if epoch < fetched or end_offset < partition.fetch_offset else None


def read_partition(
    replicas: ReplicaManager, params: FetchParams, partition: FetchPartition, limit_bytes: int, min_one: bool, watch: bool
) -> PartitionRead:
    """Read one partition, whose topic has a name. `limit_bytes` is the rest of the request's limit. The last batch is cut at the limits;
    with `min_one` the first one is whole, even above them.

    `watch`: the partition belongs to a session and watches its replica. `note_follower` records the fetch offset of a follower.
    """
    topic = partition.topic
    replica = replicas.get(topic.name, partition.index)  # type: ignore[arg-type]
    if watch and partition.replica is not replica:
        partition.watch(replica)
    try:
        if replica is not None and not replica.offline:
            if topic.topic_id not in (replica.topic_id, ZERO_UUID) and replica.topic_id != ZERO_UUID:
                return _FAILED[ErrorCode.INCONSISTENT_TOPIC_ID]
            if params.rack and replica.role is Role.LEADER:
                closer = preferred_replica(replica, replicas.metadata, params.rack, params.listener, partition.fetch_offset)
                if closer != NO_REPLICA:
                    find(replicas, params._replace(leader_only=False), partition)
                    return PartitionRead(
                        0, replica.high_watermark, replica.last_stable_offset, replica.log_start_offset, preferred_replica=closer
                    )
        replica = find(replicas, params, partition)
        if params.is_follower:
            replicas.check_follower(replica, params.replica_id, max(partition.current_leader_epoch, NO_EPOCH))
        return _read(replicas, replica, params, partition, min(partition.max_bytes, limit_bytes), min_one)
    except ApiError as error:
        return _FAILED[error.code]


def without_cut_start(records: bytes, version: int) -> bytes:
    """These records, or none if not even their first batch is whole, and the client has to be able to read one: it knows then that it
    cannot. Clients before version 3 get what there is.
    """
    return NO_RECORDS if version >= MIN_ONE_SINCE and is_cut(records) else records


def note_follower(replicas: ReplicaManager, params: FetchParams, partition: FetchPartition, read: PartitionRead) -> None:
    """Record the fetch offset of a follower, if the read succeeded: it has all records before. It may join the ISR, and the high watermark
    may move.

    Call it once for each request and partition, after the first read.
    """
    if read.error_code or read.diverging is not None:
        return
    replica = replicas.get(partition.topic.name, partition.index)  # type: ignore[arg-type]
    if replica is not None:
        replicas.follower_fetched(replica, params.replica_id, params.broker_epoch, partition.fetch_offset, partition.log_start_offset)


def _read(
    replicas: ReplicaManager,
    replica: HostedPartition,
    params: FetchParams,
    partition: FetchPartition,
    max_bytes: int,
    min_one: bool,
) -> PartitionRead:
    offset, isolation = partition.fetch_offset, params.isolation
    log = replica.log
    if log is None:
        high_watermark = stable_offset = start_offset = log_end_offset = 0
    else:
        high_watermark, stable_offset = log.high_watermark, log.last_stable_offset
        start_offset, log_end_offset = log.log_start_offset, log.log_end_offset
    if partition.last_fetched_epoch >= 0:
        diverging = divergence(replica, partition)
        if diverging is not None:
            return PartitionRead(0, high_watermark, stable_offset, start_offset, diverging=diverging)
    if offset < start_offset or offset > log_end_offset:
        return _OUT_OF_RANGE
    is_committed = isolation is Isolation.LAST_STABLE_OFFSET
    end_offset = log_end_offset if isolation is Isolation.LOG_END else stable_offset if is_committed else high_watermark
    aborted: Sequence[tuple[int, int]] | None = () if is_committed else None
    records: Any = NO_RECORDS
    size = 0
    if log is not None and offset < end_offset:
        if max_bytes < 0:
            return _FAILED[ErrorCode.UNKNOWN_SERVER_ERROR]
        if max_bytes or min_one:
            records = log.read(offset, max_bytes, end_offset, min_one)
            if not min_one and type(records) is bytes:
                records = without_cut_start(records, params.version)
            size = len(records) if type(records) is bytes else max(records.size, 1)
        if is_committed and size and type(records) is bytes:
            aborted = [entry[:2] for entry in log.aborted_in(offset, records)]
    return PartitionRead(0, high_watermark, stable_offset, start_offset, aborted, NO_REPLICA, records, size)
