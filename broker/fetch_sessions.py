"""Fetch sessions (KIP-227): the broker keeps the partitions that a client fetches, so requests and responses only contain changes.

A request with session epoch 0 is a full request and creates a session; with epoch -1 it does not. Both end the session whose id they have.
Any other epoch must be the next one of its session. Such a request is incremental: it names new and changed partitions, and those to
forget. The response has the partitions with records, with an error, or with another high watermark or log start offset than the client
knows.

A session with thirty thousand idle partitions costs nothing for each of them. Every partition of a session watches its replica. It is in
`changed` from the time when the replica changes or a request names it, until a response has sent everything to the client. Only partitions
in `changed` are read. Those that gave records move to its end, so that every partition has its turn if responses are full.

The number of sessions is limited. If there is no free slot, a new session replaces one that was not used for two minutes, otherwise a
smaller one that is older than two minutes; the session of a follower also replaces that of a consumer. Ids and slots are divided into eight
shards, like in Apache Kafka 3.9.1. Times are in milliseconds of a monotonic clock. Source: KIP-227; `FetchSession` of 3.9.1.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID

NO_SESSION = 0
FINAL_EPOCH, INITIAL_EPOCH = -1, 0
LAST_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
SHARDS = 8
SHARD_RANGE = (2**31 - 1) // SHARDS
TOPIC_IDS_SINCE = 13
UNKNOWN = -1


class Waiting(Protocol):
    """A fetch that waits for its partitions."""

    def partition_changed(self, partition: FetchPartition) -> None:
        """One of its partitions must be read again."""

    def overtaken(self) -> None:
        """A later request of the same session has arrived: this one gets an error."""


class FetchTopic:
    """A topic of a session. `name` is None while the metadata cache does not know the topic id."""

    __slots__ = ("name", "owner", "partitions", "topic_id")

    def __init__(self, owner: FetchPartitions, name: str | None, topic_id: bytes) -> None:
        self.owner = owner
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, FetchPartition] = {}


class FetchPartition:
    """A partition of a client's fetch, and the offsets that the client knows: `high_watermark` and `start_offset`, -1 before the first
    response.

    `replica` is the replica that it watches.
    """

    __slots__ = (
        "current_leader_epoch", "fetch_offset", "high_watermark", "index", "last_fetched_epoch", "log_start_offset", "max_bytes",
        "replica", "start_offset", "topic",
    )

    def __init__(self, topic: FetchTopic, request: messages.FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.index = request[0]
        self.update(request)
        self.high_watermark = UNKNOWN
        self.start_offset = UNKNOWN
        self.replica: HostedPartition | None = None

    def update(self, request: messages.FetchRequest.FetchPartition) -> None:
        """Adopt the values of a later request."""
        _, self.current_leader_epoch, self.fetch_offset, self.last_fetched_epoch, self.log_start_offset, self.max_bytes, _, _ = request

    def watch(self, replica: HostedPartition | None) -> None:
        """Watch this replica instead of the former one; None for none."""
        if self.replica is not replica:
            if self.replica is not None:
                self.replica.unwatch(self)
            self.replica = replica
            if replica is not None:
                replica.watch(self)

    def partition_changed(self, partition: HostedPartition) -> None:
        """The replica has changed."""
        owner = self.topic.owner
        owner.changed[self] = None
        if owner.waiting is not None:
            owner.waiting.partition_changed(self)

    def is_news(self, error_code: int, high_watermark: int, start_offset: int, is_notable: bool) -> bool:
        """What `must_respond` would return."""
        return bool(is_notable or error_code or self.high_watermark != high_watermark or self.start_offset != start_offset)

    def must_respond(self, error_code: int, high_watermark: int, start_offset: int, is_notable: bool) -> bool:
        """Whether an incremental response must contain this partition. It counts as sent: the client then knows these offsets.

        `is_notable`: the result has records, a diverging epoch or a preferred replica.
        """
        respond = is_notable
        if self.high_watermark != high_watermark:
            respond = True
            self.high_watermark = high_watermark
        if self.start_offset != start_offset:
            respond = True
            self.start_offset = start_offset
        if error_code:
            respond = True
            self.high_watermark = UNKNOWN  # so that the partition is sent again after the error
        return respond


class FetchPartitions:
    """The partitions of a session, or those of one fetch without a session."""

    __slots__ = ("changed", "count", "params", "topics", "uses_topic_ids", "waiting")

    def __init__(self, uses_topic_ids: bool) -> None:
        self.uses_topic_ids = uses_topic_ids
        self.topics: dict[str | bytes, FetchTopic] = {}
        self.count = 0
        self.changed: dict[FetchPartition, None] = {}
        """The partitions to read, in order."""
        self.waiting: Waiting | None = None
        self.params: tuple[Any, ...] | None = None
        """The other parameters of the last request that determine its responses."""

    def update(
        self, request: messages.FetchRequest, topic_name: Callable[[bytes], str | None], slice_size: int, *, forget: bool = True
    ) -> Iterator[None]:
        """Add and change the partitions in the request; yields after each slice. If a partition is named twice, the last entry counts.

        `forget`: also remove the partitions that the request names as forgotten. It is False for a full request.
        """
        by_id = self.uses_topic_ids
        topics, changed = self.topics, self.changed
        max_bytes = number = 0
        for name, topic_id, partitions in request.topics:
            number += 1
            if number % slice_size == 0:
                yield
            topic = topics.get(topic_id if by_id else name)
            if topic is None:
                if not partitions:
                    continue
                topic = FetchTopic(self, topic_name(topic_id), topic_id) if by_id else FetchTopic(self, name, ZERO_UUID)
                topics[topic_id if by_id else name] = topic
            known = topic.partitions
            for wanted in partitions:
                number += 1
                if number % slice_size == 0:
                    yield
                partition = known.get(wanted[0])
                if partition is None:
                    partition = known[wanted[0]] = FetchPartition(topic, wanted)
                    self.count += 1
                else:
                    partition.update(wanted)
                if partition.max_bytes == max_bytes:
                    partition.max_bytes = max_bytes  # one object for all: there may be a hundred thousand
                else:
                    max_bytes = partition.max_bytes
                changed[partition] = None
        for name, topic_id, indexes in request.forgotten_topics_data if forget else ():
            topic = topics.get(topic_id if by_id else name)
            if topic is not None:
                for start in range(0, len(indexes), slice_size):
                    if start:
                        yield
                    self._forget(topic, indexes[start : start + slice_size])

    def _forget(self, topic: FetchTopic, indexes: Iterable[int]) -> None:
        for index in indexes:
            partition = topic.partitions.pop(index, None)
            if partition is not None:
                self.count -= 1
                self.changed.pop(partition, None)
                partition.watch(None)
        if not topic.partitions:
            self.topics.pop(topic.topic_id if self.uses_topic_ids else topic.name or "", None)

    def look_at_all(self) -> None:
        """Read every partition the next time."""
        self.changed.update((partition, None) for topic in self.topics.values() for partition in topic.partitions.values())

    def gave_records(self, partition: FetchPartition) -> None:
        """Read this partition after all others the next time, because it gave records."""
        del self.changed[partition]
        self.changed[partition] = None

    def unwatch(self) -> None:
        """Stop watching replicas."""
        for topic in self.topics.values():
            for partition in topic.partitions.values():
                partition.watch(None)


class FetchSession:
    """The session of one client. `epoch` is the epoch of its next request; `is_follower`: the client is a follower, not a consumer."""

    __slots__ = ("created_ms", "epoch", "id", "is_follower", "is_old", "is_open", "partitions", "size", "used_ms")

    def __init__(self, session_id: int, is_follower: bool, partitions: FetchPartitions, now_ms: int) -> None:
        self.id = session_id
        self.is_follower = is_follower
        self.partitions = partitions
        self.created_ms = self.used_ms = now_ms
        self.epoch = INITIAL_EPOCH + 1
        self.size = partitions.count
        """Number of partitions after its last request."""
        self.is_old = False
        """Whether it was older than two minutes at its last request."""
        self.is_open = True

    def touch(self, now_ms: int) -> None:
        """Note a request of this session."""
        self.used_ms = now_ms
        self.size = self.partitions.count
        self.is_old = now_ms - self.created_ms > EVICTION_MS


class FetchContext:
    """One fetch: its partitions and its session, if it has one. With `makes_session` its response may create one."""

    __slots__ = ("epoch", "is_full", "makes_session", "partitions", "session")

    def __init__(self, partitions: FetchPartitions, session: FetchSession | None, makes_session: bool = False) -> None:
        self.partitions = partitions
        self.session = session
        self.epoch = FINAL_EPOCH if session is None else session.epoch
        self.makes_session = makes_session
        self.is_full = session is None

    @property
    def is_overtaken(self) -> bool:
        """Whether a later request of the session has arrived in the meantime."""
        return self.session is not None and self.session.epoch != self.epoch


class _Shard:
    """The sessions with ids from `first_id` on, in the order of their last use."""

    def __init__(self, first_id: int, slots: int, randrange: Callable[[int], int]) -> None:
        self.sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0
        self._first_id = first_id
        self._slots = slots
        self._randrange = randrange

    def create(self, partitions: FetchPartitions, is_follower: bool, now_ms: int) -> FetchSession | None:
        """Create a session; None if there is no slot for it."""
        if len(self.sessions) >= self._slots and not self._evict(is_follower, partitions.count, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self.sessions:
            session_id = self._first_id + self._randrange(SHARD_RANGE)
        session = self.sessions[session_id] = FetchSession(session_id, is_follower, partitions, now_ms)
        return session

    def _evict(self, is_follower: bool, size: int, now_ms: int) -> bool:
        if not self.sessions:
            return False
        oldest = next(iter(self.sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            self.remove(oldest)
            self.evictions += 1
            return True
        candidates = [s for s in self.sessions.values() if s.is_old or (is_follower and not s.is_follower)]
        if not candidates:
            return False
        least = min(candidates, key=lambda session: (session.is_follower, session.size, session.id))
        if (is_follower, size, 0) < (least.is_follower, least.size, least.id):
            return False
        self.remove(least)
        self.evictions += 1
        return True

    def remove(self, session: FetchSession) -> None:
        del self.sessions[session.id]
        session.is_open = False
        if session.partitions.waiting is None:  # otherwise it happens at the end of the wait
            session.partitions.unwatch()


def _is_outside(session_id: int) -> bool:
    """Whether an id is too large or too small for all shards: Apache Kafka fails to look for it."""
    return not -SHARD_RANGE < session_id < SHARDS * SHARD_RANGE


class FetchSessionCache:
    """All sessions of a broker. Their maximum number `slots` is a multiple of eight."""

    def __init__(self, slots: int, randrange: Callable[[int], int]) -> None:
        self._shards = [_Shard(number * SHARD_RANGE, slots // SHARDS, randrange) for number in range(SHARDS)]
        self._next = 0

    def __len__(self) -> int:
        return sum(len(shard.sessions) for shard in self._shards)

    @property
    def partition_count(self) -> int:
        """Partitions in all sessions, as of their last requests."""
        return sum(session.size for shard in self._shards for session in shard.sessions.values())

    @property
    def evictions(self) -> int:
        """How many sessions were removed for the sake of others."""
        return sum(shard.evictions for shard in self._shards)

    def get(self, session_id: int) -> FetchSession | None:
        """The session with this id, None if there is none. Any number is allowed."""
        return None if _is_outside(session_id) else self._shards[max(session_id, 0) // SHARD_RANGE].sessions.get(session_id)

    def begin(self, request: messages.FetchRequest, version: int) -> FetchContext | ErrorCode:
        """Begin a request: returns its context, or the error if its session cannot be used. The caller then updates the partitions and
        calls
        `complete`.
        """
        if _is_outside(request.session_id):
            return ErrorCode.UNKNOWN_SERVER_ERROR
        session = self.get(request.session_id) if request.session_id != NO_SESSION else None
        uses_topic_ids = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self.close(session)
            return FetchContext(FetchPartitions(uses_topic_ids), None, request.session_epoch == INITIAL_EPOCH)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.partitions.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.partitions.waiting is not None:
            session.partitions.waiting.overtaken()
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        return FetchContext(session.partitions, session)

    def complete(self, context: FetchContext, now_ms: int) -> FetchContext:
        """Return the context after its partitions were updated. A session without partitions ends."""
        session = context.session
        if session is None or not session.is_open:
            return context
        if not session.partitions.count:
            self.close(session)
            return FetchContext(FetchPartitions(session.partitions.uses_topic_ids), None)
        session.touch(now_ms)
        self._shards[session.id // SHARD_RANGE].sessions.move_to_end(session.id)
        return context

    def create(self, partitions: FetchPartitions, is_follower: bool, now_ms: int) -> FetchSession | None:
        """Create a session with these partitions; None if there is no slot for it."""
        shard = self._shards[self._next]
        self._next = (self._next + 1) % SHARDS
        return shard.create(partitions, is_follower, now_ms)

    def close(self, session: FetchSession) -> None:
        """End an open session."""
        self._shards[session.id // SHARD_RANGE].remove(session)
