"""A broker's requests to the active controller: one kept connection with one request in flight; the others wait in order.

If the version of a request is negotiated, the connection sends ApiVersions before the first such request (controller 14). The request has
the newest version that both sides know.

The controller is looked up in the metadata cache before each attempt. If it has moved, the connection to the old one is closed. A failed
attempt (no controller known, no connection, connection lost, no response, NOT_CONTROLLER) is repeated every RETRY_S seconds until the retry
time of the request is over. So a request whose response was lost arrives twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from klamm.machine.faults import contained
from klamm.protocol import messages
from klamm.protocol.apis import BROKER_SOFTWARE, SOFTWARE_VERSION, ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.exchanges.connections import Cause, ConnectionKind
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.server.net.kept_connection import KeptConnection
from klamm.server.net.tap import BrokerTap

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity

R = TypeVar("R")

log = logging.getLogger(__name__)

RETRY_S = 0.1
MAX_WAITING = 1000
API_VERSIONS_VERSION = 4
_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


async def versions(connection: KeptConnection, timeout_s: float, cause: Cause | None = None) -> dict[int, tuple[int, int]]:
    """API key → (oldest, newest) version that the broker at the other end supports. Raises the same errors as `exchange`."""
    message = messages.ApiVersionsRequest(client_software_name=BROKER_SOFTWARE, client_software_version=SOFTWARE_VERSION)
    version = API_VERSIONS_VERSION
    while True:
        body = messages.encode(message, version)
        payload, offset = await connection.exchange(ApiKey.API_VERSIONS, version, body, timeout_s, cause)
        is_older = payload[offset : offset + 2] == _UNSUPPORTED_VERSION  # then the response has the shape of version 0
        response, _ = messages.decode("ApiVersionsResponse", 0 if is_older else version, payload, offset)
        ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        if not is_older or version == 0:
            return ranges
        _, newest = ranges.get(ApiKey.API_VERSIONS, (0, 0))  # Kafka before 2.4 does not name its versions
        version = min(newest, version - 1)


class ControllerUnreachable(Exception):
    """The active controller did not respond in time; the text says why the last attempt failed. The request may have been handled."""


@dataclass(slots=True, eq=False)
class _WaitingRequest:
    """A request in the queue. `build` makes the message for a version; without it `version` and `body` are fixed."""

    api_key: int
    version: int
    body: bytes
    build: Callable[[int], messages.Message] | None
    timeout_s: float
    retry_until: float
    cause: Cause | None
    response: asyncio.Future[tuple[Any, int]]
    """Decoded, with its version."""


class ControllerRequests:
    """Sends requests to the active controller. `find` returns the controller's endpoint, None if it is not known."""

    def __init__(
        self, client_id: str, find: Callable[[], Endpoint | None], tap: BrokerTap | None = None, clock: Clock = SYSTEM_CLOCK,
        security: OutgoingSecurity | None = None,
    ) -> None:
        self.clock = clock
        self._waiting: deque[_WaitingRequest] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._connection = KeptConnection("controller", ConnectionKind.TO_CONTROLLER, client_id, find, tap, clock, security=security)
        self._versions: dict[int, tuple[int, int]] | None = None
        """API key → (oldest, newest) version of the controller at the other end; None before ApiVersions."""
        self._closed = False

    async def send(
        self, api_key: int, version: int, request: messages.Request[R], timeout_s: float, retry_s: float = 0.0, cause: Cause | None = None
    ) -> R:
        """Send a request; returns the decoded response. `timeout_s` limits one attempt. Failed attempts are repeated for `retry_s` seconds;
        with 0 there is one attempt.

        Raises ControllerUnreachable, also if MAX_WAITING requests already wait or the broker is stopping.
        """
        response: R
        response, _ = await self._wait(api_key, version, messages.encode(request, version), None, timeout_s, retry_s, cause)
        return response

    async def send_negotiated(
        self, api_key: int, newest: int, build: Callable[[int], messages.Request[R]], timeout_s: float, retry_s: float = 0.0
    ) -> tuple[R, int]:
        """Send a request in the newest version, up to `newest`, that the controller supports; returns the decoded response and its version.

        `build` makes the message for a version. Raises ControllerUnreachable like `send`, also if there is no common version.
        """
        return await self._wait(api_key, newest, b"", build, timeout_s, retry_s, None)

    async def _wait(
        self, api_key: int, version: int, body: bytes, build: Callable[[int], messages.Message] | None, timeout_s: float, retry_s: float,
        cause: Cause | None,
    ) -> tuple[Any, int]:
        """Queue a request and wait; returns (decoded response, version)."""
        if self._closed:
            raise ControllerUnreachable("the broker is stopping")
        if len(self._waiting) >= MAX_WAITING:
            raise ControllerUnreachable(f"{MAX_WAITING} requests already wait for the controller")
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
        """Close the connection; waiting requests fail with ControllerUnreachable."""
        self._closed = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        for request in self._waiting:
            if not request.response.done():
                request.response.set_exception(ControllerUnreachable("the broker is stopping"))
        self._waiting.clear()
        self._connection.close()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                request = self._waiting[0]
                if not request.response.done():
                    await self._deliver_contained(request)
                self._waiting.popleft()
        finally:
            self._sender = None

    async def _deliver_contained(self, request: _WaitingRequest) -> None:
        """Like `_deliver`. An unexpected exception is told to the caller of this request alone; the next request has a new connection."""
        api = messages.APIS[request.api_key].name
        with contained(log, f"{api} to the controller"):
            await self._deliver(request)
        if not request.response.done():
            self._connection.close()
            request.response.set_exception(ControllerUnreachable(f"{api} failed because of a fault of this broker"))

    async def _deliver(self, request: _WaitingRequest) -> None:
        """Repeat the request until there is a response, the caller does not wait any more, or the retry time is over."""
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
            log.debug("%s to the controller failed: %s", messages.APIS[request.api_key].name, failure)
            if self.clock.monotonic() + RETRY_S > request.retry_until:
                if not request.response.done():
                    request.response.set_exception(ControllerUnreachable(failure))
                return
            await self.clock.sleep(RETRY_S)

    async def _try(self, request: _WaitingRequest) -> tuple[Any, int]:
        """Send a request once; returns the decoded response and its version. Raises OSError or RemoteProtocolError."""
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
        """The newest version of a request that the controller also supports. Raises the errors of `_try`; ConnectionError if there is none.
        """
        if self._versions is None:
            self._versions = await versions(self._connection, request.timeout_s, request.cause)
        oldest, newest = self._versions.get(request.api_key, (0, -1))
        version = min(newest, request.version)
        if version < max(oldest, messages.APIS[request.api_key].min_version):
            raise ConnectionError(
                f"the controller does not support {messages.APIS[request.api_key].name} in version {request.version} or older"
            )
        return version
