"""Connections to brokers: kafka-python's connections with Klamm's messages.

kafka-python opens the socket (through a proxy if one is set), does TLS and SASL, learns the API versions of the broker, and authenticates
again before a session expires. A request is a message of `klamm.protocol.messages`, which also has the APIs of the drafts. Its decoder
accepts nothing that Kafka refuses.

A connection carries one request at a time. A broker handles the requests of one connection in sequence, so an election that waits for a
minute would delay other requests. Idle connections are reused. If a request gets no response in time, its connection is closed, which does
not affect other requests. Everything here runs in the IO thread.
"""

from __future__ import annotations

import os
import re
import ssl
import struct
from collections.abc import Callable
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.net.inet import create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from klamm.admin.errors import AdminError, BadResponse, Disconnected, NotAuthenticated, TimedOut, Unsupported
from klamm.admin.scope import Scope
from klamm.admin.settings import Address, Settings
from klamm.protocol import messages
from klamm.protocol.apis import APIS, Api, ApiKey
from klamm.protocol.compiler import Message
from klamm.protocol.errors import RemoteProtocolError

_NO_LIMIT_MS = 2**31 - 1
"""Disables kafka-python's own request timeout: the deadline of the call ends the wait and closes the connection."""

_ERRNO = re.compile(r"\b(\d+) E[A-Z]+\b")
SOCKET_OPTIONS = KafkaConnectionManager.DEFAULT_CONFIG["socket_options"]

Make = Callable[[int], Message]
"""Builds the request for a version."""


class Connections:
    """The connections of one client, by address."""

    def __init__(self, net: NetworkSelector, settings: Settings) -> None:
        self._net = net
        self._settings = settings
        self._idle: dict[Address, list[_Connection]] = {}
        self._open: set[_Connection] = set()

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
                    idle.close()
            raise

    async def supports(self, scope: Scope, address: Address, key: int, until: float) -> bool:
        """Whether the broker supports the API in a version that this client can send."""
        connection = self._take(address) or await self._connect(scope, address, until)
        self._release(address, connection)
        return key in APIS and _common_version(connection, APIS[key]) is not None

    def close(self) -> None:
        """Close all connections immediately."""
        self._idle.clear()
        for connection in tuple(self._open):
            under_way = connection.initializing or connection.in_flight_requests
            connection.close(Disconnected("the client is closed") if under_way else None)

    def _take(self, address: Address) -> _Connection | None:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.connected and not connection.paused:
                return connection
            connection.close()
        return None

    def _release(self, address: Address, connection: _Connection) -> None:
        self._idle.setdefault(address, []).append(connection)

    async def _exchange(
        self, scope: Scope, connection: _Connection, address: Address, key: ApiKey, make: Make, until: float
    ) -> tuple[Any, int]:
        api = APIS[key]
        version = _common_version(connection, api)
        if version is None:
            self._release(address, connection)
            raise Unsupported(f"the broker at {_text(address)} does not support {api.name} (key {int(key)})")
        try:
            request = _Request(api, version, messages.encode(make(version), version))
            response = await scope.wait(connection.send_request(request, request_timeout_ms=_NO_LIMIT_MS), until)
        except BaseException as error:
            connection.close(Disconnected("given up"))
            raise _named(error, address, scope) from error
        self._release(address, connection)
        return response, version

    async def _connect(self, scope: Scope, address: Address, until: float) -> _Connection:
        """A connection that is ready for requests."""
        scope.check()
        connection = _Connection(self._net, node_id=_text(address), **self._settings.of_connections())
        self._open.add(connection)
        connection.close_future.add_both(lambda _: self._open.discard(connection))
        try:
            connection.connection_made(await self._transport(scope, address, until))
            await connection.initialize(timeout_at=until)
            await scope.wait(connection.init_future, until)
        except BaseException as error:
            connection.close(Disconnected("given up"))
            raise _named(error, address, scope) from error
        return connection

    async def _transport(self, scope: Scope, address: Address, until: float) -> KafkaTCPTransport:
        """A connected socket, with TLS if it is set. Limits the time of the TLS handshake, because kafka-python does not."""
        host, port = address
        sock = await create_connection(
            self._net, host, port, SOCKET_OPTIONS, proxy_url=self._settings.security.get("proxy_url"), timeout_at=until
        )
        if not self._settings.uses_tls:
            return KafkaTCPTransport(self._net, sock, host=host)
        try:
            transport = KafkaSSLTransport(self._net, sock, host=host, **self._settings.of_tls())
        except BaseException:
            sock.close()
            raise
        done = Future()

        async def shake_hands() -> None:
            try:
                await transport.handshake()
            except (OSError, kafka.errors.KafkaError) as error:
                done.failure(error)
            else:
                done.success(None)

        task = self._net.call_soon(shake_hands)
        try:
            await scope.wait(done, until)
        except BaseException:
            self._net.cancel(task)
            transport.abort()
            raise
        return transport


