"""A broker's requests to the active controller: one connection that is kept, one request in flight, the others wait in order.

Before the first request on a connection whose version is to be negotiated, ApiVersions is sent (controller 14): the request goes in the
newest version that both sides know.

The controller is looked up in the metadata cache before each try; when it has moved, the connection to the old one is closed. A try that
fails (no controller known, no connection, connection lost, no response, NOT_CONTROLLER) is repeated every RETRY_S until the request's
time to retry is over. So a request whose response got lost arrives twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.clock import SYSTEM_CLOCK, Clock
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.nouns import Endpoint
from klamm.server.net.kept_connection import KeptConnection
from klamm.server.net.tap import BrokerTap, Cause, ConnectionKind

log = logging.getLogger(__name__)

RETRY_S = 0.1
MAX_WAITING = 1000
API_VERSIONS_VERSION = 4
SOFTWARE_VERSION = "3.9.1"
_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


async def versions(connection: KeptConnection, timeout_s: float, cause: Cause | None = None) -> dict[int, tuple[int, int]]:
    """The oldest and the newest version of each API that the broker at the other end knows. Raises as `exchange` does."""
    message = messages.ApiVersionsRequest(client_software_name="klamm", client_software_version=SOFTWARE_VERSION)
    body = messages.encode(message, API_VERSIONS_VERSION)
    payload, offset = await connection.exchange(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, body, timeout_s, cause)
    is_older = payload[offset : offset + 2] == _UNSUPPORTED_VERSION  # then the response has the shape of version 0
    response, _ = messages.decode("ApiVersionsResponse", 0 if is_older else API_VERSIONS_VERSION, payload, offset)
    return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


class ControllerUnreachable(Exception):
    """The active controller did not respond in time; the text says why the last try failed. It may have handled the request."""


@dataclass(slots=True, eq=False)
class _WaitingRequest:
    """`build` makes the message for a version; without it the version is fixed."""

    api_key: int
    version: int
    body: bytes
    build: Callable[[int], messages.Message] | None
    timeout_s: float
    retry_until: float
    cause: Cause | None
    response: asyncio.Future[Any]


class ControllerRequests:
    """`find` returns the active controller's endpoint, or None when it is not known."""

    def __init__(
        self, client_id: str, find: Callable[[], Endpoint | None], tap: BrokerTap | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.clock = clock
        self._waiting: deque[_WaitingRequest] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._connection = KeptConnection("controller", ConnectionKind.TO_CONTROLLER, client_id, find, tap, clock)
        self._versions: dict[int, tuple[int, int]] | None = None
        """What the controller at the other end knows."""
        self._closed = False

    async def send(
        self, api_key: int, version: int, request: messages.Message, timeout_s: float, retry_s: float = 0.0, cause: Cause | None = None
    ) -> Any:
        """The decoded response. `timeout_s` limits one try. Failed tries are repeated for `retry_s`; without it there is one try.

        Raises ControllerUnreachable, also when MAX_WAITING requests wait already or the broker stops.
        """
        response, _ = await self._wait(api_key, version, messages.encode(request, version), None, timeout_s, retry_s, cause)
        return response

    async def send_negotiated(
        self, api_key: int, newest: int, build: Callable[[int], messages.Message], timeout_s: float, retry_s: float = 0.0
    ) -> tuple[Any, int]:
        """The decoded response and its version, at most `newest`. `build` makes the message for a version. Raises as `send`, also when no
        version is common.
        """
        response: tuple[Any, int] = await self._wait(api_key, newest, b"", build, timeout_s, retry_s, None)
        return response

    async def _wait(
        self, api_key: int, version: int, body: bytes, build: Callable[[int], messages.Message] | None, timeout_s: float, retry_s: float,
        cause: Cause | None,
    ) -> Any:
        """Queue a request; (decoded response, version)."""
        if self._closed:
            raise ControllerUnreachable("the broker stops")
        if len(self._waiting) >= MAX_WAITING:
            raise ControllerUnreachable(f"{MAX_WAITING} requests wait for the controller")
        loop = asyncio.get_running_loop()
        waiting = _WaitingRequest(api_key, version, body, build, timeout_s, self.clock.monotonic() + retry_s, cause, loop.create_future())
        self._waiting.append(waiting)
        if self._sender is None:
            self._sender = loop.create_task(self._send_all())
        try:
            async with self.clock.timeout(retry_s + timeout_s):
                return await waiting.response
        except TimeoutError:
            raise ControllerUnreachable("no response in time") from None

    async def close(self) -> None:
        """Close the connection; requests that wait are ControllerUnreachable."""
        self._closed = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        for request in self._waiting:
            if not request.response.done():
                request.response.set_exception(ControllerUnreachable("the broker stops"))
        self._waiting.clear()
        self._connection.close()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                request = self._waiting[0]
                if not request.response.done():
                    await self._deliver(request)
                self._waiting.popleft()
        finally:
            self._sender = None

    async def _deliver(self, request: _WaitingRequest) -> None:
        """Try until there is a response, nobody waits for it any more, or the time to retry is over."""
        while not request.response.done():
            try:
                response, version = await self._try(request)
                if response.error_code != ErrorCode.NOT_CONTROLLER:
                    if not request.response.done():
                        request.response.set_result((response, version))
                    return
                host, port = self._connection.address
                failure = f"{host}:{port} is not the controller"
            except (OSError, RemoteProtocolError) as error:
                self._connection.close()
                failure = str(error) or "no response in time"
            log.debug("%s to the controller: %s", messages.APIS[request.api_key].name, failure)
            if self.clock.monotonic() + RETRY_S > request.retry_until:
                if not request.response.done():
                    request.response.set_exception(ControllerUnreachable(failure))
                return
            await self.clock.sleep(RETRY_S)

    async def _try(self, request: _WaitingRequest) -> tuple[Any, int]:
        """Send a request once; its decoded response, and its version. Raises OSError or RemoteProtocolError."""
        if await self._connection.connect(request.timeout_s):
            self._versions = None
        version, body = request.version, request.body
        if request.build is not None:
            version = await self._negotiate(request)
            body = messages.encode(request.build(version), version)
        payload, offset = await self._connection.exchange(request.api_key, version, body, request.timeout_s, request.cause)
        response, _ = messages.decode(f"{messages.APIS[request.api_key].name}Response", version, payload, offset)
        return response, version

    async def _negotiate(self, request: _WaitingRequest) -> int:
        """The newest version of a request that the controller knows too. Raises as `_try`, ConnectionError where there is none."""
        if self._versions is None:
            self._versions = await versions(self._connection, request.timeout_s, request.cause)
        oldest, newest = self._versions.get(request.api_key, (0, -1))
        version = min(newest, request.version)
        if version < max(oldest, messages.APIS[request.api_key].min_version):
            raise ConnectionError(f"the controller has no version of {messages.APIS[request.api_key].name} up to {request.version}")
        return version
