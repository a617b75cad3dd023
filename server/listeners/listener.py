"""One listener of a broker: its socket and its connections.

The socket is bound before the broker registers, so that its port is known. Clients are served from `serve` on; until then they wait in the
backlog.

`ConnectionLimits` decides which connections are served. Connections without traffic for `connections.max.idle.ms` are closed, also if the
reason is that the client does not read its responses, or has closed its half while requests wait.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.seams.clock import SYSTEM_CLOCK, Clock, Timer
from klamm.server.listeners.connection import ClientConnection
from klamm.server.listeners.connection_limits import ConnectionLimits, LimitedConnection
from klamm.server.net.log_limit import LimitedLog
from klamm.server.net.tap import BrokerTap
from klamm.server.requests.response_cache import ResponseCache, ResponseCaches
from klamm.server.security.authorizer import ANONYMOUS, Principal

if TYPE_CHECKING:
    from klamm.server.listeners.listener_security import ListenerSecurity
    from klamm.server.listeners.tls import Handshakes
    from klamm.server.requests.dispatch import Dispatcher

log = logging.getLogger(__name__)


def bind(host: str, port: int, backlog: int = 50) -> socket.socket:
    """Return a listening socket. An empty host means every interface, port 0 any free port.

    Raises OSError if the address cannot be bound, UnicodeError if the host is not a valid name.
    """
    if host == "" and socket.has_dualstack_ipv6():
        listening = socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    else:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=backlog)
    # accepted sockets inherit it, so that the loss of a peer is detected at some time
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return listening


class Listener:
    """A bound socket and its connections. Clients of a listener with the same principal share cached responses."""

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
        security: ListenerSecurity | None = None,
    ) -> None:
        self.name = name
        self.security = security
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
        self.unread = limits.unread
        self._max_idle_s = max_idle_ms / 1000
        self.is_paused = False
        self._server: asyncio.Server | None = None
        self._handshakes: Handshakes | None = None
        """Of TLS, in progress."""
        self._sweeper: Timer | None = None
        self._limited_log = LimitedLog(log, f"listener {name}", clock=clock)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    async def serve(self) -> None:
        """Begin to accept connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._factory(loop), sock=self._socket)
        self._sweep_later()

    def _factory(self, loop: asyncio.AbstractEventLoop) -> Callable[[], asyncio.Protocol]:
        """Makes the protocol of an accepted socket."""
        security = self.security
        if security is None or security.context is None:
            return lambda: ClientConnection(self, loop)
        from klamm.server.listeners.tls import Handshakes, TlsProtocol  # many brokers have no TLS

        handshakes = self._handshakes = Handshakes(self._handshake_failed)

        def accept() -> asyncio.Protocol:
            assert security.context is not None
            return TlsProtocol(security.context, ClientConnection(self, loop), self.clock, handshakes)

        return accept

    def _handshake_failed(self, peer: str, reason: str) -> None:
        self._limited_log.warning("closing connection from %s to %s: %s", peer, self.name, reason)

    def dispatch_to(self, dispatcher: Dispatcher) -> None:
        """Give all later requests, also those of open connections, to this dispatcher. Cached responses of the former one are dropped."""
        self.dispatcher = dispatcher
        self.forget_responses()
        for connection in self.connections:
            connection.dispatch_to(dispatcher)

    def responses_of(self, principal: Principal = ANONYMOUS) -> ResponseCache:
        """The cached responses for the connections of this principal."""
        return self._responses.of(principal)

    def forget_responses(self) -> None:
        """Drop all cached responses; they are not valid any more."""
        self._responses.clear()

    def cut(self) -> None:
        """Close every connection at once, and accept no others. Requests that wait are left to `close`."""
        if self._server is not None:
            self._server.close()
        self._cut_connections()

    def _cut_connections(self) -> None:
        if self._handshakes is not None:
            self._handshakes.abort()
        for connection in list(self.connections):
            connection.abort()

    async def close(self) -> None:
        """Close the socket and every connection, and cancel requests that still wait."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._limited_log.end_period()
        if self._server is not None:
            self._server.close()
        self._socket.close()
        self._limits.remove(self.gate)
        self._cut_connections()
        # let new tasks take their first step: if one is cancelled before, the coroutine of its handler is never awaited
        await asyncio.sleep(0)
        for request in list(self.requests):
            request.cancel()
        await asyncio.gather(*self.requests, return_exceptions=True)

    def pause(self) -> None:
        """Read nothing from any connection, new ones included, until `resume`."""
        self.is_paused = True
        for connection in self.connections:
            connection.pause()

    def resume(self) -> None:
        """The opposite of `pause`."""
        self.is_paused = False
        for connection in list(self.connections):
            connection.resume()

    # --- called by connections

    def connection_id(self, peer: str) -> str:
        """The id of a new connection from `peer`. It is similar to Apache Kafka's: both ends, and a number, because ports are reused."""
        self._connection_number += 1
        return f"{self.name}-{peer}-{self._connection_number}"

    def log_closing(self, connection: LimitedConnection, reason: str) -> None:
        """Log that a connection is closed because of what its client did."""
        self._limited_log.warning("closing connection from %s to %s: %s", connection.name, self.name, reason)

    def opened(self, connection: ClientConnection) -> None:
        self.connections.add(connection)
        if self.is_paused:
            connection.pause()
        self._limits.arrive(self.gate, connection)

    def lost(self, connection: ClientConnection) -> None:
        self.connections.remove(connection)
        self._limits.leave(self.gate, connection)

    def _refuse(self, connection: LimitedConnection) -> None:
        self.log_closing(connection, "too many connections from this address")
        connection.abort()

    def begun(self, request: asyncio.Task[bytes | None]) -> None:
        """A request has to wait. Its task may last longer than the connection."""
        self.requests.add(request)
        request.add_done_callback(self.requests.discard)

    # --- idle connections

    def _sweep_later(self) -> None:
        # a tenth of the time-out is precise enough: the default is ten minutes
        self._sweeper = self.clock.call_later(self._max_idle_s / 10, self._sweep)

    def _sweep(self) -> None:
        limit = self.clock.monotonic() - self._max_idle_s
        for connection in [c for c in self.connections if c.last_used <= limit and not c.busy]:
            log.info("closing connection from %s to %s: idle for %g s", connection.name, self.name, self._max_idle_s)
            connection.abort()
        self._sweep_later()
