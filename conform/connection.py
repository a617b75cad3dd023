"""A raw client: one socket that sends any bytes, and keeps each exchange of frames.

It takes nothing for granted: a response has to be one frame with the right correlation id that decodes to its last byte.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Any

from klamm.conform.case import Absent, Broken, Exchange
from klamm.protocol import messages
from klamm.protocol.apis import APIS, Api
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.framing import FrameReader

CLIENT_ID = "klamm-conform"
KEYS = {api.name: api for api in APIS.values()}
UNAUTHORIZED = frozenset({
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
})
CLOSED = "the connection was closed instead of a response"


class Sent:
    """A request that was sent, and what its response has to look like."""

    def __init__(self, api: Api, version: int, correlation_id: int, frame: bytes) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame


class Connection:
    """One connection. Requests may be pipelined: `send` several, then `receive` each."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchanges: list[Exchange]) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._payloads: list[bytes] = []
        self._exchanges = exchanges
        self._correlation_id = 0

    @classmethod
    async def open(cls, host: str, port: int, exchanges: list[Exchange], tls: ssl.SSLContext | None = None) -> Connection:
        """Connect. Raises OSError."""
        return cls(*await asyncio.open_connection(host, port, ssl=tls), exchanges)

    def close(self) -> None:
        """Close at once."""
        if self._writer.transport is not None:
            self._writer.transport.abort()

    # bytes

    async def write(self, data: bytes) -> None:
        """Send bytes as they are. A server that has closed the connection is noticed by what reads."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            pass  # the next read sees the end

    async def payload(self) -> bytes | None:
        """The payload of the next frame; None if the server closes the connection. Raises Broken for a wrong length."""
        while not self._payloads:
            try:
                data = await self._reader.read(1 << 16)
            except (ConnectionError, ssl.SSLError):
                data = b""
            if not data:
                return None
            try:
                self._payloads = self._frames.feed(data)
            except RemoteProtocolError as error:
                raise Broken(str(error)) from None
        return self._payloads.pop(0)

    async def raw(self, frame: bytes, secret: bytes = b"") -> bytes | None:
        """Send a frame of any bytes; the payload that comes back, None if the server closes the connection instead.

        `secret` is not kept with the frame: reports show it to others.
        """
        at, kept = len(self._exchanges), frame.replace(secret, b"*" * len(secret)) if secret else frame
        self._exchanges.append(Exchange("", 0, kept, None))
        await self.write(frame)
        payload = await self.payload()
        self._exchanges[at] = Exchange("", 0, kept, payload)
        return payload

    async def expect_closed(self, what: str) -> None:
        """Raise Broken if anything but the end of the connection comes."""
        payload = await self.payload()
        if payload is not None:
            raise Broken(f"{what}: a response of {len(payload)} bytes, where the connection should be closed")

    # messages

    def frame(self, message: Any, version: int, client_id: str | None = CLIENT_ID, more: bytes = b"") -> Sent:
        """A request that is not sent yet; `more` are bytes after its body."""
        api = KEYS[type(message).__name__.removesuffix("Request")]
        self._correlation_id += 1
        body = messages.encode(message, version) + more
        frame = messages.encode_request(api.key, version, self._correlation_id, client_id, body)
        return Sent(api, version, self._correlation_id, frame)

    async def send(self, message: Any, version: int, client_id: str | None = CLIENT_ID) -> Sent:
        """Send a request and do not wait for the response."""
        sent = self.frame(message, version, client_id)
        await self.write(sent.frame)
        return sent

    async def receive(self, sent: Sent) -> Any:
        """The response to a request. Raises Broken if it is not there, is that of another request, or does not decode."""
        at = len(self._exchanges)
        self._exchanges.append(Exchange(sent.api.name, sent.version, sent.frame, None))
        payload = await self.payload()
        if payload is None:
            raise Broken(f"{sent.api.name} {sent.version}: {CLOSED}")
        self._exchanges[at] = Exchange(sent.api.name, sent.version, sent.frame, payload)
        return decoded(sent, payload)

    async def ask(self, message: Any, version: int, client_id: str | None = CLIENT_ID) -> Any:
        """The response to a request."""
        return await self.receive(await self.send(message, version, client_id))


def decoded(sent: Sent, payload: bytes) -> Any:
    """The message of a response. Raises Broken."""
    what = f"{sent.api.name} {sent.version}"
    try:
        correlation_id, offset = messages.decode_response_header(sent.api.key, sent.version, payload)
        if correlation_id != sent.correlation_id:
            raise Broken(f"{what}: the response has correlation id {correlation_id}, the request {sent.correlation_id}")
        message, end = messages.decode(f"{sent.api.name}Response", sent.version, payload, offset)
    except RemoteProtocolError as error:
        raise Broken(f"{what}: the response does not decode: {error}") from None
    if end != len(payload):
        raise Broken(f"{what}: {len(payload) - end} bytes after the response")
    return message


def error_name(code: int) -> str:
    """The name of an error code, or its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def expect_error(code: int, *allowed: ErrorCode, what: str = "") -> None:
    """Raise Broken if the code is none of these; Absent if the server does not let this client do it."""
    if code not in allowed:
        if code in UNAUTHORIZED:
            raise Absent(f"{what + ': ' if what else ''}{error_name(code)}: the user of the connection may not do it")
        names = " or ".join(each.name for each in allowed)
        raise Broken(f"{what + ': ' if what else ''}{error_name(code)}, where {names} is expected")


def without_prefix(text: str) -> str:
    """A text without the random part of the names of this run."""
    return re.sub(r"conform-[0-9a-f]{8}-", "conform-", text)
