"""Reads, writes and watches of znodes as coroutines. Paths are below the chroot of the session. `session` describes errors and retries."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.protocol.serialization import Create, Delete, Exists, GetChildren, GetData, SetData, Sync
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from klamm.zk.session.batches import BATCH_BYTES, BATCH_WATCHES, batches
from klamm.zk.session.connection import Connection, Watch, WatchCallback
from klamm.zk.session.requests import (
    BadPath,
    Multi,
    MultiRead,
    MultiReadChildren,
    MultiReadVersions,
    MultiVersions,
    NodeExists,
    NoNode,
    Operations,
    SetWatches,
    TooLarge,
    Unimplemented,
    ZkError,
    Znode,
    utf8_size,
)

log = logging.getLogger("klamm.zk.session.session")

_EPHEMERAL, _SEQUENCE = 1, 2
READ_AT_ONCE = 5000
"""Number of znodes that one call reads at the same time."""
_NO_ZNODE = NoNode, BadPath, TooLarge
"""The errors of a read of a znode that does not exist. A read is too large only if its path is."""


class ZkNodes(ABC):
    """Reads and writes the znodes below `chroot` in one session.

    A path that cannot be encoded, or is too long for a request, has no znode: it can be read, but not written.
    """

    def __init__(self, servers: str, chroot: str) -> None:
        self.servers = servers
        self.chroot = chroot
        self.ops = Operations(chroot)
        self._chroot_size = len(chroot.encode())
        self.connections = 0
        self._has_multi_read = True

    @abstractmethod
    async def call(self, request: Any) -> Any:
        """Send a request, and repeat it after a lost connection, until there is a response. Raises the error of the response; StoreLost if
        the session ends first.
        """

    @abstractmethod
    def _connected_or_last(self) -> Connection:
        """The connection of the next request."""

    async def get(self, path: str, watch: WatchCallback | None = None) -> Znode | None:
        """Data and Stat of a znode; None if it does not exist (then no watch is set)."""
        try:
            data, stat = await self.call(GetData(self._full(path), self._watch(path, watch)))
        except _NO_ZNODE:
            return None
        return _to_node(data, stat)

    async def sync(self, path: str) -> None:
        """After this, reads see everything that was written to any server before the call."""
        await self.call(Sync(self._full(path)))

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Znode | None:
        """Stat without data; None if the znode does not exist. The watch is set in both cases."""
        try:
            stat = await self.call(Exists(self._full(path), self._watch(path, watch)))
        except _NO_ZNODE:
            return None
        return None if stat is None else _to_node(None, stat)

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """Sorted names of the children; empty if the znode does not exist (then no watch is set)."""
        try:
            return sorted(await self.call(GetChildren(self._full(path), self._watch(path, watch))))
        except _NO_ZNODE:
            return []

    async def create(self, path: str, data: bytes | None, ephemeral: bool = False, sequence: bool = False, makepath: bool = False) -> str:
        """Create a znode that everybody can access, and return its path. With `makepath` missing parents are created, with null data.
        Raises NodeExists, NoNode.
        """
        flags = (_EPHEMERAL if ephemeral else 0) | (_SEQUENCE if sequence else 0)
        request = Create(self.chroot + path, data, OPEN_ACL_UNSAFE, flags)
        while True:
            try:
                created: str = await self.call(request)
                return created[len(self.chroot) :]
            except NoNode:
                parent = path.rpartition("/")[0]
                if not makepath or not parent:
                    raise
            try:
                await self.create(parent, None, makepath=True)
            except NodeExists:
                continue

    async def ensure(self, paths: Iterable[str]) -> None:
        """Create these znodes, with null data, and their parents, where they do not exist."""
        for path in paths:
            with suppress(NodeExists):
                await self.create(path, None, makepath=True)

    async def set(self, path: str, data: bytes, version: int = -1) -> Znode:
        """Replace the data and return the new Stat. Raises NoNode, BadVersion."""
        return _to_node(None, await self.call(SetData(self.chroot + path, data, version)))

    async def delete(self, path: str, version: int = -1) -> bool:
        """Delete a znode. False if it does not exist. Raises BadVersion, NotEmpty."""
        try:
            await self.call(Delete(self.chroot + path, version))
        except NoNode:
            return False
        return True

    async def multi(self, operations: Sequence[bytes], results: bool = False) -> list[Any]:
        """Do all operations (made with `ops`) or none. Raises MultiFailed. With `results`, returns a path, a Znode or None for each."""
        response: list[Any] | None = await self.call(Multi(operations, results))
        return [result[len(self.chroot) :] if isinstance(result, str) else result for result in response or ()]

    async def multi_versions(self, operations: Sequence[bytes]) -> list[int | None]:
        """Like `multi`. Returns for each operation the new version of its znode, or None if it wrote no data."""
        versions: list[int | None] = await self.call(MultiVersions(operations))
        return versions

    async def read_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Znodes in the requested order; None if one does not exist. Raises the first other error."""
        nodes = await self.read_each(paths)
        for node in nodes:
            if isinstance(node, ZkError):
                raise node
        return nodes

    async def read_each(self, paths: Sequence[str]) -> list[Any]:
        """Like `read_many`, but with a ZkError instead of a znode that cannot be read."""
        return await self._read(MultiRead, paths)

    async def read_versions(self, paths: Sequence[str]) -> list[tuple[bytes | None, int] | None]:
        """(data, version) in the requested order; None if a znode does not exist."""
        return await self._read(MultiReadVersions, paths)

    async def read_by(self, requests: Sequence[Any], first: Sequence[Any] = ()) -> list[Any] | None:
        """Joined responses of multiReads, which are sent after the requests `first`. None if the server does not support multiRead (before
        3.6).
        """
        if self._has_multi_read:
            try:
                responses = await self.call_all([*first, *requests])
                return [result for response in responses[len(first) :] for result in response]
            except Unimplemented:
                log.info("ZooKeeper at %s does not support multiRead; reading znodes one by one", self.servers)
                self._has_multi_read = False
        return None

    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Names of the children of each znode; None if it does not exist."""
        return await self._read(MultiReadChildren, paths)

    async def arm_data_watches(self, paths: Sequence[str], watch: WatchCallback) -> None:
        """Set a data watch on each path without reading it. If the znode does not exist, the watch fires at once as DELETED."""
        await self.call_all(self._arm(paths, watch))

    async def watch_and_read(self, paths: Sequence[str], watch: WatchCallback) -> list[tuple[bytes | None, int] | None]:
        """Set watches like `arm_data_watches`, then read (data, version) like `read_versions`."""
        while True:
            connections = self.connections
            found = await self._read(MultiReadVersions, paths, self._arm(paths, watch))
            if connections == self.connections:
                return found
            # The connection was lost in between: some data may be older than its watch.

    def _arm(self, paths: Sequence[str], watch: WatchCallback) -> list[SetWatches]:
        connection = self._connected_or_last()
        return [
            SetWatches({self.chroot + path: Watch(watch, path, connection.report) for path in batch}, lambda: connection.data_watchers)
            for batch in batches([path for path in paths if self._may_exist(path)], self._path_size, BATCH_WATCHES)
        ]

    async def call_all(self, requests: Iterable[Any]) -> list[Any]:
        """Send requests pipelined, and return their results in the same order. Raises the first error."""
        responses = await asyncio.gather(*map(self.call, requests), return_exceptions=True)
        for response in responses:
            if isinstance(response, BaseException):
                raise response
        return responses

    async def _read(self, kind: type[MultiRead], paths: Sequence[str], first: Sequence[Any] = ()) -> list[Any]:
        """Send the requests `first`, then read. Uses single reads if the server does not support multiRead (it closes the connection).

        A long list is read in parts, one after the other, so that the event loop runs in between.
        """
        if len(paths) > READ_AT_ONCE:
            found = await self._read(kind, paths[:READ_AT_ONCE], first)
            for at in range(READ_AT_ONCE, len(paths), READ_AT_ONCE):
                found += await self._read(kind, paths[at : at + READ_AT_ONCE])
            return found
        if not all(map(self._may_exist, paths)):
            present = iter(await self._read(kind, [path for path in paths if self._may_exist(path)], first))
            return [next(present) if self._may_exist(path) else None for path in paths]
        results = await self.read_by([kind(self.chroot, batch) for batch in batches(paths, self._path_size)], first)
        if results is not None:
            return results
        await self.call_all(first)
        if kind is MultiReadChildren:
            return await asyncio.gather(*(self._children_or_none(path) for path in paths))
        nodes = await asyncio.gather(*map(self.get, paths))
        return nodes if kind is MultiRead else [None if node is None else (node.data, node.version) for node in nodes]

    async def _children_or_none(self, path: str) -> list[str] | None:
        try:
            names: list[str] = await self.call(GetChildren(self.chroot + path, None))
        except NoNode:
            return None
        return names

    def _path_size(self, path: str) -> int:
        return self._chroot_size + utf8_size(path)

    def _may_exist(self, path: str) -> bool:
        """Whether a znode can have this path."""
        try:
            return self._path_size(path) <= BATCH_BYTES
        except UnicodeEncodeError:
            return False

    def _full(self, path: str) -> str:
        return self.chroot if path == "/" and self.chroot else self.chroot + path

    def _watch(self, path: str, callback: WatchCallback | None) -> Watch | None:
        return None if callback is None else Watch(callback, path, self._connected_or_last().report)


def _to_node(data: bytes | None, stat: ZnodeStat) -> Znode:
    return Znode(data, stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.ephemeralOwner, stat.cversion)
