"""One connection to a broker: a socket (through a proxy if one is set), TLS, the versions of the broker's APIs, SASL, then one request at a
time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

from klamm.admin.calls.errors import Unsupported
from klamm.admin.calls.settings import Address, Settings
from klamm.admin.network.sockets import connected
from klamm.protocol import messages
from klamm.protocol.apis import ADMIN_SOFTWARE, APIS, SOFTWARE_VERSION, Api, ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.framing import FrameReader
from klamm.protocol.security.sasl_client import AUTHENTICATE_VERSION, authenticate

VERSIONS_FIRST = 3
"""The version of the first ApiVersions request, which all brokers since Kafka 2.4 have; older ones respond with version 0."""


class BrokerConnection(asyncio.Protocol):
    """A connection that is ready for requests. Everything runs in one event loop."""

    def __init__(self, client_id: str) -> None:
        self.lost: Exception | None = None
        """Why the connection is closed; None while it is open."""
        self._client_id = client_id
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[bytes] | None = None
        self._correlation_id = -1
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._until: float | None = None

    @classmethod
    async def open(cls, address: Address, settings: Settings) -> BrokerConnection:
        """Connect and authenticate. Raises OSError (ssl.SSLError and AuthenticationRefused are), RemoteProtocolError or Unsupported."""
        host, port = address
        loop = asyncio.get_running_loop()
        sock = await connected(host, port, settings.security.get("proxy_url"))
        tls: dict[str, Any] = {}
        try:
            if settings.uses_tls:
                # The deadline of the call ends a handshake that hangs, not this one.
                tls = {"ssl": settings.tls_context(), "server_hostname": host.rstrip("."), "ssl_handshake_timeout": 1e9}
            _, connection = await loop.create_connection(lambda: cls(settings.client_id), sock=sock, **tls)
        except BaseException:
            sock.close()
            raise
        try:
            await connection._begin(address, settings)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        is_open = self.lost is None and self._transport is not None and not self._transport.is_closing()
        return is_open and self._waiting is None and (self._until is None or time.monotonic() < self._until)

    def version_of(self, api: Api) -> int | None:
        """The highest version of an API that the broker and this client support; None if there is none."""
        low, high = self._versions.get(int(api.key), (0, -1))
        version = min(high, api.max_version)
        return version if version >= max(low, api.min_version) else None

    async def request(self, api: Api, version: int, body: bytes) -> Any:
        """The response to an encoded request. Raises OSError or RemoteProtocolError; then the connection has to be closed."""
        payload, offset = await self._payload_of(api.key, version, body)
        return messages.decode(f"{api.name}Response", version, payload, offset)[0]

    def close(self, reason: Exception | None = None) -> None:
        """Close at once. A request under way fails with the reason."""
        self._end(reason or ConnectionResetError("the connection is closed"))
        if self._transport is not None:
            self._transport.abort()

    async def _begin(self, address: Address, settings: Settings) -> None:
        self._versions = await self._learn_versions()
        if settings.credentials is None:
            return
        for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            if int(key) not in self._versions:
                raise Unsupported(f"the broker at {address[0]}:{address[1]} does not support {APIS[key].name}")
        version = min(self._versions[int(ApiKey.SASL_AUTHENTICATE)][1], AUTHENTICATE_VERSION)
        renewed_s = await authenticate(self._ask, self._client_id, settings.credentials(), version)
        self._until = None if renewed_s is None else time.monotonic() + renewed_s

    async def _learn_versions(self) -> dict[int, tuple[int, int]]:
        request = messages.ApiVersionsRequest(client_software_name=ADMIN_SOFTWARE, client_software_version=SOFTWARE_VERSION)
        response = await self._versions_by(VERSIONS_FIRST, request)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self._versions_by(0, request)
        if response.error_code:
            raise RemoteProtocolError(f"ApiVersions has the error {response.error_code}")
        return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    async def _versions_by(self, version: int, request: messages.ApiVersionsRequest) -> Any:
        """A broker that does not know the version responds in version 0, with UNSUPPORTED_VERSION."""
        payload, offset = await self._payload_of(ApiKey.API_VERSIONS, version, messages.encode(request, version))
        refused = payload[offset : offset + 2] == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2)
        return messages.decode("ApiVersionsResponse", 0 if refused else version, payload, offset)[0]

    async def _payload_of(self, key: ApiKey, version: int, body: bytes) -> tuple[bytes, int]:
        """The payload of the response to an encoded request, and where its body begins."""
        self._correlation_id = messages.id_after(self._correlation_id)
        payload = await self._ask(messages.encode_request(key, version, self._correlation_id, self._client_id, body))
        correlation_id, offset = messages.decode_response_header(key, version, payload)
        if correlation_id != self._correlation_id:
            raise RemoteProtocolError(f"a response to request {correlation_id}; the request was {self._correlation_id}")
        return payload, offset

    async def _ask(self, frame: bytes) -> bytes:
        """Send a frame; the payload of the next one that comes."""
        if self.lost is not None:
            raise self.lost
        assert self._transport is not None and self._waiting is None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            payloads = self._reader.feed(data)
        except RemoteProtocolError as error:
            self.close(error)
            return
        for payload in payloads:
            if self._waiting is None or self._waiting.done():
                self.close(RemoteProtocolError("a response without a request"))
                return
            self._waiting.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("the broker closed the connection"))

    def _end(self, reason: Exception) -> None:
        if self.lost is None:
            self.lost = reason
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(reason)
