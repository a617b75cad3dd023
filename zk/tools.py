"""A tool's access to ZooKeeper: brokers, topics, configs, and the two znodes below `/admin` that request work from the controller.

These two znodes are created, but never changed: an existing one is a request that the controller has not finished (layout 3.6).
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
    """The session of a tool at `hosts` (`host:port[,host:port…][/chroot]`)."""

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
        """Whether brokers have ever used this ZooKeeper and chroot."""
        return await self._session.exists(paths.TOPICS) is not None

    async def requested_reassignments(self) -> dict[TopicPartition, Ints]:
        """The content of `/admin/reassign_partitions`; empty if it does not exist."""
        node = await self._session.get(paths.REASSIGN_PARTITIONS)
        return {} if node is None else layout.decode_reassignments(node.data)

    async def request_reassignments(self, targets: Mapping[TopicPartition, Ints]) -> bool:
        """Request reassignments from the controller. False if an earlier request is in progress."""
        return await self._request(paths.REASSIGN_PARTITIONS, layout.encode_reassignments(targets))

    async def requested_elections(self) -> list[TopicPartition]:
        """The content of `/admin/preferred_replica_election`; empty if it does not exist."""
        node = await self._session.get(paths.PREFERRED_REPLICA_ELECTION)
        return [] if node is None else layout.decode_partitions(node.data)

    async def request_elections(self, partitions: Iterable[TopicPartition]) -> bool:
        """Request preferred elections from the controller. False if an earlier request is in progress."""
        return await self._request(paths.PREFERRED_REPLICA_ELECTION, layout.encode_partitions(partitions))

    async def _request(self, path: str, data: bytes) -> bool:
        try:
            await self._session.create(path, data, makepath=True)
        except NodeExists as problem:
            # It may be our own request, repeated because its response was lost.
            node = await self._session.get(path) if problem.repeated else None
            return node is not None and node.data == data
        return True
