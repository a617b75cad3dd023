"""Notifications of changes: sequential znodes below one parent. Each names what all brokers must read again.

A broker remembers the highest number that it has processed. Any broker deletes notifications that are 15 minutes older than the newest one.
These times are all ZooKeeper's. By another clock, which may differ or be moved, a new notification could look old, and brokers that had not
read it yet would miss the change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from klamm.zk.session.connection import WatchCallback
from klamm.zk.session.session import ZkSession

EXPIRATION_MS = 15 * 60 * 1000
LOOKED_AT_TOGETHER = 20
"""Number of the oldest notifications that are read in one request to see whether they have expired."""


class ChangeNotifications:
    """The notifications below `parent`; their names are `prefix` and ten digits."""

    def __init__(self, session: ZkSession, parent: str, prefix: str) -> None:
        self._session = session
        self._parent, self._prefix = parent, prefix
        self._numbers: list[int] = []
        """Of all notifications at the last call of `after`, in order."""

    async def announce(self, data: bytes) -> None:
        """Create a notification."""
        await self._session.create(f"{self._parent}/{self._prefix}", data, sequence=True, makepath=True)

    async def after(self, number: int, watch: WatchCallback | None) -> list[tuple[int, bytes | None]]:
        """Number and data of the notifications above `number`, in order. Sets a watch for the next one."""
        self._numbers = self._numbers_of(await self._session.children(self._parent, watch))
        numbers = self._numbers[bisect_right(self._numbers, number) :]
        nodes = await self._session.read_versions(list(map(self._path, numbers)))
        return [(each, node[0]) for each, node in zip(numbers, nodes, strict=True) if node is not None]

    async def purge(self) -> None:
        """Delete notifications that are more than 15 minutes older than the newest that `after` has found. As in Kafka, those without data
        are not deleted.

        The numbers are in order of age, so the oldest are read first, until one has not expired: the cost does not grow with their number.
        """
        numbers = self._numbers
        for first in range(0, len(numbers) - 1, LOOKED_AT_TOGETHER):
            paths = list(map(self._path, numbers[first : first + LOOKED_AT_TOGETHER]))
            newest, *nodes = await self._session.read_many([self._path(numbers[-1]), *paths])
            for path, node in zip(paths, nodes, strict=True):
                if newest is None or (node is not None and newest.ctime_ms - node.ctime_ms <= EXPIRATION_MS):
                    return
                if node is not None and node.data is not None:
                    await self._session.delete(path)

    def _numbers_of(self, names: Iterable[str]) -> list[int]:
        begin = len(self._prefix)
        return sorted(int(name[begin:]) for name in names if name.startswith(self._prefix) and name[begin:].isdecimal())

    def _path(self, number: int) -> str:
        return f"{self._parent}/{self._prefix}{number:010d}"
