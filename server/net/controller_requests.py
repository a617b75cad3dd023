"""A broker's requests to the active controller: one connection that is kept, one request in flight, the others wait in order.

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
from klamm.protocol.clock import SYSTEM_CLOCK, Clock
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.nouns import Endpoint
from klamm.server.net.outgoing import OutgoingConnection, dial
from klamm.server.net.tap import BrokerTap, Cause, ConnectionKind

log = logging.getLogger(__name__)

RETRY_S = 0.1
MAX_WAITING = 1000


class ControllerUnreachable(Exception):
    """The active controller did not respond in time; the text says why the last try failed. It may have handled the request."""


@dataclass(slots=True, eq=False)
class _Request:
    api_key: int
    version: int
    body: bytes
    timeout_s: float
    retry_until: float
    cause: Cause | None
    response: asyncio.Future[Any]


class ControllerRequests:
    """`find` returns the active controller's endpoint, or None when it is not known."""

    def __init__(
        self, client_id: str, find: Callable[[], Endpoint | None], tap: BrokerTap | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._client_id = client_id
        self._find = find
        self.clock = clock
        self._tap = tap
        self._waiting: deque[_Request] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._connection: OutgoingConnection | None = None
        self._address = ("", 0)
        self._next_correlation_id = 0
        self._payload: asyncio.Future[bytes] | None = None
        self._closed = False

    async def send(
        self, api_key: int, version: int, request: messages.Message, timeout_s: float, retry_s: float = 0.0, cause: Cause | None = None
    ) -> Any:
        """The decoded response. `timeout_s` limits one try. Failed tries are repeated for `retry_s`; without it there is one try.

        Raises ControllerUnreachable, also when MAX_WAITING requests wait already or the broker stops.
        """
        if self._closed:
            raise ControllerUnreachable("the broker stops")
        if len(self._waiting) >= MAX_WAITING:
            raise ControllerUnreachable(f"{MAX_WAITING} requests wait for the controller")
        loop = asyncio.get_running_loop()
        body = messages.encode(request, version)
        waiting = _Request(api_key, version, body, timeout_s, self.clock.monotonic() + retry_s, cause, loop.create_future())
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
        self._hang_up()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                request = self._waiting[0]
                if not request.response.done():
                    await self._deliver(request)
                self._waiting.popleft()
        finally:
            self._sender = None

    async def _deliver(self, request: _Request) -> None:
        """Try until there is a response, nobody waits for it any more, or the time to retry is over."""
        while not request.response.done():
            try:
                response = await self._try(request)
                if response.error_code != ErrorCode.NOT_CONTROLLER:
                    if not request.response.done():
                        request.response.set_result(response)
                    return
                failure = f"{self._address[0]}:{self._address[1]} is not the controller"
            except (OSError, RemoteProtocolError) as error:
                self._hang_up()
                failure = str(error) or "no response in time"
            log.debug("%s to the controller: %s", messages.APIS[request.api_key].name, failure)
            if self.clock.monotonic() + RETRY_S > request.retry_until:
                if not request.response.done():
                    request.response.set_exception(ControllerUnreachable(failure))
                return
            await self.clock.sleep(RETRY_S)

    async def _try(self, request: _Request) -> Any:
        """Send a request once; its decoded response. Raises OSError or RemoteProtocolError."""
        connection = await self._connected(request.timeout_s)
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._payload = asyncio.get_running_loop().create_future()
        frame = messages.encode_request(request.api_key, request.version, correlation_id, self._client_id, request.body)
        connection.send(frame, request.cause)
        try:
            async with self.clock.timeout(request.timeout_s):
                payload = await self._payload
        finally:
            self._payload = None
        got, offset = messages.decode_response_header(request.api_key, request.version, payload)
        if got != correlation_id:
            raise RemoteProtocolError(f"response to request {got} instead of {correlation_id}")
        response, _ = messages.decode(f"{messages.APIS[request.api_key].name}Response", request.version, payload, offset)
        return response

    async def _connected(self, timeout_s: float) -> OutgoingConnection:
        """The connection to the controller that the metadata cache has now. Raises OSError."""
        endpoint = self._find()
        if endpoint is None:
            raise ConnectionError("the controller is not known")
        address = endpoint.host, endpoint.port
        if self._connection is not None and address != self._address:
            self._hang_up()
        if self._connection is None:
            tap = None if self._tap is None else self._tap.connection(ConnectionKind.TO_CONTROLLER, f"{endpoint.host}:{endpoint.port}")
            self._connection = await dial(endpoint.host, endpoint.port, self._on_payload, self._on_lost, timeout_s, tap, self.clock)
            self._address = address
        return self._connection

    def _on_payload(self, payload: bytes) -> None:
        if self._payload is None or self._payload.done():
            raise RemoteProtocolError("a response without a request")
        self._payload.set_result(payload)

    def _on_lost(self, reason: Exception | None) -> None:
        self._connection = None
        if self._payload is not None and not self._payload.done():
            self._payload.set_exception(reason or ConnectionResetError("closed by the controller"))

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
