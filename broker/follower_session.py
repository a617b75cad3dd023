"""The partitions that a follower fetches from one leader, and the fetch session with it. It does no IO.

A session begins with a full request, which names all partitions. After that a request only names partitions that changed since the last
request (another offset, leader epoch or log start offset), new ones, and those to forget; the leader responds with the partitions that
changed there. So an idle partition costs nothing, and making a request does not go through all partitions. A response with an error
ends the session, and the next request is a full one.

A partition that is delayed, throttled or truncating is not in the session during that time, as in Kafka. One request is in flight at a
time. A partition that changed after the request was sent is in `changed` again, and its data in the response is ignored. Source: KIP-227,
KIP-516,
`FetchSessionHandler` of 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID

FULL = 0
"""Session epoch of a full request, which begins a session."""
MAX_EPOCH = 2**31 - 1
Hosted = TypeVar("Hosted")


class Standing(IntEnum):
    """Whether a partition is fetched. REMOVED: this object is not used any more; the partition may have another one."""

    READY = 0
    DELAYED = 1
    TRUNCATING = 2
    REMOVED = 3
    THROTTLED = 4


class FollowedPartition(Generic[Hosted]):
    """One partition of a fetcher. `offset` is the next offset to fetch, `leader_epoch` the one from LeaderAndIsr.

    `lag` is the distance from that offset to the leader's high watermark in the last response, -1 before the first response.
    `told_start` is the log start offset in the last request that named the partition, -1 before the first one.
    """

    __slots__ = ("hosted", "in_session", "index", "lag", "leader_epoch", "offset", "standing", "told_start", "topic")

    def __init__(
        self, topic: FollowedTopic[Hosted], index: int, hosted: Hosted, leader_epoch: int, offset: int, standing: Standing = Standing.READY
    ) -> None:
        self.topic = topic
        self.index = index
        self.hosted = hosted
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.standing = standing
        self.in_session = False
        self.lag = self.told_start = -1

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"


class FollowedTopic(Generic[Hosted]):
    """The partitions of one topic that are fetched from the leader. The id is zero if the controller does not know it."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, FollowedPartition[Hosted]] = {}


class Content(NamedTuple, Generic[Hosted]):
    """The content of the next request. `has_ids`: every topic in the session has an id, so that a version above 12 may be used."""

    session_id: int
    session_epoch: int
    partitions: list[tuple[FollowedTopic[Hosted], list[FollowedPartition[Hosted]]]]
    forgotten: list[tuple[str, bytes, list[int]]]
    has_ids: bool
    size: int
    """Number of partitions in `partitions`."""


