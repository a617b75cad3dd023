"""Notifications of changes: sequential znodes below one parent. Each names what all brokers must read again.

A broker remembers the highest number that it has processed. Notifications older than 15 minutes are deleted by any broker.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.zk.session.connection import WatchCallback
from klamm.zk.session.session import ZkSession

EXPIRATION_MS = 15 * 60 * 1000


class ChangeNotifications:
    """The notifications below `parent`; their names are `prefix` and ten digits."""

    def __init__(self, session: ZkSession, parent: str, prefix: str) -> None:
        self._session = session
        self._parent, self._prefix = parent, prefix

    async def announce(self, data: bytes) -> None:
        """Create a notification."""
        await self._session.create(f"{self._parent}/{self._prefix}", data, sequence=True, makepath=True)

    async def after(self, number: int, watch: WatchCallback | None) -> list[tuple[int, bytes | None]]:
        """Number and data of the notifications above `number`, in order. Sets a watch for the next one."""
        numbers = sorted(each for each in self._numbers(await self._session.children(self._parent, watch)) if each > number)
        nodes = await self._session.read_versions(list(map(self._path, numbers)))
        return [(each, node[0]) for each, node in zip(numbers, nodes, strict=True) if node is not None]

    async def purge(self, now_ms: int) -> None:
        """Delete notifications that are older than 15 minutes. As in Kafka, those without data are not deleted."""
        paths = list(map(self._path, self._numbers(await self._session.children(self._parent))))
        for path, node in zip(paths, await self._session.read_many(paths), strict=True):
            if node is not None and node.data is not None and now_ms - node.ctime_ms > EXPIRATION_MS:
                await self._session.delete(path)

    def _numbers(self, names: Iterable[str]) -> list[int]:
        begin = len(self._prefix)
        return [int(name[begin:]) for name in names if name.startswith(self._prefix) and name[begin:].isdecimal()]

    def _path(self, number: int) -> str:
        return f"{self._parent}/{self._prefix}{number:010d}"
