"""DeleteRecords (21), versions 0-2: delete the records before an offset, on the leader now, on its followers with their next fetches.

Each partition has its own result; if a partition is named twice, the last entry counts. Needs DELETE on the topic. Offset -1 means the high
watermark. An offset above it, or another one below 0, gets OFFSET_OUT_OF_RANGE. A topic whose `cleanup.policy` does not contain `delete`
gets POLICY_VIOLATION. The response waits until the live followers have deleted the records too. If they have not after the time-out, the
code is REQUEST_TIMED_OUT, with the low watermark from the beginning of the wait. As in Apache Kafka the partition is checked again when
followers have fetched further, but not when a follower has died or the leader has changed.

Source: wire 12; `Partition.deleteRecordsOnLeader` and `DelayedDeleteRecords` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from klamm.broker.metadata_responses import INTERNAL_TOPICS
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

HIGH_WATERMARK = -1
NO_WATERMARK = -1

Response = messages.DeleteRecordsResponse


async def handle(ctx: Context, request: messages.DeleteRecordsRequest) -> Response:
    pace = Pace()
    offsets: dict[TopicPartition, tuple[int, bool]] = {}
    for topic in request.topics:
        await pace()
        allowed = ctx.authorize(Operation.DELETE, ResourceType.TOPIC, topic.name)
        for entry in topic.partitions:
            await pace()
            offsets[TopicPartition(topic.name, entry.partition_index)] = entry.offset, allowed
    parts = {key: _Part(*key) for key in offsets}
    for key, (offset, allowed) in offsets.items():
        await pace()
        await parts[key].delete(ctx, offset, allowed)
    waiting = [part for part in parts.values() if part.is_waiting]
    if waiting:
        await _wait(ctx.services.replicas, ctx.services.clock, waiting, request.timeout_ms)
    topics: dict[str, list[Response.DeleteRecordsPartitionResult]] = {}
    for part in parts.values():
        await pace()
        row = Response.DeleteRecordsPartitionResult(partition_index=part.index, low_watermark=part.low_watermark, error_code=part.code)
        topics.setdefault(part.topic, []).append(row)
    return Response(topics=[Response.DeleteRecordsTopicResult(name=name, partitions=rows) for name, rows in topics.items()])


def refuse(request: messages.DeleteRecordsRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    row = Response.DeleteRecordsPartitionResult
    return Response(
        topics=[
            Response.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    row(partition_index=part.partition_index, low_watermark=NO_WATERMARK, error_code=code) for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class _Part:
    """One partition of a request: its result and, while it waits, the offset that its low watermark must reach."""

    __slots__ = ("code", "high_watermark", "index", "low_watermark", "offset", "replica", "seen_by_followers", "topic")

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.code = ErrorCode.NONE
        self.low_watermark = NO_WATERMARK
        self.offset = NO_WATERMARK
        self.replica: HostedPartition | None = None
        self.high_watermark = self.seen_by_followers = NO_WATERMARK

    @property
    def is_waiting(self) -> bool:
        return self.replica is not None

    async def delete(self, ctx: Context, offset: int, allowed: bool) -> None:
        """Move the log start offset; if that is refused, store the code."""
        try:
            await self._delete(ctx, offset, allowed)
        except ApiError as error:
            self.code = error.code

    async def _delete(self, ctx: Context, offset: int, allowed: bool) -> None:
        if not allowed:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if ctx.services.metadata.partition(self.topic, self.index) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        replicas = ctx.services.replicas
        replica = replicas.leader(self.topic, self.index)
        log = await replicas.open_log(replica)
        if replicas.leader(self.topic, self.index) is not replica:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.config.delete:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        self.offset = log.high_watermark if offset == HIGH_WATERMARK else offset
        if self.offset < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if log.set_log_start_offset(self.offset):
            replica.changed()
        self.low_watermark = replicas.low_watermark(replica)
        if self.low_watermark < self.offset:
            self.code = ErrorCode.REQUEST_TIMED_OUT
            self.replica = replica
            self.high_watermark, self.seen_by_followers = replica.high_watermark, _seen_by_followers(replica)

    def look(self, replicas: ReplicaManager, replica: HostedPartition) -> None:
        """The partition has changed. End its wait if the followers have made progress and the low watermark has reached the offset."""
        before = self.high_watermark, self.seen_by_followers
        self.high_watermark, self.seen_by_followers = replica.high_watermark, _seen_by_followers(replica)
        moved_on = self.high_watermark > before[0] or self.seen_by_followers > before[1]
        if moved_on and replica.is_leader and replicas.low_watermark(replica) >= self.offset:
            self.code, self.low_watermark = ErrorCode.NONE, replicas.low_watermark(replica)
            self.replica = None


def _seen_by_followers(replica: HostedPartition) -> int:
    """The lowest log start offset among all followers, dead ones included."""
    leadership = replica.leadership
    return NO_WATERMARK if leadership is None else min((f.log_start_offset for f in leadership.followers.values()), default=NO_WATERMARK)


class _Waiter:
    """Checks the partitions of one request when they change; calls `done` when none of them waits any more."""

    def __init__(self, replicas: ReplicaManager, parts: Iterable[_Part], done: Callable[[], object]) -> None:
        self._replicas = replicas
        self._done = done
        self._parts = {part.replica: part for part in parts if part.replica is not None}
        for replica in self._parts:
            replica.watch(self)

    def partition_changed(self, partition: HostedPartition) -> None:
        part = self._parts.get(partition)
        if part is None:
            return
        part.look(self._replicas, partition)
        if not part.is_waiting:
            del self._parts[partition]
            partition.unwatch(self)
            if not self._parts:
                self._done()

    def close(self) -> None:
        for replica in self._parts:
            replica.unwatch(self)


async def _wait(replicas: ReplicaManager, clock: Clock, parts: list[_Part], timeout_ms: int) -> None:
    """Return when no partition waits any more, or after the time-out."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    waiter = _Waiter(replicas, parts, end)
    timer = clock.call_later(max(timeout_ms, 0) / 1000, end)
    try:
        await ended
    finally:
        timer.cancel()
        waiter.close()