class _Connection(KafkaConnection):
    """kafka-python's connection, but closed when a response cannot be read. The original would stop reading and stay open."""

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except kafka.errors.KafkaProtocolError:
            raise
        except Exception as error:
            raise kafka.errors.KafkaProtocolError(f"the response cannot be decoded: {error!r}") from error


class _Request:
    """Adapts one of Klamm's messages to the interface of kafka-python's requests."""

    def __init__(self, api: Api, version: int, body: bytes) -> None:
        self.API_KEY = api.key
        self.API_VERSION = version
        self.header = self
        self.correlation_id = -1
        self._api = api
        self._body = body
        self._client_id: str | None = None

    def with_header(self, correlation_id: int, client_id: str) -> None:
        self.correlation_id = correlation_id
        self._client_id = client_id

    def encode(self, framed: bool, header: bool) -> bytes:
        assert framed and header
        return messages.encode_request(self.API_KEY, self.API_VERSION, self.correlation_id, self._client_id, self._body)

    def expect_response(self) -> bool:
        return True

    def get_response_class(self) -> _Response:
        return _Response(self._api, self.API_VERSION)

    def __str__(self) -> str:
        return f"{self._api.name} v{self.API_VERSION}"


class _Response:
    """Reads one response in two steps, like kafka-python: the header, then the body."""

    def __init__(self, api: Api, version: int) -> None:
        self._api = api
        self._version = version
        self._payload = b""
        self._offset = 0
        self.correlation_id = -1

    def parse_header(self, buffer: Any) -> _Response:
        self._payload = buffer.read()
        try:
            self.correlation_id, self._offset = messages.decode_response_header(self._api.key, self._version, self._payload)
        except RemoteProtocolError as error:
            raise kafka.errors.KafkaProtocolError(str(error)) from error
        return self

    def decode(self, _buffer: Any) -> Any:
        try:
            return messages.decode(f"{self._api.name}Response", self._version, self._payload, self._offset)[0]
        except (RemoteProtocolError, struct.error) as error:
            raise kafka.errors.KafkaProtocolError(f"{self._api.name} response v{self._version}: {error}") from error


def _common_version(connection: _Connection, api: Api) -> int | None:
    """The highest version of an API that the broker and this client support; None if there is none."""
    low, high = connection.broker_version_data.api_versions.get(int(api.key), (0, -1))
    version = min(high, api.max_version)
    return version if version >= max(low, api.min_version) else None


def _named(error: BaseException, address: Address, scope: Scope) -> BaseException:
    """The error of this package for an error of kafka-python or of the system, with the address. Any other error is a bug and is returned
    unchanged.
    """
    where = f"the broker at {_text(address)}"
    text = _reason(error)
    match error:
        case AdminError():
            return error
        case kafka.errors.KafkaTimeoutError() | kafka.errors.RequestTimedOutError():
            return TimedOut(f"{where} did not respond in time; the call had {scope.timeout_ms} ms")
        case kafka.errors.SaslAuthenticationFailedError() | kafka.errors.UnsupportedSaslMechanismError():
            return NotAuthenticated(f"{where}: {text}")
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return Disconnected(f"{where} closed the connection during the TLS handshake")
        case ssl.SSLError() | kafka.errors.KafkaConfigurationError():
            return NotAuthenticated(f"{where}: {text}")
        case kafka.errors.KafkaProtocolError():
            return BadResponse(f"{where} sent an invalid response: {text}")
        case kafka.errors.KafkaError() | OSError():
            return Disconnected(f"{where} cannot be reached: {text}")
        case _:
            return error


def _reason(error: BaseException) -> str:
    """The text of the error. kafka-python's errno number and name are replaced by the system's text."""
    text = str(error) or type(error).__name__
    number = _ERRNO.search(text)
    return text if number is None else os.strerror(int(number[1]))


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
