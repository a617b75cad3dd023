"""A connection to ZooKeeper as a session sees it, with its watches. The real one is in `zk/session/kazoo_connection.py`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

from kazoo.protocol.states import EventType, WatchedEvent


class Link(Enum):
    """State of the connection. CLOSED is the end of kazoo's thread."""

    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()
    CLOSED = auto()


class Change(Enum):
    """The change that a watch reports. MISSED: the watch was lost with the connection; any change is possible."""

    CREATED = auto()
    DELETED = auto()
    CHANGED = auto()
    CHILD = auto()
    MISSED = auto()


WatchCallback = Callable[[Change, str], None]

_CHANGES = {
    EventType.CREATED: Change.CREATED,
    EventType.DELETED: Change.DELETED,
    EventType.CHANGED: Change.CHANGED,
    EventType.CHILD: Change.CHILD,
    EventType.NONE: Change.MISSED,
}


class Watch:
    """A callback armed on a path. Equal ones are one, so a path armed twice reports once."""

    __slots__ = ("_report", "callback", "path")

    def __init__(self, callback: WatchCallback, path: str, report: Callable[[Watch, Change], None]) -> None:
        self.callback = callback
        self.path = path
        self._report = report

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watch) and self.path == other.path and self.callback == other.callback

    def __hash__(self) -> int:
        return hash((self.path, self.callback))

    def __call__(self, event: WatchedEvent) -> None:
        """Called by kazoo, in its thread, with the change."""
        self._report(self, _CHANGES[event.type])


class Connection(Protocol):
    """From `open` to `close` or `sever`; in between it reconnects for ever."""

    def open(self) -> None:
        """Begin to connect, and to reconnect whenever the connection is lost."""

    async def close(self, limit_s: float) -> None:
        """End the session; with an unresponsive server the session expires."""

    def abandon(self) -> None:
        """Give back what a connection holds that has come to its end."""

    def sever(self) -> None:
        """Cut the connection as the death of a process does: the server keeps the session until it expires."""

    async def end_severed(self, limit_s: float) -> None:
        """End the session after `sever`, unless it has expired. Raises TimeoutError when no server responds."""

    @property
    def data_watchers(self) -> defaultdict[str, set[Any]]:
        """Watches on data by full path, to be changed while a request is serialised only."""

    def submit(self, request: Any) -> asyncio.Future[Any]:
        """Send a request; the future gets its response or a ZkError. Requests are sent in the order of the calls."""

    def report(self, watch: Watch, change: Change) -> None:
        """A watch has fired: its callback runs after the callbacks of earlier responses and before those of later ones. From any thread."""


OnLink = Callable[[Connection, Link, int], None]
"""(connection, state, session id where it is CONNECTED)"""
OnWatch = Callable[[Watch, Change], None]
Connect = Callable[[str, int, OnLink, OnWatch], Connection]
"""Makes a connection from (hosts, session time-out in ms, callback for its state, callback for watches that fired)."""
