"""`/brokers/topics` and the znodes below it, and the deletion of topics with all their znodes (layout 3.4, 3.5, 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from klamm.controller.events import catalogue as events
from klamm.controller.values import LeaderAndIsr, StateWrite, StoredTopic, TopicWrite, WriteOutcome
from klamm.protocol.nouns import TopicPartition
from klamm.zk.layout import paths
from klamm.zk.layout import topics as topic_layout
from klamm.zk.session.batches import BATCH_BYTES, BATCH_OPERATIONS
from klamm.zk.session.requests import utf8_size
from klamm.zk.session.session import ZkSession
from klamm.zk.store.base import ZkArea
from klamm.zk.store.fenced_writes import Entry, Fence, settle, together
from klamm.zk.store.state_requests import STATE_PATH_BYTES, ReadStates
from klamm.zk.store.state_writer import StateWriter


class ZkTopics(ZkArea):
    """Topic znodes."""

    async def topics(self) -> list[str]:
        return await self._session.children(paths.TOPICS, self._seen)

    async def read_topics(self, names: Sequence[str]) -> list[StoredTopic | None]:
        found = await self._session.watch_and_read(list(map(paths.topic_path, names)), self._seen)
        decode = self._session.topic_nodes.decode_topic
        return [None if node is None else decode(name, *node) for name, node in zip(names, found, strict=True)]

    async def write_topics(self, writes: Sequence[TopicWrite]) -> list[WriteOutcome]:
        ops = self._session.ops
        entries = [
            Entry([ops.set_data(paths.topic_path(topic), topic_layout.encode_topic(topic_id, assignments), expected)])
            for topic, topic_id, assignments, expected in writes
        ]
        return await self._fence.write(entries, settle)


class ZkPartitionStates(ZkArea):
    """State znodes of partitions."""

    def __init__(self, session: ZkSession, fence: Fence, on_event: Callable[[events.WatchEvent], None]) -> None:
        super().__init__(session, fence, on_event)
        self._states = StateWriter(session, fence)

    async def read_states(self, partitions: Sequence[TopicPartition]) -> list[LeaderAndIsr | None]:
        chroot = self._session.chroot
        longest = max((utf8_size(topic) for topic, _ in partitions), default=0)
        count = min(BATCH_OPERATIONS, max(1, BATCH_BYTES // (len(chroot.encode()) + longest + STATE_PATH_BYTES)))
        requests = [ReadStates(chroot, self._session.topic_nodes, partitions[i : i + count]) for i in range(0, len(partitions), count)]
        states: list[LeaderAndIsr | None] | None = await self._session.read_by(requests)
        if states is not None:
            return states
        found = await self._session.read_versions([paths.state_path(topic, partition) for topic, partition in partitions])
        decode = self._session.topic_nodes.decode_state
        return [None if node is None else decode(*node, of) for of, node in zip(partitions, found, strict=True)]

    async def watch_states(self, partitions: Sequence[TopicPartition]) -> list[LeaderAndIsr | None]:
        found = await self._session.watch_and_read([paths.state_path(*key) for key in partitions], self._seen)
        decode = self._session.topic_nodes.decode_state
        return [None if node is None else decode(*node, of) for of, node in zip(partitions, found, strict=True)]

    async def write_states(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        return await self._states.write(writes)

    async def create_states(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        return await self._states.create(writes)


class ZkTopicDeletions(ZkArea):
    """Requests to delete topics, and the deletion of their znodes."""

    async def deletions(self) -> list[str]:
        return await self._session.children(paths.DELETE_TOPICS, self._seen)

    async def remove_deletions(self, topics: Iterable[str]) -> None:
        await self._delete(map(paths.deletion_path, topics))

    async def delete_topics(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        ops = self._session.ops
        entries, names, others = [], [], []
        for topic, partitions in topics:
            if 2 * len(partitions) + 4 > BATCH_OPERATIONS:
                others.append(topic)
                continue
            below = [path for p in partitions for path in (paths.state_path(topic, p), paths.partition_path(topic, p))]
            doomed = [*below, paths.partitions_path(topic), *_topic_nodes(topic)]
            entries.append(Entry(list(map(ops.delete, doomed))))
            names.append(topic)
        outcomes = await self._fence.write(entries, settle)
        # The tree does not look as expected: znodes are missing, or there are more.
        others += [topic for topic, outcome in zip(names, outcomes, strict=True) if outcome is not WriteOutcome.OK]
        await together(self._delete_topic(topic) for topic in others)

    async def _delete_topic(self, topic: str) -> None:
        for path in _topic_nodes(topic):
            await self._delete_tree(path)


def _topic_nodes(topic: str) -> tuple[str, str, str]:
    """The znodes that are deleted with a topic, in order."""
    return paths.topic_path(topic), paths.config_path("topics", topic), paths.deletion_path(topic)
