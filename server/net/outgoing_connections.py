"""Connections that this broker opens: a TCP connection that sends frames and returns payloads, and single requests.

`OutgoingConnection` knows frames, but nothing else of Kafka. Its owner encodes requests, matches responses and decides what to do after a
loss (`server/net/channels.py` retries for ever; `request_once` gives up). The loss of a connection is reported to its owner exactly once.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.connections import Cause, ConnectionSink
from klamm.protocol.framing import FrameReader
from klamm.seams.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity

R = TypeVar("R")

MAX_ANSWER_BYTES = 1 << 30

MakeSink = Callable[[], ConnectionSink]
"""Makes the tap of a connection when it has been opened."""


class OutgoingConnection(asyncio.Protocol):
    """One connection to a broker. `on_payload` gets each response without its length. `on_lost` is called once, with the reason."""

    def __init__(
        self, on_payload: Callable[[bytes], None], on_lost: Callable[[Exception | None], None], tap: MakeSink | None = None
    ) -> None:
        self._make_sink = tap
        self._tap: ConnectionSink | None = None
        self._on_payload = on_payload
        self._on_lost: Callable[[Exception | None], None] | None = on_lost
        self._reader = FrameReader(MAX_ANSWER_BYTES)
        self._transport: asyncio.Transport | None = None
        self.renewed_at: float | None = None
        """When it should be replaced (on the clock); None if it can stay."""

    async def authenticate(self, security: OutgoingSecurity, client_id: str, clock: Clock) -> None:
        """Authenticate before the owner uses the connection. Raises OSError and RemoteProtocolError; then the connection is closed."""
        received: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        owner, self._on_payload = (self._on_payload, self._on_lost), received.put_nowait
        self._on_lost = lambda reason: received.put_nowait(reason or ConnectionResetError("closed by the peer"))

        async def ask(frame: bytes) -> bytes:
            self.send(frame)
            answer = await received.get()
            if isinstance(answer, Exception):
                raise answer
            return answer

        try:
            renewed_s = await security.authenticate(ask, client_id)
        except BaseException:
            self.close()
            raise
        if self._transport is None:  # lost after the last answer, which nobody would tell the owner
            raise ConnectionResetError("closed by the peer")
        self._on_payload, self._on_lost = owner
        if renewed_s is not None:
            self.renewed_at = clock.monotonic() + renewed_s

    def is_due(self, now: float) -> bool:
        """Whether this connection should be replaced, because its SASL session ends soon."""
        return self.renewed_at is not None and now >= self.renewed_at

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._make_sink is not None:
            self._tap = self._make_sink()

    def data_received(self, data: bytes) -> None:
        if self._tap is not None:
            self._tap.received(data)
        try:
            for payload in self._reader.feed(data):
                self._on_payload(payload)
        except RemoteProtocolError as error:
            self._end("us", str(error))
            self._lost(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("peer", None if exc is None else str(exc))
        self._lost(exc)

    def pause(self) -> None:
        """Read nothing until `resume`: this broker stands still."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """The opposite of `pause`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def send(self, frame: bytes, cause: Cause | None = None) -> None:
        """Write one frame. `cause` is its reason, for the tap. A lost connection is reported by `on_lost`, not here."""
        if self._transport is not None:
            if self._tap is not None:
                self._tap.sent(frame, cause)
            self._transport.write(frame)

    def close(self) -> None:
        """Close without calling the owner."""
        self._end("us", None)
        self._on_lost = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _end(self, by: str, reason: str | None) -> None:
        """Report the end of the connection to the tap, once."""
        if self._tap is not None:
            self._tap.closed(by, reason)
            self._tap = None

    def _lost(self, reason: Exception | None) -> None:
        on_lost = self._on_lost
        self.close()
        if on_lost is not None:
            on_lost(reason)


async def dial(
    host: str,
    port: int,
    on_payload: Callable[[bytes], None],
    on_lost: Callable[[Exception | None], None],
    timeout_s: float,
    tap: MakeSink | None = None,
    clock: Clock = SYSTEM_CLOCK,
    security: OutgoingSecurity | None = None,
    client_id: str = "",
) -> OutgoingConnection:
    """Open a connection; with `security` secured and authenticated. Raises OSError (TimeoutError after `timeout_s`), also if a registered
    host or port is not valid.
    """
    loop = asyncio.get_running_loop()
    if not 0 < port < 65536:  # uvloop would take it modulo 65536
        raise OSError(errno.EINVAL, f"{port} is not a port")
    tls: dict[str, Any] = {}
    if security is not None and security.context is not None:
        tls = {"ssl": security.context, "server_hostname": host}
    try:
        async with clock.timeout(timeout_s):
            _, connection = await loop.create_connection(lambda: OutgoingConnection(on_payload, on_lost, tap), host, port, **tls)
            if security is not None and security.has_sasl:
                await connection.authenticate(security, client_id, clock)
    except RemoteProtocolError as error:
        raise ConnectionError(f"the authentication failed: {error}") from error
    except ValueError as error:  # a label without letters, or with more than 63; a null character
        raise OSError(errno.EINVAL, f"{host!r} is not a host name") from error
    opened = getattr(clock, "opened", None)
    if opened is not None:  # the clock of a broker that can stand still
        opened(connection)
    return connection


async def request_once(
    host: str, port: int, api_key: int, version: int, client_id: str, message: messages.Request[R], timeout_s: float,
    clock: Clock = SYSTEM_CLOCK, security: OutgoingSecurity | None = None,
) -> R:
    """Send one request on a new connection, without ApiVersions; returns the decoded response.

    Raises OSError if the broker cannot be reached, closes the connection or does not respond within `timeout_s`, RemoteProtocolError if
    its response is invalid.
    """
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_payload(payload: bytes) -> None:
        if not received.done():
            received.set_result(payload)

    def on_lost(reason: Exception | None) -> None:
        if not received.done():
            received.set_exception(reason or ConnectionResetError("closed by the peer"))

    connection = await dial(host, port, on_payload, on_lost, timeout_s, clock=clock, security=security, client_id=client_id)
    try:
        connection.send(messages.encode_request(api_key, version, 0, client_id, messages.encode(message, version)))
        async with clock.timeout(timeout_s):
            payload = await received
    finally:
        connection.close()
    correlation_id, offset = messages.decode_response_header(api_key, version, payload)
    if correlation_id != 0:
        raise RemoteProtocolError(f"response to request {correlation_id}, which was never sent")
    response: R
    response, _ = messages.decode(f"{messages.APIS[api_key].name}Response", version, payload, offset)
    return response
