"""Fetch sessions (KIP-227): what a client fetches is remembered, so that its requests and our responses name only what changed.

A request with session epoch 0 is a full one and makes a session, epoch -1 makes none; both end the session whose id they name. Any other
epoch must be the next one of its session: the request then names partitions that are new or changed, and those to forget. A response
to an incremental request has the partitions with records, an error, or another high watermark or log start offset than the client has seen.

A session of thirty thousand partitions in which nothing happens costs nothing for each of them: every partition of a session watches its
replica, and is in `changed` from the moment at which the replica changes, or a request names it, until a response has shown the client all.
Only partitions in `changed` are looked at. Those that gave records go to its end, so that each has its turn when responses are full.

The number of sessions is bounded. When there is no place, a new session takes that of one not used for two minutes, else that of a smaller
one that is older than two minutes; a follower's session also takes that of any client. Ids and places are dealt out over eight shards, as
by Apache Kafka 3.9.1. Times are milliseconds of a clock that never goes back. Source: KIP-227; `FetchSession` of 3.9.1.
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
        """One of its partitions is to be looked at again."""

    def overtaken(self) -> None:
        """Another request of the same session has come: the response to this one is an error now."""


class FetchTopic:
    """A topic of a session. `name` is None as long as the metadata cache does not know the topic id."""

    __slots__ = ("name", "owner", "partitions", "topic_id")

    def __init__(self, owner: FetchPartitions, name: str | None, topic_id: bytes) -> None:
        self.owner = owner
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, FetchPartition] = {}


class FetchPartition:
    """A partition as a client wants it, and what the client has seen of it: `high_watermark`, `start_offset`, -1 before the first response.

    `replica` is the one that it watches.
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
        """Take what a later request says."""
        _, self.current_leader_epoch, self.fetch_offset, self.last_fetched_epoch, self.log_start_offset, self.max_bytes, _ = request

    def watch(self, replica: HostedPartition | None) -> None:
        """Follow this replica and no other; None for none."""
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

    def must_respond(self, error_code: int, high_watermark: int, start_offset: int, is_notable: bool) -> bool:
        """Whether a response to an incremental request has this partition; from then on the client knows these offsets.

        `is_notable`: with records, another leader epoch's end, or a replica to read from.
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
            self.high_watermark = UNKNOWN  # the partition is sent again when the error is gone
        return respond


class FetchPartitions:
    """The partitions of a session, or those of one fetch without a session."""

    __slots__ = ("changed", "count", "params", "topics", "uses_topic_ids", "waiting")

    def __init__(self, uses_topic_ids: bool) -> None:
        self.uses_topic_ids = uses_topic_ids
        self.topics: dict[str | bytes, FetchTopic] = {}
        self.count = 0
        self.changed: dict[FetchPartition, None] = {}
        """Those to look at, in the order in which they are read."""
        self.waiting: Waiting | None = None
        self.params: tuple[Any, ...] | None = None
        """What besides the partitions decides about the responses, as it was in the last request."""

    def update(
        self, request: messages.FetchRequest, topic_name: Callable[[bytes], str | None], slice_size: int, *, forget: bool = True
    ) -> Iterator[None]:
        """Add and change what the request names; yields after each slice. Of a partition named twice the last entry counts.

        `forget`: also forget what it wants forgotten. A full request forgets nothing, whatever it names.
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
        """Look at every partition at the next read."""
        self.changed.update((partition, None) for topic in self.topics.values() for partition in topic.partitions.values())

    def gave_records(self, partition: FetchPartition) -> None:
        """Read it after all others the next time."""
        del self.changed[partition]
        self.changed[partition] = None

    def unwatch(self) -> None:
        """Watch nothing any more."""
        for topic in self.topics.values():
            for partition in topic.partitions.values():
                partition.watch(None)


class FetchSession:
    """The session of one client. `epoch` is that of its next request; `is_follower`: of a follower, not of a consumer."""

    __slots__ = ("created_ms", "epoch", "id", "is_follower", "is_old", "is_open", "partitions", "size", "used_ms")

    def __init__(self, session_id: int, is_follower: bool, partitions: FetchPartitions, now_ms: int) -> None:
        self.id = session_id
        self.is_follower = is_follower
        self.partitions = partitions
        self.created_ms = self.used_ms = now_ms
        self.epoch = INITIAL_EPOCH + 1
        self.size = partitions.count
        """How many partitions it had after its last request."""
        self.is_old = False
        """Whether it had two minutes at its last request."""
        self.is_open = True

    def touch(self, now_ms: int) -> None:
        """A request has come."""
        self.used_ms = now_ms
        self.size = self.partitions.count
        self.is_old = now_ms - self.created_ms > EVICTION_MS


class FetchContext:
    """One fetch: its partitions, and the session that it belongs to, or that its response may make."""

    __slots__ = ("epoch", "is_full", "makes_session", "partitions", "session")

    def __init__(self, partitions: FetchPartitions, session: FetchSession | None, makes_session: bool = False) -> None:
        self.partitions = partitions
        self.session = session
        self.epoch = FINAL_EPOCH if session is None else session.epoch
        self.makes_session = makes_session
        self.is_full = session is None

    @property
    def is_overtaken(self) -> bool:
        """Whether another request of the session came meanwhile."""
        return self.session is not None and self.session.epoch != self.epoch


class _Shard:
    """The sessions with ids from `first_id` on, in the order of their last use."""

    def __init__(self, first_id: int, slots: int, randrange: Callable[[int], int]) -> None:
        self.sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._first_id = first_id
        self._slots = slots
        self._randrange = randrange

    def create(self, partitions: FetchPartitions, is_follower: bool, now_ms: int) -> FetchSession | None:
        """A new session, None when there is no place for it."""
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
            return True
        candidates = [s for s in self.sessions.values() if s.is_old or (is_follower and not s.is_follower)]
        if not candidates:
            return False
        least = min(candidates, key=lambda session: (session.is_follower, session.size, session.id))
        if (is_follower, size, 0) < (least.is_follower, least.size, least.id):
            return False
        self.remove(least)
        return True

    def remove(self, session: FetchSession) -> None:
        del self.sessions[session.id]
        session.is_open = False
        if session.partitions.waiting is None:  # otherwise the end of the wait does it
            session.partitions.unwatch()


class FetchSessionCache:
    """All sessions of a broker, at most `slots`, a multiple of eight."""

    def __init__(self, slots: int, randrange: Callable[[int], int]) -> None:
        self._shards = [_Shard(number * SHARD_RANGE, slots // SHARDS, randrange) for number in range(SHARDS)]
        self._next = 0

    def __len__(self) -> int:
        return sum(len(shard.sessions) for shard in self._shards)

    def get(self, session_id: int) -> FetchSession | None:
        """The session with this id; no number is a bad one."""
        shard = session_id // SHARD_RANGE
        return self._shards[shard].sessions.get(session_id) if 0 <= shard < SHARDS else None

    def begin(self, request: messages.FetchRequest, version: int) -> FetchContext | ErrorCode:
        """What a request fetches, as it was before it, or why its session cannot be used. Its partitions are to be updated, then
        `complete`."""
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
        """The context now that its partitions are updated: a session without any ends."""
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
        """A session of these partitions from now on, or None when there is no place for it."""
        shard = self._shards[self._next]
        self._next = (self._next + 1) % SHARDS
        return shard.create(partitions, is_follower, now_ms)

    def close(self, session: FetchSession) -> None:
        """End a session that is open."""
        self._shards[session.id // SHARD_RANGE].remove(session)
