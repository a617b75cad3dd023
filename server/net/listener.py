"""One listener of a broker: its socket, its connections, and the limits that hold for them.

The socket is bound when the listener is made, so that its port is known before the broker registers; nobody is served before
`serve`. Meanwhile clients wait in the backlog.

Which connections are served is decided by `ConnectionLimits`. Connections on which nothing moved for `connections.max.idle.ms` are
closed, those that do not read their responses too.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from klamm.protocol.clock import SYSTEM_CLOCK, Clock, Timer
from klamm.server.net.connection import ClientConnection
from klamm.server.net.connection_limits import ConnectionLimits, LimitedConnection
from klamm.server.net.log_limit import LimitedLog
from klamm.server.net.tap import BrokerTap
from klamm.server.requests.response_cache import ResponseCache, ResponseCaches
from klamm.server.security.authorizer import ANONYMOUS, Principal

if TYPE_CHECKING:
    from klamm.server.requests.dispatch import Dispatcher

log = logging.getLogger(__name__)


def bind(host: str, port: int, backlog: int = 50) -> socket.socket:
    """A listening socket; an empty host means every interface, port 0 a free one. Raises OSError when it cannot be had, UnicodeError
    for a host that is no name.
    """
    if host == "" and socket.has_dualstack_ipv6():
        listening = socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    else:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=backlog)
    # accepted sockets inherit it: a peer that vanished is noticed sometime
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return listening


class Listener:
    """A bound socket and the connections it serves. Responses are cached for all clients of a listener that have the same principal."""

    def __init__(
        self,
        name: str,
        listening: socket.socket,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        max_request_bytes: int = 104857600,
        max_idle_ms: int = 600_000,
        tap: BrokerTap | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self.dispatcher = dispatcher
        self.max_request_bytes = max_request_bytes
        self.tap = tap
        self._connection_number = 0
        self.clock = clock
        self._responses = ResponseCaches()
        self.connections: set[ClientConnection] = set()
        self.requests: set[asyncio.Task[bytes | None]] = set()
        self._socket = listening
        self._limits = limits
        self.gate = limits.gate(name, self._refuse)
        self._max_idle_s = max_idle_ms / 1000
        self._server: asyncio.Server | None = None
        self._sweeper: Timer | None = None
        self._limited_log = LimitedLog(log, f"listener {name}", clock=clock)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    async def serve(self) -> None:
        """Begin to accept."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ClientConnection(self, loop), sock=self._socket)
        self._sweep_later()

    def dispatch_to(self, dispatcher: Dispatcher) -> None:
        """Give every further request, also of the present connections, to this dispatcher, and keep no response of the former one."""
        self.dispatcher = dispatcher
        self.forget_responses()
        for connection in self.connections:
            connection.dispatch_to(dispatcher)

    def responses_of(self, principal: Principal = ANONYMOUS) -> ResponseCache:
        """The cached responses for the connections of this principal."""
        return self._responses.of(principal)

    def forget_responses(self) -> None:
        """Cached responses are not valid any more."""
        self._responses.clear()

    async def close(self) -> None:
        """Close the socket and every connection; requests that still wait for something are given up."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._limited_log.end_period()
        if self._server is not None:
            self._server.close()
        self._socket.close()
        self._limits.remove(self.gate)
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)  # requests that have just begun take their first step: a task that never ran leaves its handler unawaited
        for request in list(self.requests):
            request.cancel()
        await asyncio.gather(*self.requests, return_exceptions=True)

    # --- what connections say

    def connection_id(self, peer: str) -> str:
        """The id of a new connection from `peer`, as Apache Kafka writes them: both ends, then a number, as ports are used again."""
        self._connection_number += 1
        return f"{self.name}-{peer}-{self._connection_number}"

    def log_closing(self, connection: LimitedConnection, reason: str) -> None:
        """A connection is closed for what its client did."""
        self._limited_log.warning("closing connection from %s to %s: %s", connection.name, self.name, reason)

    def opened(self, connection: ClientConnection) -> None:
        self.connections.add(connection)
        self._limits.arrive(self.gate, connection)

    def lost(self, connection: ClientConnection) -> None:
        self.connections.remove(connection)
        self._limits.leave(self.gate, connection)

    def _refuse(self, connection: LimitedConnection) -> None:
        self.log_closing(connection, "too many connections from this address")
        connection.abort()

    def begun(self, request: asyncio.Task[bytes | None]) -> None:
        """A request has to wait; its task outlives the connection."""
        self.requests.add(request)
        request.add_done_callback(self.requests.discard)

    # --- idle connections

    def _sweep_later(self) -> None:
        # a tenth of the time-out is precise enough for what is ten minutes by default
        self._sweeper = self.clock.call_later(self._max_idle_s / 10, self._sweep)

    def _sweep(self) -> None:
        limit = self.clock.monotonic() - self._max_idle_s
        for connection in [c for c in self.connections if c.last_used <= limit and not c.busy]:
            log.info("closing connection from %s to %s: idle for %g s", connection.name, self.name, self._max_idle_s)
            connection.abort()
        self._sweep_later()
