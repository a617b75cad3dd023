"""The limits of connections: for the broker, for one listener, for one address, and per second.

The limits are Kafka's. A connection that exceeds `max.connections` (of its listener or of the broker) or
`max.connection.creation.rate` waits as if it were in the backlog: it is accepted, but not read before the connections ahead of it are
served and there is room. The connections of one listener wait in one line. A connection counts when its turn has come. It is closed at once
if its address then has more than `max.connections.per.ip`.

If a broker has several listeners, the inter-broker listener is exempt from the limits of the broker (KIP-402, KIP-612): its connections
count, but do not wait for others. If there are then more connections than `max.connections`, the least recently used connections of other
listeners are closed. A single listener is not exempt.
"""

from __future__ import annotations

import heapq
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from klamm.seams.clock import SYSTEM_CLOCK, Clock, Timer
from klamm.server.listeners.unread_responses import UnreadResponses
from klamm.server.requests.peer import Peer

if TYPE_CHECKING:
    from klamm.broker.client_quotas import AddressRates

log = logging.getLogger(__name__)

UNLIMITED = 2**31 - 1


class LimitedConnection(Protocol):
    """What the limits need of a connection. `last_used` is the time (of the clock) when bytes were last received or sent."""

    last_used: float
    name: str
    peer: Peer

    def hold(self) -> None:
        """Serve nothing until `admit`."""

    def admit(self) -> None:
        """The opposite of `hold`."""

    def close(self) -> None:
        """Close after the written bytes have been sent."""

    def abort(self) -> None:
        """Close at once."""


class ConnectionRate:
    """Connections per second, measured over the last `windows` windows of `window_s` seconds."""

    def __init__(self, limit: int = UNLIMITED, windows: int = 11, window_s: float = 1.0) -> None:
        self.limit = limit
        self.windows = windows
        self.window_s = window_s
        self._counted: deque[tuple[float, int]] = deque()  # start of each window, connections in it

    def count(self, now: float) -> float:
        """Count a connection; returns the seconds that it has to wait, at most one window."""
        if self.limit == UNLIMITED:
            return 0.0
        counted, window_s = self._counted, self.window_s
        while counted and now - counted[0][0] >= self.windows * window_s:
            counted.popleft()
        if counted and now - counted[-1][0] < window_s:
            start, connections = counted.pop()
            counted.append((start, connections + 1))
        else:
            counted.append((now, 1))
        # windows that are not over yet count as empty at first, so that a short burst does not exceed the rate
        elapsed_s = now - counted[0][0]
        span_s = elapsed_s + max(0, self.windows - 1 - int(elapsed_s / window_s)) * window_s
        if span_s == 0:
            return 0.0
        excess = sum(connections for _, connections in counted) / span_s - self.limit
        if excess <= 0:
            return 0.0
        return min(excess / self.limit * span_s, window_s) if self.limit else window_s


class Gate:
    """The connections of one listener: those that are served, and the line of those that wait. Made by `ConnectionLimits.gate`."""

    def __init__(self, name: str, refuse: Callable[[LimitedConnection], None]) -> None:
        self.name = name
        self.refuse = refuse
        self.max_connections = UNLIMITED
        self.rate = ConnectionRate()
        self.served: dict[LimitedConnection, None] = {}  # in the order of their arrival
        self.line: dict[LimitedConnection, None] = {}
        self.next_is_counted = False  # whether the rate has counted the first in line, which may still wait for room
        self.pause: Timer | None = None


