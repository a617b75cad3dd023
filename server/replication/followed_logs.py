"""Keeps the logs of the partitions that a broker follows on one leader equal to the leader's.

Each Fetch response is applied partition by partition, in slices: records are appended, then the high watermark and the log start offset of
the leader are adopted. The next request contains the new end offsets, and the leader counts records up to these offsets as replicated. So
for logs on disk, `apply` returns when the records of the response have been written.

A problem with one partition does not affect the others:

* the leader is not ready (unknown topic or id, newer leader epoch here, not leader, recovering: error 6): the partition is left out for
  `replica.fetch.backoff.ms`;
* the leader has a newer leader epoch: the partition is dropped, the controller sends a LeaderAndIsr for it;
* the offset is out of range: ListOffsets decides whether to truncate the log or to start it again (`broker/follower_truncation.py`);
* the leader names the epoch after which the logs differ: the log is truncated, and the next request compares again;
* this broker's disk failed: the partition is dropped; the records are invalid: back-off.

Below inter-broker protocol 2.7 the logs are compared by OffsetForLeaderEpoch before the first fetch. Source: controller 14 and 15;
`AbstractFetcherThread` and `ReplicaFetcherThread` of 3.9.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from klamm.broker.follower_session import FollowerSession, Standing
from klamm.broker.follower_throttle import FollowerThrottle
from klamm.broker.follower_truncation import out_of_range, truncation
from klamm.broker.partition import HostedPartition
from klamm.broker.replication_quotas import ReplicationQuota
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH
from klamm.protocol.records.batch import CorruptRecords
from klamm.seams.clock import Clock
from klamm.seams.value_class import dataclass
from klamm.server.replication.leader_connection import LeaderConnection
from klamm.server.replication.leader_requests import (
    EARLIEST,
    LATEST,
    SLICE,
    WITHOUT_IDS,
    FetcherOptions,
    Partition,
    epoch_ends,
    last_epoch,
    list_offsets,
)
from klamm.server.replication.log_writes import all_written

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity

log = logging.getLogger("klamm.server.replication.fetcher")

_SLICE_BYTES = 1 << 18

PartitionData: TypeAlias = "messages.FetchResponse.PartitionData"


class _Later(NamedTuple):
    """Work on partitions of a response that is done after all its records are appended."""

    appended: list[HostedPartition]
    diverging: list[tuple[Partition, PartitionData]]
    out_of_range: list[Partition]
    started: list[tuple[Partition, int]]


@dataclass(frozen=True, slots=True)
class FollowerServices:
    """What a fetcher needs from its broker. `open_log` creates or loads the log of a replica; it may raise ApiError."""

    options: FetcherOptions
    clock: Clock
    broker_epoch: Callable[[], int]
    open_log: Callable[[HostedPartition], Awaitable[Any]]
    quota: ReplicationQuota
    received: Callable[[int], None]
    """Called with the bytes of the records that a response had, if it had any."""
    security: OutgoingSecurity | None = None
    """Of connections to leaders; None for PLAINTEXT."""


class FollowedLogs:
    """The logs of the partitions in one fetcher's session. `truncating` are those that must be compared before their first fetch."""

    def __init__(
        self, leader: int, services: FollowerServices, connection: LeaderConnection, session: FollowerSession[HostedPartition]
    ) -> None:
        self.leader = leader
        self.session = session
        self.truncating: dict[Partition, None] = {}
        self.throttle = FollowerThrottle(services.quota, session)
        self._services = services
        self._options = services.options
        self._clock = services.clock
        self._connection = connection
        self._delayed: deque[tuple[float, Partition, Standing]] = deque()
        """(end of the back-off, partition, its standing afterwards), in the order of the ends."""

    # --- delays

    def end_delays(self) -> None:
        """Continue with the partitions whose back-off is over."""
        now = self._clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            _, partition, standing = self._delayed.popleft()
            if partition.standing is Standing.DELAYED:
                self._resume(partition, standing)

    def until_next_delay_ends(self) -> float | None:
        """Seconds until the first back-off ends or the throttled rate is below the quota; None if nothing waits."""
        ends = [self._delayed[0][0] - self._clock.monotonic()] if self._delayed else []
        if self.throttle.left_out:
            ends.append(self._services.quota.seconds_until_below())
        return max(0.0, min(ends)) if ends else None

    def _resume(self, partition: Partition, standing: Standing) -> None:
        if standing is Standing.TRUNCATING:
            partition.standing = standing
            self.truncating[partition] = None
        else:
            self.session.resume(partition)

    # --- responses

    async def apply(self, response: messages.FetchResponse, version: int) -> None:
        """Apply a response, partition by partition. Raises OSError, RemoteProtocolError: the requests after OFFSET_OUT_OF_RANGE failed."""
        parts = self._parts(response, version)
        await self._open_logs(parts)
        later = _Later([], [], [], [])
        size = total = 0
        for number, (partition, data) in enumerate(parts, 1):
            if self.session.concerns(partition):
                appended = self._apply_one(partition, data, later)
                size += appended
                total += appended
            if number % SLICE == 0 or size > _SLICE_BYTES:
                size = 0
                await asyncio.sleep(0)
        if total:
            self._services.received(total)
        for partition, data in later.diverging:
            if partition.standing is Standing.READY:
                await self._cut(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        if later.appended:
            await all_written(later.appended)
        for partition, start_offset in later.started:
            if partition.standing is Standing.READY:
                self._advance_start(partition, start_offset)
        if later.out_of_range:
            await self._find_offsets(later.out_of_range)

    def _parts(self, response: messages.FetchResponse, version: int) -> list[tuple[Partition, PartitionData]]:
        """The partitions of a response that are still fetched as they were when the request was sent."""
        session = self.session
        parts = []
        for topic in response.responses:
            followed = session.topic(topic.topic) if version <= WITHOUT_IDS else session.topic_by_id(topic.topic_id)
            if followed is None:
                continue
            for data in topic.partitions:
                partition = followed.partitions.get(data.partition_index)
                if partition is not None and session.concerns(partition):
                    parts.append((partition, data))
        return parts

    async def _open_logs(self, parts: Sequence[tuple[Partition, PartitionData]]) -> None:
        """Open the logs of empty partitions for which records came."""
        lacking = [partition for partition, data in parts if data.records and partition.hosted.log is None]
        if not lacking:
            return
        results = await asyncio.gather(*(self._services.open_log(p.hosted) for p in lacking), return_exceptions=True)
        for partition, result in zip(lacking, results, strict=True):
            if partition.standing is Standing.REMOVED:
                continue
            if isinstance(result, BaseException):
                self._failed(partition, result)
            elif result.next_offset != partition.offset:  # an emptied log that does not begin at 0
                self._moved(partition, result.next_offset)

    def _apply_one(self, partition: Partition, data: PartitionData, later: _Later) -> int:
        """Apply the data of one partition; returns the number of bytes appended."""
        code = data.error_code
        if code == ErrorCode.NONE:
            if data.diverging_epoch.epoch >= 0 and self._options.protocol.has_truncation_on_fetch:
                later.diverging.append((partition, data))
                return 0
            try:
                return self._append(partition, data, later)
            except Exception as error:  # noqa: BLE001 any exception of a log only affects its partition
                self._failed(partition, error)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            later.out_of_range.append(partition)
        else:
            self._refused(partition, code)
        return 0

    def _append(self, partition: Partition, data: PartitionData, later: _Later) -> int:
        """Append the records of a response, and adopt the leader's high watermark and log start offset. Raises what the log raises."""
        hosted = partition.hosted
        replica_log = hosted.log
        if replica_log is None:
            partition.lag = max(data.high_watermark - partition.offset, 0)
            return 0
        records = data.records
        size = 0
        if records:
            if replica_log.next_offset != partition.offset:
                raise RuntimeError(f"fetched from {partition.offset}, but the log ends at {replica_log.next_offset}")
            size = len(records)
            replica_log.append_as_follower(records, data.high_watermark)
            later.appended.append(hosted)
            if replica_log.next_offset != partition.offset:
                partition.offset = replica_log.next_offset
                self.session.change(partition)
        else:
            replica_log.follow_high_watermark(data.high_watermark)
        lag = max(data.high_watermark - partition.offset, 0)
        if self._services.quota.is_active:
            self.throttle.received(partition, size, lag)
        partition.lag = lag
        if data.log_start_offset > replica_log.log_start_offset:
            later.started.append((partition, data.log_start_offset))
        elif replica_log.log_start_offset != partition.told_start and partition.standing is Standing.READY:
            self.session.change(partition)  # old segments were deleted here first
        hosted.changed()
        return size

    def _advance_start(self, partition: Partition, offset: int) -> None:
        """Adopt the leader's log start offset, because it has deleted older records."""
        replica_log = partition.hosted.log
        if replica_log is not None and replica_log.advance_log_start(min(offset, replica_log.log_end_offset)):
            self.session.change(partition)
            partition.hosted.changed()

    def _refused(self, partition: Partition, code: int) -> None:
        """The leader returned an error for a partition."""
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            log.info("%s: broker %d knows a later leader epoch than %d; waiting for a LeaderAndIsr request",
                     partition, self.leader, partition.leader_epoch)
            self.drop(partition)
            return
        expected = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH)
        log.log(logging.DEBUG if expected else logging.WARNING, "%s: broker %d returned error %d", partition, self.leader, code)
        self._delay(partition)

    def _failed(self, partition: Partition, error: BaseException) -> None:
        """The records of a partition cannot be appended. Retry after invalid records or a full memory, else stop fetching it."""
        if isinstance(error, (ApiError, CorruptRecords)) and not partition.hosted.offline:
            log.error("%s: cannot append the records of broker %d at offset %d: %s", partition, self.leader, partition.offset, error)
            self._delay(partition)
            return
        log.error("%s is not fetched any more", partition, exc_info=None if partition.hosted.offline else error)
        self.drop(partition)

    def _delay(self, partition: Partition) -> None:
        standing = partition.standing
        if standing in (Standing.READY, Standing.TRUNCATING):
            self.truncating.pop(partition, None)
            self.session.leave(partition, Standing.DELAYED)
            self._delayed.append((self._clock.monotonic() + self._options.backoff_ms / 1000, partition, standing))

    def drop(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        if partition.standing is not Standing.REMOVED:
            self.truncating.pop(partition, None)
            self.session.remove(partition.topic.name, partition.index)

    # --- truncation

    async def compare(self) -> None:
        """Truncate logs before the first fetch of their partitions: to the high watermark if leader epochs are not known, otherwise to the
        leader's end offset of the last epoch.
        """
        with_epochs = []
        for partition in list(self.truncating):
            if partition.standing is not Standing.TRUNCATING:
                continue  # it changed while the log of another one was truncated
            if partition.hosted.log is None:
                self._go_on(partition)
            elif self._options.protocol.has_offset_for_leader_epoch and last_epoch(partition.hosted) != NO_EPOCH:
                with_epochs.append(partition)
            elif await self._truncate(partition, partition.hosted.high_watermark):
                self._go_on(partition)
        if not with_epochs:
            return
        for partition, code, epoch, end_offset in await epoch_ends(self._connection, self._options, with_epochs):
            if partition.standing is not Standing.TRUNCATING:
                continue
            if code != ErrorCode.NONE:
                self._refused(partition, code)
            elif await self._cut(partition, epoch, end_offset):
                self._go_on(partition)

    def _go_on(self, partition: Partition) -> None:
        """Fetch the partition, because its log agrees with the leader's."""
        if partition.standing is Standing.TRUNCATING:
            del self.truncating[partition]
            self.session.resume(partition)

    async def _cut(self, partition: Partition, leader_epoch: int, leader_end_offset: int) -> bool:
        """Truncate a log to the offset up to which it equals the leader's; returns whether the logs agree now."""
        replica_log = partition.hosted.log
        if replica_log is None:
            return True
        end_offset = replica_log.next_offset
        own = replica_log.epochs.end_offset_for
        cut = truncation(leader_epoch, leader_end_offset, partition.offset, end_offset, lambda epoch: own(epoch, end_offset))
        log.info("%s: epoch %d ends at %d on broker %d: truncated from %d to %d",
                 partition, leader_epoch, leader_end_offset, self.leader, end_offset, cut.offset)
        return await self._truncate(partition, cut.offset) and cut.is_complete

    async def _truncate(self, partition: Partition, offset: int) -> bool:
        """Truncate a log to this offset and fetch from there; returns whether it succeeded."""
        hosted = partition.hosted
        replica_log = hosted.log
        if replica_log is None:
            return True
        if offset < replica_log.high_watermark:
            log.warning("%s is truncated to %d, below its high watermark %d", partition, offset, replica_log.high_watermark)
        try:
            rest = replica_log.truncate_to(offset)
            if rest is not None:
                await rest
        except Exception as error:  # noqa: BLE001 any exception of a log only affects its partition
            self._moved(partition, replica_log.next_offset)  # it may have been cut before
            self._failed(partition, error)
            return False
        self._moved(partition, replica_log.next_offset)
        return True

    def _moved(self, partition: Partition, offset: int) -> None:
        """Continue at this offset, which is the new end of the log."""
        partition.offset = offset
        if partition.standing is Standing.READY:
            self.session.change(partition)
        if partition.standing is not Standing.REMOVED:
            partition.hosted.changed()

    # --- offsets out of range

    async def _find_offsets(self, partitions: Sequence[Partition]) -> None:
        """Read the end offsets of the leader's logs, and their start offsets if they do not end before ours; truncate or start again."""
        ends = await self._list_offsets(partitions, LATEST)
        starts = await self._list_offsets([p for p, end in ends.items() if end >= self._end_offset(p)], EARLIEST)
        for partition, end in ends.items():
            if partition.standing is not Standing.READY:
                continue
            step = out_of_range(self._end_offset(partition), end, starts.get(partition))
            if step is None:
                self._delay(partition)
                continue
            log.warning("%s: offset %d is out of range on broker %d, whose log ends at %d; continuing at %d",
                        partition, partition.offset, self.leader, end, step.offset)
            if step.starts_again:
                await self._start_again(partition, step.offset)
            elif step.is_truncated:
                await self._truncate(partition, step.offset)
            else:
                self._moved(partition, step.offset)

    async def _start_again(self, partition: Partition, offset: int) -> None:
        """Delete all records of a log and start it at this offset."""
        hosted = partition.hosted
        try:
            replica_log = await self._services.open_log(hosted)
            if partition.standing is Standing.READY:
                replica_log.truncate_fully_and_start_at(offset)
                self._moved(partition, offset)
        except Exception as error:  # noqa: BLE001 as in `_truncate`
            self._failed(partition, error)

    async def _list_offsets(self, partitions: Sequence[Partition], timestamp: int) -> dict[Partition, int]:
        """Partition → the leader's offset. Partitions with an error wait for the back-off, or are dropped."""
        offsets: dict[Partition, int] = {}
        if partitions:
            for partition, code, offset in await list_offsets(self._connection, self._options, partitions, timestamp):
                if partition.standing is Standing.READY:
                    if code == ErrorCode.NONE:
                        offsets[partition] = offset
                    else:
                        self._refused(partition, code)
        return offsets

    @staticmethod
    def _end_offset(partition: Partition) -> int:
        replica_log = partition.hosted.log
        return 0 if replica_log is None else replica_log.next_offset
