"""Connections to brokers, kept for the next request.

A request is a message of `klamm.protocol.messages`, which also has the APIs of the drafts. Its decoder accepts nothing that Kafka refuses.

A connection carries one request at a time. A broker handles the requests of one connection in sequence, so an election that waits for a
minute would delay other requests. Idle connections are reused. If a request gets no response in time, its connection is closed, which does
not affect other requests. Everything here runs in the IO thread.
"""

from __future__ import annotations

import os
import ssl
import struct
from collections.abc import Callable
from typing import Any

from klamm.admin.calls.errors import AdminError, BadResponse, Disconnected, HandshakeFailed, NotAuthenticated, TimedOut, Unsupported
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.settings import Address, Settings
from klamm.admin.network.broker_connection import BrokerConnection
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.compiler import Message
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.security.sasl_client import AuthenticationRefused

Make = Callable[[int], Message]
"""Builds the request for a version."""


class Connections:
    """The connections of one client, by address."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: dict[Address, list[BrokerConnection]] = {}
        self._open: set[BrokerConnection] = set()

    async def send(self, scope: Scope, address: Address, key: ApiKey, make: Make, until: float) -> tuple[Any, int]:
        """The response to a request, and its version, which is the highest version that both sides support.

        `until` is the deadline on the monotonic clock. Raises Disconnected, TimedOut, BadResponse, NotAuthenticated or Unsupported; the
        message names the address. After an error, the next request to this address uses a new connection.
        """
        connection = self._take(address) or await self._connect(scope, address, until)
        try:
            return await self._exchange(scope, connection, address, key, make, until)
        except AdminError as error:
            if not isinstance(error, Unsupported):
                for idle in self._idle.pop(address, []):
                    self._close(idle)
            raise

    async def supports(self, scope: Scope, address: Address, key: int, until: float) -> bool:
        """Whether the broker supports the API in a version that this client can send."""
        connection = self._take(address) or await self._connect(scope, address, until)
        self._release(address, connection)
        return key in APIS and connection.version_of(APIS[key]) is not None

    def close(self) -> None:
        """Close all connections immediately."""
        self._idle.clear()
        for connection in tuple(self._open):
            self._close(connection)

    def _take(self, address: Address) -> BrokerConnection | None:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                return connection
            self._close(connection)
        return None

    def _release(self, address: Address, connection: BrokerConnection) -> None:
        self._idle.setdefault(address, []).append(connection)

    def _close(self, connection: BrokerConnection) -> None:
        connection.close()
        self._open.discard(connection)

    async def _exchange(
        self, scope: Scope, connection: BrokerConnection, address: Address, key: ApiKey, make: Make, until: float
    ) -> tuple[Any, int]:
        api = APIS[key]
        version = connection.version_of(api)
        if version is None:
            self._release(address, connection)
            raise Unsupported(f"the broker at {_text(address)} does not support {api.name} (key {int(key)})")
        try:
            body = messages.encode(make(version), version)
            response = await scope.wait(connection.request(api, version, body), until)
        except BaseException as error:
            self._close(connection)
            raise _named(error, address, scope) from error
        self._release(address, connection)
        return response, version

    async def _connect(self, scope: Scope, address: Address, until: float) -> BrokerConnection:
        """A connection that is ready for requests."""
        try:
            connection = await scope.wait(BrokerConnection.open(address, self._settings), until)
        except BaseException as error:
            raise _named(error, address, scope) from error
        self._open.add(connection)
        return connection


def _named(error: BaseException, address: Address, scope: Scope) -> BaseException:
    """The error of this package for an error of a connection or of the system, with the address. Any other error is a bug, or the end of
    the call, and is returned unchanged.
    """
    where = f"the broker at {_text(address)}"
    match error:
        case AdminError():
            return error
        case TimeoutError() if error.errno is None:
            return TimedOut(f"{where} did not respond in time; the call had {scope.timeout_ms} ms")
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return Disconnected(f"{where} closed the connection during the TLS handshake")
        case AuthenticationRefused():
            return NotAuthenticated(f"{where}: {error}")
        case ssl.SSLError():
            return HandshakeFailed(f"{where}: {error}")
        case RemoteProtocolError() | struct.error():
            return BadResponse(f"{where} sent an invalid response: {error}")
        case OSError():
            return Disconnected(f"{where} cannot be reached: {_reason(error)}")
        case _:
            return error


_WITHOUT_TEXT = "the connection was closed; a broker closes it, for example, if the listener has another security protocol"
"""asyncio raises connection errors without a text, among them that of a TLS handshake with a listener that has no TLS."""


def _reason(error: OSError) -> str:
    """The system's text. asyncio has texts of its own for a connection that fails; a name that is not found has a number below 0."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else str(error.strerror or error) or _WITHOUT_TEXT


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
