"""Requests of tools below `/admin`, notifications of brokers, and throttles to remove (layout 3.6, 3.7, 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from klamm.controller.values import ThrottleRemovals
from klamm.protocol.nouns import TopicPartition
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.store.base import ZkArea

T = TypeVar("T", str, int)

_REPLICAS_REMOVAL = (paths.THROTTLED_REPLICAS_REMOVAL, paths.REMOVE_THROTTLED_REPLICAS)
_RATES_REMOVAL = (paths.THROTTLED_RATES_REMOVAL, paths.REMOVE_THROTTLED_RATES)


class ZkPreferredElection(ZkArea):
    """`/admin/preferred_replica_election`."""

    async def preferred_election(self) -> list[TopicPartition] | None:
        if await self._session.exists(paths.PREFERRED_REPLICA_ELECTION, self._seen) is None:
            return None
        node = await self._session.get(paths.PREFERRED_REPLICA_ELECTION)
        return None if node is None else layout.decode_partitions(node.data)

    async def delete_preferred_election(self) -> None:
        await self._delete_tree(paths.PREFERRED_REPLICA_ELECTION)


class ZkReassignments(ZkArea):
    """`/admin/reassign_partitions`."""

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        if await self._session.exists(paths.REASSIGN_PARTITIONS, self._seen) is None:
            return None
        node = await self._session.get(paths.REASSIGN_PARTITIONS)
        return None if node is None else layout.decode_reassignments(node.data)

    async def write_reassignments(self, entries: dict[TopicPartition, tuple[int, ...]]) -> None:
        if not entries:
            await self._delete_tree(paths.REASSIGN_PARTITIONS)
            return
        await self._put(paths.REASSIGN_PARTITIONS, layout.encode_reassignments(entries))


class ZkNotifications(ZkArea):
    """`/isr_change_notification` and `/log_dir_event_notification`."""

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


class ZkThrottleRemovals(ZkArea):
    """`/admin/throttled_replicas_removal` and `/admin/throttled_rates_removal`, including their alternative names."""

    async def throttle_removals(self) -> ThrottleRemovals:
        moves, *nodes = await self._session.read_versions([paths.REASSIGN_PARTITIONS, *_REPLICAS_REMOVAL, *_RATES_REMOVAL])
        topics = _union(nodes[:2], layout.decode_throttled_topics)
        return ThrottleRemovals(topics, _union(nodes[2:], layout.decode_throttled_brokers), moves is not None)

    async def throttled_replicas_removal(self) -> list[str] | None:
        return _union(await self._session.read_versions(_REPLICAS_REMOVAL), layout.decode_throttled_topics)

    async def write_throttled_replicas_removal(self, topics: Iterable[str]) -> None:
        await self._put(paths.THROTTLED_REPLICAS_REMOVAL, layout.encode_throttled_topics(topics))
        await self._delete([paths.REMOVE_THROTTLED_REPLICAS])

    async def delete_throttled_replicas_removal(self) -> None:
        await self._delete(_REPLICAS_REMOVAL)

    async def throttled_rates_removal(self) -> list[int] | None:
        return _union(await self._session.read_versions(_RATES_REMOVAL), layout.decode_throttled_brokers)

    async def write_throttled_rates_removal(self, broker_ids: Iterable[int]) -> None:
        await self._put(paths.THROTTLED_RATES_REMOVAL, layout.encode_throttled_brokers(broker_ids))
        await self._delete([paths.REMOVE_THROTTLED_RATES])

    async def delete_throttled_rates_removal(self) -> None:
        await self._delete(_RATES_REMOVAL)


def _union(nodes: Sequence[tuple[bytes | None, int] | None], decode: Callable[[bytes | None], list[T]]) -> list[T] | None:
    found = [node for node in nodes if node is not None]
    return sorted({name for data, _ in found for name in decode(data)}) if found else None
