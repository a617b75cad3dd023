"""One Fetch request on its way to a response: read, perhaps wait and read again, note what the client knows then, encode.

Long lists are gone through in slices; records are loaded from files, or converted, where that is needed. The rules are in
`server/apis/fetch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from klamm.broker.fetch_reads import (
    MIN_ONE_SINCE,
    NO_RECORDS,
    FetchParams,
    PartitionRead,
    end_of,
    failed,
    note_follower,
    read_partition,
    without_cut_start,
)
from klamm.broker.fetch_sessions import NO_SESSION, FetchContext, FetchPartition
from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead
from klamm.broker.metadata_responses import brokers_at
from klamm.broker.replication_quotas import ReplicationQuota
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import Codec
from klamm.protocol.records.compression import BadCompression, TooLarge
from klamm.protocol.records.conversion import down_convert
from klamm.protocol.records.scan import BadRecord
from klamm.seams.pace import SLICE
from klamm.server.fetch.delayed_fetch import DelayedFetch
from klamm.server.fetch.fetch_response import ENDPOINTS_SINCE, encode, size_of
from klamm.server.requests.context import Context
from klamm.server.requests.peer import FetchThrottle
from klamm.server.requests.services import Services
from klamm.server.security.authorizer import AllowAll, Operation, ResourceType

STORAGE_ERROR_SINCE = 6
MAGIC_1_SINCE, MAGIC_2_SINCE, ZSTD_SINCE = 2, 4, 10
CONVERTED_IN_THREAD_BYTES = 4 << 10
SPARSE = 32
LOOK_AGAIN_S = 0.001
_NAMES_LEADER = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))
_UNREADABLE = {int(code): PartitionRead(int(code), aborted=()) for code in ErrorCode}
"""What a partition gets that is not even tried: here aborted transactions are an empty list, not null."""

Row = tuple[FetchPartition, PartitionRead]
Body = list[bytes]


def _has_a_name(row: Row) -> bool:
    """Whether the topic id is known. For clients Apache Kafka finds the topics of all partitions before it checks one of them."""
    return row[1].error_code != ErrorCode.UNKNOWN_TOPIC_ID


def now_ms(ctx: Context) -> int:
    """Milliseconds of the clock that never goes back."""
    return int(ctx.services.clock.monotonic() * 1000)


class OpenFetch:
    """One request on its way to a response. `rows` are the results of the last read."""

    __slots__ = (
        "_allowed", "_allows_all", "_code", "_context", "_ctx", "_has_errors", "_has_files", "_holds_back", "_is_notable", "_params",
        "_partitions", "_quota", "_size", "_unread", "rows",
    )

    def __init__(self, ctx: Context, params: FetchParams, context: FetchContext) -> None:
        self._ctx = ctx
        self._context = context
        self._partitions = partitions = context.partitions
        self._params = params
        self._allows_all = type(ctx.services.authorizer) is AllowAll
        self._allowed: dict[str, bool] = {}
        self._code = ErrorCode.NONE
        self.rows: list[Row] = []
        self._unread: list[Row] = []
        self._quota: ReplicationQuota | None = None
        self._holds_back = False
        if partitions.params is not params or params.rack or not self._allows_all:
            if partitions.params is not None and (params.rack or not self._allows_all or partitions.params[1:6] != params[1:6]):
                partitions.look_at_all()  # who reads, and up to where, has changed, or changes all the time
            partitions.params = params
        if params.is_follower:
            ctx.services.replicas.follower_requested(params.replica_id)

    # reading

    def read(self, follow: bool) -> Iterator[None]:
        """Read what is to be looked at; yields after each slice. What was refused stays refused when it is read again."""
        rows: list[Row] = []
        unread: list[Row] = []
        refused = {partition: read.error_code for partition, read in self._unread} if self._unread else None
        params, replicas = self._params, self._ctx.services.replicas
        limit, min_one = params.max_bytes, params.version >= MIN_ONE_SINCE
        watches, follows = not self._context.is_full, follow and params.is_follower
        self._size, self._is_notable, self._has_errors, self._has_files = 0, False, False, False
        exceeded = self._look_at_quota() if params.is_follower else False
        for number, partition in enumerate(list(self._partitions.changed), 1):
            code = (refused is not None and refused.get(partition)) or self._refusal(partition)
            if code:
                unread.append((partition, _UNREADABLE[code]))
                self._has_errors = True
            else:
                is_held_back = exceeded and self._is_held_back(partition)
                result = read_partition(
                    replicas, params, partition, 0 if is_held_back else limit, min_one and not is_held_back, watches
                )
                if follows:
                    note_follower(replicas, params, partition, result)
                rows.append((partition, result))
                size = result.size
                if size:
                    if isinstance(result.records, FileRead):
                        self._has_files = True
                        limit -= result.records.least
                    else:
                        limit -= size
                    min_one = False
                    self._size += size
                elif result.error_code:
                    self._is_notable = self._has_errors = True
                elif result.is_notable:
                    self._is_notable = True
                if limit < 0:  # after the first partition a negative limit is none
                    limit = 0
            if number % SLICE == 0:
                yield
        if len(unread) > 1 and not params.is_follower:
            unread.sort(key=_has_a_name)
        self.rows, self._unread = rows, unread

    def _look_at_quota(self) -> bool:
        """Whether throttled partitions have to wait. What is read is recorded when the response is made, so that is one look for all."""
        quota = self._ctx.services.replication_quotas.leader
        self._quota = quota if quota.is_active else None
        self._holds_back = False
        return quota.is_active and quota.is_exceeded()

    def _is_held_back(self, partition: FetchPartition) -> bool:
        """Whether an exceeded quota concerns this partition: it is throttled, and the follower is not in the ISR."""
        name = partition.topic.name or ""
        if not self._ctx.services.replication_quotas.leader.is_throttled(name, partition.index):
            return False
        replica = self._ctx.services.replicas.get(name, partition.index)
        if replica is None or self._params.replica_id in replica.isr:
            return False
        self._holds_back = True
        return True

    def _refusal(self, partition: FetchPartition) -> int:
        """Why a partition is not even tried, or 0."""
        services, topic = self._ctx.services, partition.topic
        if topic.name is None:
            topic.name = services.metadata.topic_name(topic.topic_id)
        name = topic.name
        if name is None:
            is_denied = self._params.is_follower and not self._may_read("")
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.UNKNOWN_TOPIC_ID
        if not self._allows_all and not self._may_read(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        cached = services.metadata.topics.get(name)
        return 0 if cached is not None and partition.index in cached.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def may_read_some(self) -> bool:
        """Whether the client may read at least one partition that exists."""
        return not all(map(self._refusal, list(self._partitions.changed)))

    def _may_read(self, topic: str) -> bool:
        if self._allows_all:
            return True
        allowed = self._allowed.get("" if self._params.is_follower else topic)
        if allowed is None:
            if self._params.is_follower:
                allowed = self._allowed[""] = self._ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
            else:
                allowed = self._allowed[topic] = self._ctx.authorize(Operation.READ, ResourceType.TOPIC, topic)
        return allowed

    @property
    def is_ready(self) -> bool:
        """Whether the response need not wait."""
        params = self._params
        if params.max_wait_ms <= 0 or self._size >= params.min_bytes or self._is_notable:
            return True
        return not self.rows and (self._context.is_full or len(self._unread) == self._partitions.count)

    # waiting

    async def respond_in_slices(self) -> Body:
        """As `respond` or `respond_later`, for many partitions."""
        for _ in self.read(follow=True):
            await asyncio.sleep(0)
        return await (self._respond_to_many() if self.is_ready else self.respond_later())

    async def respond_later(self) -> Body:
        """Wait, read again, respond."""
        partitions, services, peer = self._partitions, self._ctx.services, self._ctx.peer
        delayed = DelayedFetch(services.replicas, self._params, self._quota)
        watches = self._context.is_full
        partitions.waiting = delayed
        try:
            for number, (partition, _) in enumerate(self.rows, 1):
                if watches:
                    partition.watch(services.replicas.get(partition.topic.name, partition.index))  # type: ignore[arg-type]
                delayed.partition_changed(partition)
                if number % SLICE == 0:
                    await asyncio.sleep(0)
            if not delayed.is_over:
                timer = services.clock.call_later(self._longest_wait(), delayed.end)
                peer.on_lost = delayed.end
                try:
                    await delayed.wait()
                finally:
                    timer.cancel()
                    peer.on_lost = None
            for _ in self.read(follow=False):
                await asyncio.sleep(0)
            return await self._respond_to_many()
        finally:
            if partitions.waiting is delayed:
                partitions.waiting = None
            session = self._context.session
            if session is None or not session.is_open:
                partitions.unwatch()

    def _longest_wait(self) -> float:
        """Seconds after which the fetch reads again whatever happens: a client's own limit, or when more of what is throttled may go."""
        seconds = self._params.max_wait_ms / 1000
        if self._quota is None or not self._holds_back:
            return seconds
        return min(seconds, max(self._quota.seconds_until_below(), LOOK_AGAIN_S))

    # the response

    def respond(self) -> Body | Coroutine[Any, Any, Body]:
        """The response to what was read; the client knows then what it says. A coroutine where records have to be loaded or converted."""
        if self._ctx.peer.throttle is not None and (refusal := self._throttled(self._ctx.peer.throttle)) is not None:
            return refusal
        for _ in self._conclude():
            pass
        if self._params.version < MAGIC_2_SINCE or self._has_files:
            return self._load(self.rows)
        return self._encode_rows(self.rows)

    async def _respond_to_many(self) -> Body:
        if self._ctx.peer.throttle is not None and (refusal := self._throttled(self._ctx.peer.throttle)) is not None:
            return refusal
        for _ in self._conclude():
            await asyncio.sleep(0)
        if self._params.version < MAGIC_2_SINCE or self._has_files:
            return await self._load(self.rows)
        if len(self.rows) <= SLICE:
            return self._encode_rows(self.rows)
        return await asyncio.to_thread(self._encode_rows, self.rows)

    def _throttled(self, throttle: FetchThrottle) -> Body | None:
        """The empty response for a client above a quota, None if it is within its quotas. The client knows nothing new then."""
        context, version = self._context, self._params.version
        rows = [*self.rows, *self._unread]
        if context.session is not None:
            rows = [
                (partition, read)
                for partition, read in rows
                if partition.is_news(read.error_code, read.high_watermark, read.log_start_offset, read.is_notable)
            ]
        wait_ms = throttle.fetched(size_of(version, rows))
        if not wait_ms:
            return None
        session_id = NO_SESSION if context.session is None else context.session.id
        code = ErrorCode.INVALID_FETCH_SESSION_EPOCH if context.is_overtaken else ErrorCode.NONE
        return encode(version, session_id, (), error_code=code, throttle_ms=wait_ms)

    def _conclude(self) -> Iterator[None]:
        """Note what the client knows now; `rows` are what it is sent. Yields after each slice."""
        context, read_rows = self._context, self.rows
        if context.is_overtaken:
            self.rows, self._code = [], ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return
        if self._unread:
            self.rows = read_rows + self._unread
        if context.session is not None:
            told = []
            for number, row in enumerate(self.rows, 1):
                partition, read = row
                if partition.must_respond(read.error_code, read.high_watermark, read.log_start_offset, read.is_notable):
                    told.append(row)
                if number % SLICE == 0:
                    yield
            self.rows = told
        elif context.makes_session:
            yield from self._make_session()
        if context.session is not None:
            yield from self._settle(read_rows)
        self._ctx.services.metrics.fetched(self._params.is_follower, read_rows)
        if self._quota is not None:
            throttled = [row for row in self.rows if row[1].size and self._quota.is_throttled(row[0].topic.name or "", row[0].index)]
            if throttled:
                self._quota.record(size_of(self._params.version, throttled))

    def _make_session(self) -> Iterator[None]:
        services = self._ctx.services
        session = services.fetches.sessions.create(self._partitions, self._params.is_follower, now_ms(self._ctx))
        if session is None:
            return
        self._context.session = session
        self._context.epoch = session.epoch
        for number, (partition, read) in enumerate(self.rows, 1):
            partition.must_respond(read.error_code, read.high_watermark, read.log_start_offset, is_notable=True)
            if partition.topic.name is not None:
                partition.watch(services.replicas.get(partition.topic.name, partition.index))
            if number % SLICE == 0:
                yield

    def _settle(self, rows: list[Row]) -> Iterator[None]:
        """Skip a partition whose records the client has until it changes. Partitions with records come last in the next response; after a
        full request all keep the order of the request."""
        partitions = self._partitions
        changed = partitions.changed
        settled = 0
        for number, (partition, read) in enumerate(rows, 1):
            if partition in changed:
                if read.size:
                    if not self._context.is_full:
                        partitions.gave_records(partition)
                elif self._is_settled(partition, read):
                    del changed[partition]
                    settled += 1
            if number % SLICE == 0:
                yield
        if settled > SPARSE and settled > len(changed):
            partitions.changed = dict.fromkeys(list(changed))  # who walks a dict meets the places of deleted entries

    def _is_settled(self, partition: FetchPartition, read: PartitionRead) -> bool:
        replica, params = partition.replica, self._params
        return (
            replica is not None
            and not read.error_code
            and read.diverging is None
            and partition.fetch_offset == end_of(replica, params.isolation)
            and partition.high_watermark == replica.high_watermark
            and partition.start_offset == replica.log_start_offset
            and (not params.is_follower or self._ctx.services.replicas.has_noted(replica, params.replica_id, partition.fetch_offset))
        )

    async def _load(self, rows: list[Row]) -> Body:
        """The response when records are in files, or have to be converted."""
        budget = self._ctx.services.fetches.budget
        taken = await budget.take(sum(read.size for _, read in rows))
        try:
            unread = self._ctx.peer.unread
            if unread is not None and (most := unread.most()) is not None:
                rows = _within(rows, most)
            loaded = await asyncio.gather(*[_load(read.records) for _, read in rows if read.size])
            results = iter(self._within_limit(loaded))
            done: list[Row] = []
            for partition, read in rows:
                data = next(results) if read.size else NO_RECORDS
                aborted = read.aborted
                if aborted is not None and isinstance(data, bytes) and isinstance(read.records, FileRead):
                    aborted = [entry[:2] for entry in read.records.aborted_transactions(data)]
                if data is ErrorCode.OFFSET_OUT_OF_RANGE:
                    data = self._read_again(partition)
                if isinstance(data, bytes) and self._params.version < MAGIC_2_SINCE:
                    data = await self._converted(partition, data)
                if isinstance(data, bytes):
                    done.append((partition, read._replace(records=data, aborted=aborted)))
                else:
                    self._has_errors = True
                    done.append((partition, failed(data) if read.aborted is None else _UNREADABLE[data]))
            return self._encode_rows(done) if len(done) <= SLICE else await asyncio.to_thread(self._encode_rows, done)
        finally:
            # later, so that this response is written, and counted as unread, before the next one is loaded
            asyncio.get_running_loop().call_soon(budget.give, taken)

    def _within_limit(self, loaded: Sequence[bytes | ErrorCode]) -> Iterator[bytes | ErrorCode]:
        """What was loaded, cut at the limit of the request: how many bytes a read of a file gives is not known before."""
        version, limit = self._params.version, self._params.max_bytes
        is_first = True
        for data in loaded:
            if isinstance(data, bytes):
                if not is_first or version < MIN_ONE_SINCE:
                    data = without_cut_start(data[:limit], version)
                limit = max(limit - len(data), 0)
                is_first = is_first and not data
            yield data

    def _read_again(self, partition: FetchPartition) -> bytes | ErrorCode:
        """What a read is worth whose offset was gone when its file was to be read: the error of a new read, otherwise no records.

        The replica may have ended to lead meanwhile, or be deleted: a client that was told of its offset would begin elsewhere.
        """
        again = read_partition(self._ctx.services.replicas, self._params, partition, 0, False, False)
        return ErrorCode(again.error_code) if again.error_code else b""

    async def _converted(self, partition: FetchPartition, records: bytes) -> bytes | ErrorCode:
        """Records as this version reads them, or why it cannot."""
        config = self._config(partition)
        if config is None:
            return records
        if not self._params.is_follower and not config.message_downconversion:
            return ErrorCode.UNSUPPORTED_VERSION
        if not records:
            return records
        magic = 1 if self._params.version >= MAGIC_1_SINCE else 0
        try:
            if len(records) <= CONVERTED_IN_THREAD_BYTES:
                return down_convert(records, magic, partition.fetch_offset)
            return await asyncio.to_thread(down_convert, records, magic, partition.fetch_offset)
        except ApiError as error:
            return error.code
        except (BadCompression, BadRecord, TooLarge, ValueError):
            return ErrorCode.CORRUPT_MESSAGE

    def _config(self, partition: FetchPartition) -> LogConfig | None:
        """The configs of the partition's log, None where it has none yet."""
        name = partition.topic.name
        replica = None if name is None else self._ctx.services.replicas.get(name, partition.index)
        return None if replica is None or replica.log is None else replica.log.config

    def _encode_rows(self, rows: list[Row]) -> Body:
        """The response body of rows whose records are in memory; errors get the codes that the version knows."""
        context, version = self._context, self._params.version
        session_id = NO_SESSION if context.session is None else context.session.id
        if version < ZSTD_SINCE:
            rows = [self._of_old_version(*row) for row in rows]
        if self._code or not self._has_errors or version < ENDPOINTS_SINCE:
            return encode(version, session_id, rows, error_code=self._code)
        leaders = {partition: _leader(self._ctx.services, partition) for partition, read in rows if read.error_code in _NAMES_LEADER}
        return encode(version, session_id, rows, leaders, _endpoints(self._ctx, {leader for leader, _ in leaders.values()}))

    def _of_old_version(self, partition: FetchPartition, read: PartitionRead) -> Row:
        """A row for a version before 10."""
        if self._is_zstd(partition):
            return partition, _UNREADABLE[ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]
        if read.error_code == ErrorCode.KAFKA_STORAGE_ERROR and self._params.version < STORAGE_ERROR_SINCE:
            return partition, read._replace(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return partition, read

    def _is_zstd(self, partition: FetchPartition) -> bool:
        """Whether this broker compresses all records of the partition with zstd, which older clients do not know."""
        config = self._config(partition)
        return config is not None and config.rules.compression is Codec.ZSTD


def _within(rows: list[Row], most: int) -> list[Row]:
    """The rows with no more records from files than this, but at least the first batch."""
    shorter = []
    for partition, read in rows:
        if isinstance(read.records, FileRead):
            if most > 0:
                read.records.limit(most)
            else:
                read = read._replace(records=NO_RECORDS, size=0)
            most -= read.size
        shorter.append((partition, read))
    return shorter


async def _load(records: bytes | FileRead) -> bytes | ErrorCode:
    """Records in memory, or why they could not be read."""
    if isinstance(records, bytes):
        return records
    try:
        return await records.load()
    except ApiError as error:
        return error.code


def _leader(services: Services, partition: FetchPartition) -> tuple[int, int]:
    """(leader, leader epoch) as this broker knows them, else as the metadata cache does."""
    name = partition.topic.name or ""
    replica = services.replicas.get(name, partition.index)
    if replica is not None and not replica.offline:
        return replica.leader, replica.leader_epoch
    cached = services.metadata.partition(name, partition.index)
    return (-1, -1) if cached is None else (cached.leader, cached.leader_epoch)


def _endpoints(ctx: Context, leaders: set[int]) -> list[messages.FetchResponse.NodeEndpoint]:
    """Where the leaders that were named can be reached on the listener of the request."""
    row = messages.FetchResponse.NodeEndpoint
    return [
        row(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack)
        for broker_id, endpoint, rack in brokers_at(ctx.services.metadata, ctx.peer.listener)
        if broker_id in leaders
    ]
