"""One listener of a broker: its socket, its connections, and the limits that hold for them.

The socket is bound when the listener is made, so that its port is known before the broker registers; nobody is served before
`serve`. Meanwhile clients wait in the backlog.

Limits are Kafka's: above `max.connections.per.ip` a connection is closed at once; above `max.connections` (of all listeners
together) it is accepted but not read until another one leaves, as if it waited in the backlog. Connections on which nothing moved
for `connections.max.idle.ms` are closed, those that do not read their answers too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm.server.connection import ClientConnection
from klamm.server.dispatch import Answers

if TYPE_CHECKING:
    from klamm.server.dispatch import Dispatcher

log = logging.getLogger(__name__)

UNLIMITED = 2**31 - 1


class ConnectionLimits:
    """Counts the connections of all listeners of one broker."""

    def __init__(
        self, max_connections: int = UNLIMITED, max_per_ip: int = UNLIMITED, per_ip_overrides: Mapping[str, int] | None = None
    ) -> None:
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        self.per_ip_overrides = dict(per_ip_overrides or {})
        self._served: set[ClientConnection] = set()
        self._waiting: deque[ClientConnection] = deque()
        self._by_host: Counter[str] = Counter()

    def admit(self, connection: ClientConnection) -> bool:
        """Count a new connection; False when its host has too many already (it is not counted then)."""
        host = connection.peer.host
        if self._by_host[host] >= self.per_ip_overrides.get(host, self.max_per_ip):
            return False
        self._by_host[host] += 1
        if len(self._served) < self.max_connections:
            self._served.add(connection)
        else:
            connection.hold()
            self._waiting.append(connection)
        return True

    def leave(self, connection: ClientConnection) -> None:
        """A counted connection is gone; one that waited may be served."""
        self._by_host[connection.peer.host] -= 1
        if connection in self._served:
            self._served.remove(connection)
            while self._waiting and len(self._served) < self.max_connections:
                following = self._waiting.popleft()
                self._served.add(following)
                following.admit()
        else:
            self._waiting.remove(connection)


def bind(host: str, port: int, backlog: int = 50) -> socket.socket:
    """A listening socket; an empty host means every interface, port 0 a free one. Raises OSError when it cannot be had."""
    if host == "" and socket.has_dualstack_ipv6():
        listening = socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    else:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=backlog)
    # accepted sockets inherit it: a peer that vanished is noticed sometime
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return listening


class Listener:
    """A bound socket and the connections it serves. `answers` are the kept answers that hold for every client of this listener."""

    def __init__(
        self,
        name: str,
        listening: socket.socket,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        max_request_bytes: int = 104857600,
        max_idle_ms: int = 600_000,
    ) -> None:
        self.name = name
        self.dispatcher = dispatcher
        self.max_request_bytes = max_request_bytes
        self.answers = Answers()
        self.connections: set[ClientConnection] = set()
        self.requests: set[asyncio.Task[None]] = set()
        self._socket = listening
        self._limits = limits
        self._max_idle_s = max_idle_ms / 1000
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    async def serve(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ClientConnection(self, loop), sock=self._socket)
        self._sweep_later(loop)

    async def close(self) -> None:
        """Close the socket and every connection; requests that still wait for something are given up."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for connection in list(self.connections):
            connection.abort()
        for request in self.requests:
            request.cancel()
        await asyncio.gather(*self.requests, return_exceptions=True)

    # --- what connections say

    def opened(self, connection: ClientConnection) -> None:
        if self._limits.admit(connection):
            self.connections.add(connection)
        else:
            log.warning("closing connection from %s to %s: too many connections from this address", connection.name, self.name)
            connection.abort()

    def lost(self, connection: ClientConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self._limits.leave(connection)

    def begun(self, request: asyncio.Task[None]) -> None:
        """A request has to wait; its task outlives the connection."""
        self.requests.add(request)
        request.add_done_callback(self.requests.discard)

    # --- idle connections

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        # a tenth of the time-out is precise enough for what is ten minutes by default
        self._sweeper = loop.call_later(self._max_idle_s / 10, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        limit = loop.time() - self._max_idle_s
        for connection in [c for c in self.connections if c.last_used <= limit and not c.busy]:
            log.info("closing connection from %s to %s: idle for %g s", connection.name, self.name, self._max_idle_s)
            connection.abort()
        self._sweep_later(loop)
