"""All listeners of a broker. They are bound before the broker registers, served afterwards, and follow changes of its configuration.

A listener is identified by its name, host and port as configured. A listener that is no longer configured is closed with its connections; a
new one is bound and served at once; the others are not touched. The advertised endpoints follow from the bound ports.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerConfig, ListenerProperties
from klamm.configs.rules import connection_overrides
from klamm.protocol.nouns import Endpoint, SecurityProtocol
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.server.listeners.connection_limits import ConnectionLimits, ConnectionRate, Gate
from klamm.server.listeners.listener import Listener, bind
from klamm.server.net.tap import BrokerTap
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.security.sasl.scram_credentials import ScramCredentials

if TYPE_CHECKING:
    from klamm.server.listeners.listener_security import ListenerSecurity
    from klamm.server.security.outgoing_security import OutgoingSecurity

log = logging.getLogger(__name__)

LISTENER_CONFIGS = frozenset({"listeners", "advertised.listeners", "listener.security.protocol.map"})


class CannotListen(Exception):
    """A socket cannot be bound. The text is one line for the user."""


class Listeners:
    """The listeners of one broker. Iterating gives the open ones."""

    def __init__(self, config: BrokerConfig, tap: BrokerTap | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises ConfigError."""
        self.users = ScramCredentials()
        """The users of SCRAM, who may change while the listeners are open."""
        for one in config.listeners:
            security_of(ListenerProperties.of(one, config.effective), self.users, clock)
        self.limits = ConnectionLimits(clock=clock)
        self.limits.unread.limit = config.get("klamm.unread.responses.bytes")
        self._config = config
        self._dispatcher: Dispatcher
        self._tap = tap
        self._clock = clock
        self._open: dict[ListenerConfig, Listener] = {}
        self.limit()

    def __iter__(self) -> Iterator[Listener]:
        return iter(list(self._open.values()))

    def bind(self, dispatcher: Dispatcher) -> None:
        """Bind the configured listeners; their requests go to this dispatcher. Raises CannotListen; sockets bound until then stay bound."""
        self._dispatcher = dispatcher
        for one in self._config.listeners:
            self._bind(one)

    async def serve(self) -> None:
        """Begin to accept connections."""
        for listener in self:
            await listener.serve()

    async def follow(self) -> None:
        """Open and close listeners according to the present configuration. One that cannot be opened is logged and left out."""
        wanted = self._config.listeners
        for one in [one for one in self._open if one not in wanted]:
            log.info("listener %s is closed", one)
            await self._open.pop(one).close()
        for one in wanted:
            if one not in self._open:
                try:
                    await self._bind(one).serve()
                    log.info("listener %s is open", one)
                except CannotListen as error:
                    log.error("%s", error)

    async def close(self) -> None:
        for listener in self:
            await listener.close()

    def cut(self) -> None:
        """Cut all connections at once, and accept no others: nothing more is sent to clients."""
        for listener in self:
            listener.cut()

    def advertised(self) -> tuple[Endpoint, ...]:
        """The endpoints to register. Port 0 is replaced by the bound port of the listener, a missing host by the name of this machine."""
        ports = {listener.name: listener.port for listener in self}
        return tuple(
            Endpoint(
                one.name,
                socket.getfqdn() if one.host is None else one.host,
                ports[one.name] if one.port == 0 else one.port,
                SecurityProtocol[one.security_protocol],
            )
            for one in self._config.advertised_listeners
            if one.name in ports
        )

    def limit(self) -> None:
        """Apply the connection limits of the present configuration. Raises ConfigError."""
        get = self._config.get
        self.limits.per_ip_overrides = connections_per_address(get("max.connections.per.ip.overrides"))
        self.limits.max_connections = get("max.connections")
        self.limits.max_per_ip = get("max.connections.per.ip")
        self.limits.inter_broker_listener = self._config.inter_broker_listener_name
        self._limit_rate(self.limits.rate, get("max.connection.creation.rate"))
        for gate in self.limits:
            self._limit_listener(gate)
        self.limits.changed()

    def _limit_listener(self, gate: Gate) -> None:
        """Apply the limits of one listener; by default they are those of the broker."""
        gate.max_connections = self._config.of_listener(gate.name, "max.connections")
        self._limit_rate(gate.rate, self._config.of_listener(gate.name, "max.connection.creation.rate"))

    def _limit_rate(self, rate: ConnectionRate, limit: int) -> None:
        get = self._config.get
        rate.limit, rate.windows, rate.window_s = limit, get("quota.window.num"), get("quota.window.size.seconds")

    def renew_keys(self) -> None:
        """Use the present key stores of all listeners for new connections. One that cannot be read is logged, and the former stays."""
        for one, listener in self._open.items():
            if listener.security is not None:
                try:
                    listener.security.renew(ListenerProperties.of(one, self._config.effective))
                except ConfigError as error:
                    log.error("the key stores of listener %s stay as they were: %s", one, error)

    def dispatch_to(self, dispatcher: Dispatcher) -> None:
        """Give all later requests to this dispatcher. Cached responses of the former one are dropped."""
        self._dispatcher = dispatcher
        for listener in self:
            listener.dispatch_to(dispatcher)

    def pause(self) -> None:
        """Read nothing from any connection, new ones included, until `resume`."""
        for listener in self:
            listener.pause()

    def resume(self) -> None:
        """The opposite of `pause`."""
        for listener in self:
            listener.resume()

    def clear_response_caches(self) -> None:
        """Drop all cached responses, because something changed that the metadata cache does not know."""
        for listener in self:
            listener.forget_responses()

    def _bind(self, one: ListenerConfig) -> Listener:
        get = self._config.get
        try:
            security = security_of(ListenerProperties.of(one, self._config.effective), self.users, self._clock)
        except ConfigError as error:
            raise CannotListen(f"cannot listen on {one}: {error}") from error
        try:
            listening = bind(one.host or "", one.port, get("socket.listen.backlog.size"))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
            raise CannotListen(f"cannot listen on {one}: {reason}") from error
        except UnicodeError as error:
            raise CannotListen(f"cannot listen on {one}: {one.host!r} is not a host name") from error
        max_request_bytes, max_idle_ms = get("socket.request.max.bytes"), get("connections.max.idle.ms")
        listener = self._open[one] = Listener(
            one.name, listening, self._dispatcher, self.limits, max_request_bytes, max_idle_ms, self._tap, self._clock, security
        )
        self._limit_listener(listener.gate)
        return listener


def security_of(properties: ListenerProperties, users: ScramCredentials, clock: Clock) -> ListenerSecurity | None:
    """How a listener with these properties is secured; None for PLAINTEXT. Raises ConfigError for security that Klamm does not have."""
    if properties.security_protocol == "PLAINTEXT":
        return None
    from klamm.server.listeners.listener_security import ListenerSecurity  # many brokers have none

    return ListenerSecurity(properties, users, clock)


def outgoing_security(config: BrokerConfig) -> OutgoingSecurity | None:
    """How connections to other brokers with these configs are secured; None for PLAINTEXT. Raises ConfigError."""
    if config.listener_security_protocol_map[config.inter_broker_listener_name] == "PLAINTEXT":
        return None
    from klamm.server.security.outgoing_security import OutgoingSecurity, inter_broker_properties  # many brokers have none

    return OutgoingSecurity(inter_broker_properties(config))


def connections_per_address(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides` as address → limit. Raises ConfigError."""
    limits: dict[str, int] = {}
    for host, limit in connection_overrides(text).items():
        try:
            limits[socket.gethostbyname(host)] = limit
        except (OSError, UnicodeError) as error:
            raise ConfigError("max.connections.per.ip.overrides", text, f"{host!r} is not a known host") from error
    return limits