class FollowerSession(Generic[Hosted]):
    """All partitions that are fetched from one leader, and the state of the session."""

    def __init__(self) -> None:
        self.session_id = 0
        self.session_epoch = FULL
        self.count = 0
        """Number of all partitions, also of those that are delayed."""
        self.entered = 0
        """Counts each partition that is added or resumed."""
        self._topics: dict[str, FollowedTopic[Hosted]] = {}
        self._by_id: dict[bytes, FollowedTopic[Hosted]] = {}
        self._changed: dict[FollowedPartition[Hosted], None] = {}
        self._forgotten: dict[tuple[str, bytes], dict[int, None]] = {}
        self._members = 0
        self._members_without_id = 0
        self._sent = 0

    def __iter__(self) -> Iterator[FollowedPartition[Hosted]]:
        for topic in self._topics.values():
            yield from topic.partitions.values()

    # which partitions

    def get(self, topic: str, index: int) -> FollowedPartition[Hosted] | None:
        followed = self._topics.get(topic)
        return None if followed is None else followed.partitions.get(index)

    def topic(self, name: str) -> FollowedTopic[Hosted] | None:
        """The partitions of a topic, None if there are none."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> FollowedTopic[Hosted] | None:
        return self._by_id.get(topic_id)

    def add(
        self, topic: str, topic_id: bytes, index: int, hosted: Hosted, leader_epoch: int, offset: int, standing: Standing = Standing.READY
    ) -> FollowedPartition[Hosted]:
        """Start fetching a partition. If it is fetched already, it starts again."""
        self.remove(topic, index)
        followed = self._topics.get(topic)
        if followed is None:
            followed = self._topics[topic] = FollowedTopic(topic, topic_id)
            self._by_id[topic_id] = followed
        elif followed.topic_id != topic_id:
            self.set_topic_id(topic, topic_id)
        partition = FollowedPartition(followed, index, hosted, leader_epoch, offset, standing)
        followed.partitions[index] = partition
        self.count += 1
        if standing is Standing.READY:
            self._enter(partition)
        return partition

    def remove(self, topic: str, index: int) -> bool:
        """Stop fetching a partition; returns whether it was fetched."""
        followed = self._topics.get(topic)
        partition = None if followed is None else followed.partitions.pop(index, None)
        if followed is None or partition is None:
            return False
        self._leave(partition, Standing.REMOVED)
        self.count -= 1
        if not followed.partitions:
            del self._topics[topic]
            if self._by_id.get(followed.topic_id) is followed:
                del self._by_id[followed.topic_id]
        return True

    def set_topic_id(self, topic: str, topic_id: bytes) -> None:
        """Change the id of a topic. Its partitions in the session are forgotten under the old id."""
        followed = self._topics.get(topic)
        if followed is None or followed.topic_id == topic_id:
            return
        ready = [partition for partition in followed.partitions.values() if partition.standing is Standing.READY]
        for partition in ready:
            self._leave(partition, Standing.READY)
        if self._by_id.get(followed.topic_id) is followed:
            del self._by_id[followed.topic_id]
        followed.topic_id = topic_id
        self._by_id[topic_id] = followed
        for partition in ready:
            self._enter(partition)

    def leave(self, partition: FollowedPartition[Hosted], standing: Standing) -> None:
        """Leave the partition out of requests until it is `resume`d."""
        self._leave(partition, standing)

    def resume(self, partition: FollowedPartition[Hosted]) -> None:
        """Fetch the partition again."""
        partition.standing = Standing.READY
        self._enter(partition)

    def change(self, partition: FollowedPartition[Hosted]) -> None:
        """The next request must name this partition, because its offset or epoch changed."""
        self._changed[partition] = None

    def concerns(self, partition: FollowedPartition[Hosted]) -> bool:
        """Whether the last response is valid for the partition: it has not changed since the request."""
        return partition.standing is Standing.READY and partition.in_session and partition not in self._changed

    def _enter(self, partition: FollowedPartition[Hosted]) -> None:
        self.entered += 1
        self._changed[partition] = None
        topic = partition.topic
        forgotten = self._forgotten.get((topic.name, topic.topic_id))
        if forgotten is not None and partition.index in forgotten:  # the leader still has it
            del forgotten[partition.index]
            if not forgotten:
                del self._forgotten[topic.name, topic.topic_id]
            self._join(partition)

    def _join(self, partition: FollowedPartition[Hosted]) -> None:
        partition.in_session = True
        self._members += 1
        self._members_without_id += partition.topic.topic_id == ZERO_UUID

    def _leave(self, partition: FollowedPartition[Hosted], standing: Standing) -> None:
        partition.standing = standing
        self._changed.pop(partition, None)
        if partition.in_session:
            partition.in_session = False
            topic = partition.topic
            self._members -= 1
            self._members_without_id -= topic.topic_id == ZERO_UUID
            self._forgotten.setdefault((topic.name, topic.topic_id), {})[partition.index] = None

    # requests and responses

    def build(self) -> Content[Hosted] | None:
        """The content of the next request, which the caller must send; None if there is nothing to fetch or to forget."""
        if self.session_epoch == FULL:
            return self._build_full()
        if not self._members and not self._changed and not self._forgotten:
            return None
        grouped: dict[FollowedTopic[Hosted], list[FollowedPartition[Hosted]]] = {}
        for partition in self._changed:
            if not partition.in_session:
                self._join(partition)
            topic = partition.topic
            if topic in grouped:
                grouped[topic].append(partition)
            else:
                grouped[topic] = [partition]
        forgotten, has_ids = self._all_forgotten(grouped)
        self._sent, self._changed, self._forgotten = len(self._changed), {}, {}
        return Content(self.session_id, self.session_epoch, list(grouped.items()), forgotten, has_ids, self._sent)

    def _build_full(self) -> Content[Hosted] | None:
        self._changed, self._forgotten = {}, {}
        self._members = self._members_without_id = 0
        grouped = []
        for topic in self._topics.values():
            ready = []
            for partition in topic.partitions.values():
                partition.in_session = partition.standing is Standing.READY
                if partition.in_session:
                    ready.append(partition)
            if ready:
                grouped.append((topic, ready))
                self._members += len(ready)
                if topic.topic_id == ZERO_UUID:
                    self._members_without_id += len(ready)
        if not grouped:
            return None
        self._sent = self._members
        return Content(self.session_id, FULL, grouped, [], not self._members_without_id, self._members)

    def _all_forgotten(
        self, sent: dict[FollowedTopic[Hosted], list[FollowedPartition[Hosted]]]
    ) -> tuple[list[tuple[str, bytes, list[int]]], bool]:
        """The partitions to forget, and whether the request can use topic ids. A partition that is fetched again under another id is not
        forgotten if it had no id before, or if the request uses names.
        """
        again = {(topic.name, partition.index) for topic, partitions in sent.items() for partition in partitions}
        with_ids, by_name = [], []
        has_ids = not self._members_without_id
        for (name, topic_id), indexes in self._forgotten.items():
            gone = [index for index in indexes if (name, index) not in again]
            if gone:
                by_name.append((name, topic_id, gone))
            if topic_id != ZERO_UUID:
                with_ids.append((name, topic_id, list(indexes)))
            elif gone:
                has_ids = False
        return with_ids if has_ids else by_name, has_ids

    def take(self, error_code: int, session_id: int, count: int) -> bool:
        """Process the header of a response to the last request; `count` is its number of partitions. Returns whether to apply them."""
        if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._begin_again(0)
            return False
        if error_code != ErrorCode.NONE:
            self.fail()
            return False
        if self.session_epoch == FULL:
            if count != self._sent:
                self._begin_again(0)
                return False
            self.session_id = session_id
            self.session_epoch = 1 if session_id else FULL
        elif session_id == 0:
            self._begin_again(0)
        else:
            self.session_epoch = 1 if self.session_epoch == MAX_EPOCH else self.session_epoch + 1
        return True

    def fail(self) -> None:
        """The request failed, or its response was lost. The next request closes the session, if there is one, and begins a new one."""
        self._begin_again(self.session_id)

    def _begin_again(self, session_id: int) -> None:
        self.session_id = session_id
        self.session_epoch = FULL
