"""Requests of tools below `/admin`, and the notifications of brokers (layout 3.6, 3.7)."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.controller.values import StoreRefused
from klamm.protocol.nouns import TopicPartition
from klamm.zk import layout, paths
from klamm.zk.requests import MultiFailed, TooLarge, ZkError
from klamm.zk.store_base import ZkArea


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
