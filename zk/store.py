"""The controller's log on a real ZooKeeper: controller/store.py, method by method.

Reads of many nodes are multiReads, writes of many are fenced multis (see `fenced` and `state_writer`), all pipelined. Watches put the
controller's events on its queue (see `watches`); a kind of change that a path does not report uses the watch up all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from klamm.controller import events
from klamm.controller.values import (
    Broker,
    ControllerEpoch,
    ControllerMoved,
    LeaderAndIsr,
    Outcome,
    StateWrite,
    StoredTopic,
    StoreRefused,
    TopicPartition,
    TopicWrite,
    next_epoch,
)
from klamm.zk import layout, paths
from klamm.zk.broker_node import broker_ids, decode_broker
from klamm.zk.connection import Change
from klamm.zk.fenced import Entry, Fence, settle, settle_delete, together
from klamm.zk.layout import FeatureNode, ProducerIdBlock, Unreadable
from klamm.zk.requests import BAD_VERSION, NODE_EXISTS, BadVersion, MultiFailed, NodeExists, NoNode, TooLarge, ZkError
from klamm.zk.session import BATCH_BYTES, BATCH_OPERATIONS, ZkSession
from klamm.zk.state_requests import ReadStates
from klamm.zk.state_writer import StateWriter
from klamm.zk.watches import event_of

log = logging.getLogger(__name__)

PRODUCER_ID_BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = 2**63 - 1
# Bytes of a state's path below the chroot with what belongs to it in a request, at most.
_STATE_PATH_BYTES = 350
# Somebody who goes on creating nodes below one that is being deleted is waited for this often.
_DELETE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ZkStoreOptions:
    """What the inter-broker protocol decides: version of the JSON in `/feature` (2 from 3.3, 1 from 2.7), None for no features."""

    feature_version: int | None = 2


async def _not_awaited(version: int) -> None:
    """Nobody follows `/feature`."""


class ZkStore:
    """Store of the controller in the process that holds `session`."""

    def __init__(
        self,
        session: ZkSession,
        on_event: Callable[[events.WatchEvent], None],
        options: ZkStoreOptions | None = None,
        feature_seen: Callable[[int], Awaitable[None]] = _not_awaited,
    ) -> None:
        """`on_event` gets what watches saw, on the loop. `feature_seen` waits until this broker has seen a version of `/feature`."""
        self._session = session
        self._on_event = on_event
        self._options = options if options is not None else ZkStoreOptions()
        self._feature_seen = feature_seen
        self._fence = Fence(session)
        self._states = StateWriter(session, self._fence)

    # election

    async def watch_controller(self) -> None:
        await self._session.exists(paths.CONTROLLER, self._seen)

    async def controller_id(self) -> int:
        while True:
            node = await self._session.get(paths.CONTROLLER, self._seen)
            if node is not None:
                controller = layout.decode_controller(node.data)
                return -1 if controller is None else controller.broker_id
            # A read of a missing node arms nothing.
            if await self._session.exists(paths.CONTROLLER, self._seen) is None:
                return -1

    async def register_controller(self, broker_id: int, timestamp_ms: int) -> ControllerEpoch:
        generation = self._session.generation
        epoch, version = await self._controller_epoch()
        ops = self._session.ops
        try:
            _, stat = await self._session.multi(
                [
                    ops.create(paths.CONTROLLER, layout.encode_controller(broker_id, timestamp_ms), ephemeral=True),
                    ops.set_data(paths.CONTROLLER_EPOCH, layout.encode_controller_epoch(next_epoch(epoch)), version),
                ],
                results=True,
            )
            elected = ControllerEpoch(next_epoch(epoch), stat.version)
        except MultiFailed as failure:
            if failure.code not in (NODE_EXISTS, BAD_VERSION):
                raise StoreRefused(f"the election was refused: {failure}") from failure
            elected = await self._elected_after_all(broker_id, next_epoch(epoch))
        self._fence.raise_to(elected.zk_version, generation)
        return elected

    async def _controller_epoch(self) -> tuple[int, int]:
        while True:
            node = await self._session.get(paths.CONTROLLER_EPOCH)
            if node is not None:
                return layout.decode_controller_epoch(node.data), node.version
            try:
                await self._session.create(paths.CONTROLLER_EPOCH, layout.encode_controller_epoch(0))
            except NodeExists:
                continue

    async def _elected_after_all(self, broker_id: int, epoch: int) -> ControllerEpoch:
        """A failed attempt whose node is there with our id and epoch is a success whose answer was lost."""
        node = await self._session.get(paths.CONTROLLER)
        controller = layout.decode_controller(node.data) if node is not None else None
        if controller is not None and controller.broker_id == broker_id:
            stored, version = await self._controller_epoch()
            if stored == epoch:
                return ControllerEpoch(epoch, version)
        winner = "another broker" if controller is None else f"broker {controller.broker_id}"
        raise ControllerMoved(f"{winner} was elected")

    async def delete_controller(self) -> None:
        await self._delete([paths.CONTROLLER])

    async def end_leftover(self, broker_id: int) -> bool:
        """A session of an earlier life, if it has one, ends by its time-out."""
        _, epoch_version = await self._controller_epoch()
        node = await self._session.get(paths.CONTROLLER)
        controller = layout.decode_controller(node.data) if node is not None else None
        if controller is None or controller.broker_id != broker_id:
            return False
        log.warning("/controller names broker %d, which does not act as controller; deleting it", broker_id)
        ops = self._session.ops
        try:
            await self._session.multi([ops.check(paths.CONTROLLER_EPOCH, epoch_version), ops.delete(paths.CONTROLLER)])
        except MultiFailed as failure:
            log.debug("/controller was not deleted: %s", failure)
        return True

    def reset_fence(self) -> None:
        self._fence.drop()

    async def setup_feature(self) -> None:
        version = self._options.feature_version
        wanted = FeatureNode(1, False, {}) if version is None else FeatureNode(version, True, {})
        while True:
            node = await self._session.get(paths.FEATURE)
            if node is None:
                try:
                    await self._session.create(paths.FEATURE, layout.encode_feature(wanted))
                except NodeExists:
                    continue
                await self._feature_written(0)
                return
            try:
                found = layout.decode_feature(node.data)
            except Unreadable as problem:
                log.warning("%s; it is written anew", problem)
                found = FeatureNode(0, False, {})
            if version is not None and found.enabled:
                wanted = FeatureNode(version, True, _feature_levels(found.features, version))
            if found != wanted:
                stat = await self._session.set(paths.FEATURE, layout.encode_feature(wanted))
                await self._feature_written(stat.version)
            return

    async def _feature_written(self, version: int) -> None:
        """Fail-over goes on when this broker's own watch has seen what it wrote (layout 3.11)."""
        if self._options.feature_version is not None:
            await self._feature_seen(version)

    # brokers

    async def brokers(self) -> dict[int, Broker]:
        ids = broker_ids(await self._session.children(paths.BROKER_IDS, self._seen))
        found = {}
        for broker_id, node in zip(ids, await self._session.read_many(list(map(paths.broker_path, ids))), strict=True):
            if node is None:
                continue
            try:
                found[broker_id] = decode_broker(broker_id, node.czxid, node.data)
            except Unreadable:
                mended = await self.broker(broker_id)  # says what is wrong, and watches for its repair
                if mended is not None:
                    found[broker_id] = mended
        return found

    async def broker(self, broker_id: int) -> Broker | None:
        node = await self._session.get(paths.broker_path(broker_id), self._seen)
        if node is None:
            return None
        try:
            return decode_broker(broker_id, node.czxid, node.data)
        except Unreadable as problem:
            log.error("Broker %d counts as absent: %s", broker_id, problem)
            return None

    async def watch_brokers(self, broker_ids: Iterable[int]) -> None:
        await together(self._session.exists(paths.broker_path(broker_id), self._seen) for broker_id in broker_ids)

    # topics

    async def topics(self) -> list[str]:
        return await self._session.children(paths.TOPICS, self._seen)

    async def read_topics(self, names: Sequence[str]) -> list[StoredTopic | None]:
        found = await self._session.watch_and_read(list(map(paths.topic_path, names)), self._seen)
        return [None if node is None else layout.decode_topic(name, node[0]) for name, node in zip(names, found, strict=True)]

    async def write_topics(self, writes: Sequence[TopicWrite]) -> list[Outcome]:
        ops = self._session.ops
        entries = [
            Entry([ops.set_data(paths.topic_path(topic), layout.encode_topic(topic_id, assignments), -1)])
            for topic, topic_id, assignments in writes
        ]
        return await self._fence.write(entries, settle)

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
        # Not of the expected shape: nodes missing, or more of them than known.
        others += [topic for topic, outcome in zip(names, outcomes, strict=True) if outcome is not Outcome.OK]
        await together(self._delete_topic(topic) for topic in others)

    async def _delete_topic(self, topic: str) -> None:
        for path in _topic_nodes(topic):
            await self._delete_tree(path)

    # partition states

    async def read_states(self, partitions: Sequence[tuple[str, int]]) -> list[LeaderAndIsr | None]:
        chroot = self._session.chroot
        count = min(BATCH_OPERATIONS, max(1, BATCH_BYTES // (len(chroot.encode()) + _STATE_PATH_BYTES)))
        requests = [ReadStates(chroot, partitions[i : i + count]) for i in range(0, len(partitions), count)]
        states: list[LeaderAndIsr | None] | None = await self._session.read_by(requests)
        if states is not None:
            return states
        found = await self._session.read_versions([paths.state_path(topic, partition) for topic, partition in partitions])
        decode = layout.decode_state
        return [None if node is None else decode(*node, of) for of, node in zip(partitions, found, strict=True)]

    async def write_states(self, writes: Sequence[StateWrite]) -> list[Outcome]:
        return await self._states.write(writes)

    async def create_states(self, writes: Sequence[StateWrite]) -> list[Outcome]:
        return await self._states.create(writes)

    # admin nodes

    async def deletions(self) -> list[str]:
        return await self._session.children(paths.DELETE_TOPICS, self._seen)

    async def remove_deletions(self, topics: Iterable[str]) -> None:
        await self._delete(map(paths.deletion_path, topics))

    async def preferred_election(self) -> list[TopicPartition] | None:
        if await self._session.exists(paths.PREFERRED_REPLICA_ELECTION, self._seen) is None:
            return None
        node = await self._session.get(paths.PREFERRED_REPLICA_ELECTION)
        return None if node is None else layout.decode_partitions(node.data)

    async def delete_preferred_election(self) -> None:
        await self._delete_tree(paths.PREFERRED_REPLICA_ELECTION)

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        if await self._session.exists(paths.REASSIGN_PARTITIONS, self._seen) is None:
            return None
        node = await self._session.get(paths.REASSIGN_PARTITIONS)
        return None if node is None else layout.decode_reassignments(node.data)

    async def write_reassignments(self, entries: dict[TopicPartition, tuple[int, ...]]) -> None:
        if not entries:
            await self._delete_tree(paths.REASSIGN_PARTITIONS)
            return
        data, ops = layout.encode_reassignments(entries), self._session.ops
        for operation in (
            ops.set_data(paths.REASSIGN_PARTITIONS, data, -1),
            ops.create(paths.REASSIGN_PARTITIONS, data),
            ops.set_data(paths.REASSIGN_PARTITIONS, data, -1),
        ):
            try:
                await self._fence.multi([operation])
                return
            except MultiFailed as failure:
                last: ZkError = failure
            except TooLarge as problem:
                last = problem
                break
        raise StoreRefused(f"/admin/reassign_partitions cannot be written: {last}")

    # notifications

    async def isr_notifications(self) -> tuple[list[str], list[TopicPartition]]:
        names, contents = await self._notifications(paths.ISR_CHANGE_NOTIFICATION)
        partitions = [partition for data in contents for partition in layout.decode_partitions(data)]
        return names, list(dict.fromkeys(partitions))

    async def delete_isr_notifications(self, names: Iterable[str]) -> None:
        await self._delete(f"{paths.ISR_CHANGE_NOTIFICATION}/{name}" for name in names)

    async def log_dir_notifications(self) -> tuple[list[str], list[int]]:
        names, contents = await self._notifications(paths.LOG_DIR_EVENT_NOTIFICATION)
        broker_ids = map(layout.decode_log_dir_event, contents)
        return names, list(dict.fromkeys(broker_id for broker_id in broker_ids if broker_id is not None))

    async def delete_log_dir_notifications(self, names: Iterable[str]) -> None:
        await self._delete(f"{paths.LOG_DIR_EVENT_NOTIFICATION}/{name}" for name in names)

    async def _notifications(self, parent: str) -> tuple[list[str], list[bytes | None]]:
        names = sorted(await self._session.children(parent, self._seen))
        found = await self._session.read_versions([f"{parent}/{name}" for name in names])
        return names, [node[0] for node in found if node is not None]

    # configs and producer ids

    async def topic_configs(self, topics: Sequence[str]) -> list[dict[str, str] | None]:
        nodes = await self._session.read_each([paths.config_path("topics", topic) for topic in topics])
        configs: list[dict[str, str] | None] = []
        for topic, node in zip(topics, nodes, strict=True):
            try:
                if isinstance(node, ZkError):
                    raise node
                configs.append({} if node is None else layout.decode_config(node.data))
            except (Unreadable, ZkError) as problem:
                log.warning("The config of topic %s cannot be read: %s", topic, problem)
                configs.append(None)
        return configs

    async def allocate_producer_ids(self, broker_id: int) -> tuple[int, int]:
        while True:
            node = await self._session.get(paths.PRODUCER_IDS)
            if node is None:
                raise Unreadable(f"{paths.PRODUCER_IDS} is missing")
            last = layout.decode_producer_ids(node.data)
            first = 0 if last is None else last.last + 1
            if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
                raise Unreadable("there are no producer ids left")
            block = ProducerIdBlock(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
            try:
                await self._session.set(paths.PRODUCER_IDS, layout.encode_producer_ids(block), node.version)
            except (BadVersion, NoNode):
                continue
            return first, PRODUCER_ID_BLOCK_SIZE

    # deleting and watching

    async def _delete(self, doomed: Iterable[str]) -> bool:
        """Delete nodes, fenced; False when one has children."""
        entries = [Entry([self._session.ops.delete(path)]) for path in doomed]
        return all(outcome is Outcome.OK for outcome in await self._fence.write(entries, settle_delete))

    async def _delete_tree(self, path: str) -> None:
        """Depth first; a missing node is fine (layout 1.2)."""
        for _ in range(_DELETE_ATTEMPTS):
            levels = [[path]]
            while levels[-1]:
                children = await self._session.children_of(levels[-1])
                levels.append([f"{parent}/{name}" for parent, names in zip(levels[-1], children, strict=True) for name in names or ()])
            complete = True
            for level in reversed(levels):
                complete = await self._delete(level)
            if complete:
                return
        raise StoreRefused(f"{path} cannot be deleted: somebody keeps creating nodes below it")

    def _seen(self, change: Change, path: str) -> None:
        event = event_of(change, path)
        if event is not None:
            self._on_event(event)


def _topic_nodes(topic: str) -> tuple[str, str, str]:
    """What goes with a topic, in the order in which it goes."""
    return paths.topic_path(topic), paths.config_path("topics", topic), paths.deletion_path(topic)


def _feature_levels(features: dict[str, Any], version: int) -> dict[str, Any]:
    """Finalised features in the shape of a JSON version: version 1 has a minimum level too."""
    if version == 1:
        return {name: {"min_version_level": 1, **levels} for name, levels in features.items()}
    return {name: {"max_version_level": levels["max_version_level"]} for name, levels in features.items()}
