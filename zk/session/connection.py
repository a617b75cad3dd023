"""The interface of a session to a connection and its watches. The implementation is in `zk/session/kazoo_connection.py`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

from kazoo.protocol.states import EventType, WatchedEvent


class Link(Enum):
    """State of the connection. CLOSED means that kazoo's thread has ended."""

    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()
    CLOSED = auto()


class Change(Enum):
    """The change that a watch reports. MISSED means that the watch was lost with the connection, and anything may have changed."""

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
    """A callback for a path. Equal watches are one, so if the same watch is set twice, it reports once."""

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
    """A connection. From `open` until `close` or `sever` it reconnects whenever it is lost."""

    def open(self) -> None:
        """Begin to connect, and to reconnect whenever the connection is lost."""

    async def close(self, limit_s: float) -> None:
        """End the session. If the server does not respond, the session expires later."""

    def abandon(self) -> None:
        """Release the resources of a connection that has ended."""

    def sever(self) -> None:
        """Close the connection as if the process had died: the server keeps the session until it expires."""

    def cut(self) -> None:
        """Lose the connection and do not reconnect until `restore`."""

    def restore(self) -> None:
        """Reconnect again."""

    def pause(self) -> None:
        """Send and receive nothing until `resume`, as a stopped process: the server ends the session when it hears nothing for too long."""

    def resume(self) -> None:
        """The opposite of `pause`."""

    async def end_session(self, limit_s: float) -> None:
        """End the session from outside while the connection is open. Raises TimeoutError if no server responds."""

    async def end_severed(self, limit_s: float) -> None:
        """End the session after `sever`, unless it has expired. Raises TimeoutError if no server responds."""

    @property
    def data_watchers(self) -> defaultdict[str, set[Any]]:
        """Data watches by full path. They may only be changed while a request is serialized."""

    def submit(self, request: Any, *, alone: bool = False) -> asyncio.Future[Any]:
        """Send a request. The future gets its response or a ZkError. Requests are sent in the order of the calls.

        A request that is sent `alone` waits until all earlier ones have their responses, and later ones wait for its response.
        """

    def report(self, watch: Watch, change: Change) -> None:
        """Report that a watch has fired. Its callback runs after those of earlier responses and before those of later responses. Can be
        called from any thread.
        """


OnLink = Callable[[Connection, Link, int], None]
"""(connection, state, session id if the state is CONNECTED)"""
OnWatch = Callable[[Watch, Change], None]
Connect = Callable[[str, int, OnLink, OnWatch], Connection]
"""Creates a connection from (hosts, session timeout in ms, callback for its state, callback for fired watches)."""
