"""A tool's access to ZooKeeper: what is registered, the configs, and the two znodes below `/admin` that request work of the controller.

The znodes are created, never changed: one that is there belongs to a request that the controller has not finished (layout 3.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.protocol.nouns import Ints, TopicPartition
from klamm.zk.admin import AdminZk
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.session.requests import NodeExists
from klamm.zk.session.session import ZkSession

SESSION_TIMEOUT_MS = 30_000


class ToolZk:
    """A session of a tool at `hosts` (`host:port[,host:port…][/chroot]`)."""

    def __init__(self, hosts: str) -> None:
        self._session = ZkSession(hosts, SESSION_TIMEOUT_MS)
        self.admin = AdminZk(self._session)

    async def start(self, timeout_ms: int) -> None:
        """Connect. Raises ZkUnavailable. Nothing is created, not even the chroot."""
        await self._session.start(timeout_ms, create_chroot=False)

    async def stop(self) -> None:
        """End the session."""
        await self._session.stop()

    async def is_kafka(self) -> bool:
        """Whether brokers have ever used this ZooKeeper with this chroot."""
        return await self._session.exists(paths.TOPICS) is not None

    async def requested_reassignments(self) -> dict[TopicPartition, Ints]:
        """What `/admin/reassign_partitions` still requests; empty when it is not there."""
        node = await self._session.get(paths.REASSIGN_PARTITIONS)
        return {} if node is None else layout.decode_reassignments(node.data)

    async def request_reassignments(self, targets: Mapping[TopicPartition, Ints]) -> bool:
        """Request reassignments of the controller; False when an earlier request is in progress."""
        return await self._request(paths.REASSIGN_PARTITIONS, layout.encode_reassignments(targets))

    async def requested_elections(self) -> list[TopicPartition]:
        """The partitions of `/admin/preferred_replica_election`; empty when it is not there."""
        node = await self._session.get(paths.PREFERRED_REPLICA_ELECTION)
        return [] if node is None else layout.decode_partitions(node.data)

    async def request_elections(self, partitions: Iterable[TopicPartition]) -> bool:
        """Request preferred elections of the controller; False when an earlier request is in progress."""
        return await self._request(paths.PREFERRED_REPLICA_ELECTION, layout.encode_partitions(partitions))

    async def _request(self, path: str, data: bytes) -> bool:
        try:
            await self._session.create(path, data, makepath=True)
        except NodeExists as problem:
            # The request may be our own, sent again because its response was lost.
            node = await self._session.get(path) if problem.repeated else None
            return node is not None and node.data == data
        return True