class ConnectionLimits:
    """The limits of one broker. Call `changed` after a change."""

    def __init__(
        self,
        max_connections: int = UNLIMITED,
        max_per_ip: int = UNLIMITED,
        per_ip_overrides: Mapping[str, int] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        self.per_ip_overrides = dict(per_ip_overrides or {})
        self.rate = ConnectionRate()
        self.inter_broker_listener: str | None = None
        self.address_rates: AddressRates | None = None
        """The quotas of addresses (connection_creation_rate), None without any."""
        self.unread = UnreadResponses()
        self._gates: list[Gate] = []
        self._by_host: Counter[str] = Counter()
        self._served = 0

    def __iter__(self) -> Iterator[Gate]:
        return iter(self._gates)

    def gate(self, name: str, refuse: Callable[[LimitedConnection], None]) -> Gate:
        """Add a gate for a new listener. `refuse` is called with a connection whose address has too many, and closes it.

        With the second gate the inter-broker listener becomes exempt, so connections that wait there are let in.
        """
        gate = Gate(name, refuse)
        self._gates.append(gate)
        self._let_in()
        return gate

    def remove(self, gate: Gate) -> None:
        """Remove the gate of a closed listener. Its last connections may still leave. A second call does nothing."""
        if gate.pause is not None:
            gate.pause.cancel()
        if gate in self._gates:
            self._gates.remove(gate)

    def limit_address(self, address: str | None, limit: int | None) -> None:
        """Set how many connections per second an address may open, None without a limit; the address None stands for all others."""
        if self.address_rates is None:
            if limit is None:
                return
            from klamm.broker.client_quotas import AddressRates

            self.address_rates = AddressRates(self.rate.windows, int(self.rate.window_s))
        rates = self.address_rates
        if address is None:
            rates.default = limit
        elif limit is None:
            rates.limits.pop(address, None)
        else:
            rates.limits[address] = limit
        if rates.default is None and not rates.limits:
            self.address_rates = None

    def changed(self) -> None:
        """Apply changed limits: close connections above the limits, let in those that do not have to wait any more."""
        self._close_excess()
        self._let_in()

    def arrive(self, gate: Gate, connection: LimitedConnection) -> None:
        """Serve a new connection, hold it in line, or refuse it."""
        if gate.line or not self._may_enter(gate):
            connection.hold()
            gate.line[connection] = None
        else:
            self._enter(gate, connection)

    def leave(self, gate: Gate, connection: LimitedConnection) -> None:
        """Remove a connection and let in those that waited for room. Does nothing if the connection does not count any more."""
        gate.line.pop(connection, None)
        if connection in gate.served:
            del gate.served[connection]
            self._served -= 1
            host = connection.peer.host
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]
            self._let_in()

    def _let_in(self) -> None:
        for gate in self._gates:
            while gate.line and self._may_enter(gate):
                connection = next(iter(gate.line))
                del gate.line[connection]
                if self._enter(gate, connection):
                    connection.admit()

    def _may_enter(self, gate: Gate) -> bool:
        """Whether the first in line has waited long enough for its rate, and there is room."""
        if gate.pause is None and not gate.next_is_counted:
            gate.next_is_counted = True
            wait_s = self._rate_wait_s(gate)
            if wait_s > 0:
                gate.pause = self._clock.call_later(wait_s, self._end_pause, gate)
        if gate.pause is not None or len(gate.served) >= gate.max_connections:
            return False
        return self._is_exempt(gate) or self._served < self.max_connections

    def _rate_wait_s(self, gate: Gate) -> float:
        if gate.rate.limit == UNLIMITED and self.rate.limit == UNLIMITED:
            return 0.0
        now = self._clock.monotonic()
        of_all = 0.0 if self._is_exempt(gate) else self.rate.count(now)
        return max(of_all, gate.rate.count(now))

    def _end_pause(self, gate: Gate) -> None:
        gate.pause = None
        self._let_in()

    def _is_exempt(self, gate: Gate) -> bool:
        return gate.name == self.inter_broker_listener and len(self._gates) > 1

    def _enter(self, gate: Gate, connection: LimitedConnection) -> bool:
        """Count a connection and return True, or refuse it and return False."""
        gate.next_is_counted = False
        host = connection.peer.host
        if self.address_rates is not None:
            wait_ms = self.address_rates.count(host, int(self._clock.monotonic() * 1000))
            if wait_ms:
                connection.hold()
                self._clock.call_later(wait_ms / 1000, connection.close)
                return False
        if self._by_host[host] >= self.per_ip_overrides.get(host, self.max_per_ip):
            gate.refuse(connection)
            return False
        self._by_host[host] += 1
        gate.served[connection] = None
        self._served += 1
        self._close_excess()
        return True

    def _close_excess(self) -> None:
        excess = self._served - self.max_connections
        if excess <= 0:
            return
        served = ((gate, connection) for gate in self._gates if not self._is_exempt(gate) for connection in gate.served)
        for gate, connection in heapq.nsmallest(excess, served, key=lambda pair: pair[1].last_used):
            log.info("closing connection from %s to %s: max.connections is exceeded", connection.name, gate.name)
            self.leave(gate, connection)
            connection.close()
