"""One connection of a client, passed on to its broker and back. What a peer sends is journaled before the other has it.

Requests pass as bytes, and so do responses, but for those that may have addresses or say versions: they wait until they are whole. Each
side is read only as fast as the other reads. If the client ends its side, the broker is told, and its last responses still pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from struct import Struct
from typing import Protocol

from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.exchanges.exchanges import TOKEN, Exchanges, ExchangeSink
from klamm.protocol.exchanges.splitter import HEAD_BYTES
from klamm.protocol.security.redaction import SaslGuard
from klamm.proxy.addresses import AddressedResponse, has_addresses, is_known, with_known_versions

log = logging.getLogger(__name__)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CHUNK = 64 << 10
LARGEST_ADDRESSED = 64 << 20
"""A larger response passes with the addresses that are in it."""

_LENGTH = Struct(">i")
_BEFORE_LOGIN = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE))
"""What a broker responds to before it knows the client."""


class Log(Protocol):
    """Gets what both sides say, split anywhere: the bytes of the broker as the broker sent them."""

    def received(self, data: bytes, /) -> None:
        """The client sent this."""

    def passed(self, data: bytes, /) -> None:
        """The broker sent this."""

    def logged_in(self) -> None:
        """The broker responds to the client: its next requests are no SASL tokens."""


class NoLog:
    """No journal is kept."""

    def received(self, data: bytes, /) -> None:
        pass

    def passed(self, data: bytes, /) -> None:
        pass

    def logged_in(self) -> None:
        pass


class Rewrite(Protocol):
    """Returns the frame of a response with the addresses of the proxy."""

    def __call__(self, response: AddressedResponse) -> Awaitable[bytes]: ...


class Passage(ExchangeSink):
    """A connection between a client and a broker."""

    def __init__(self, client: Streams, broker: Streams, rewrite: Rewrite, heard: Log) -> None:
        self._client = client
        self._broker = broker
        self._rewrite = rewrite
        self._heard = heard
        self._requests = Exchanges(self, public=None, request_keep=lambda head: HEAD_BYTES)

    async def run(self) -> str:
        """Pass bytes until the broker closes, or the client's connection is lost; returns `peer` if the client ended first, else `us`."""
        there = asyncio.ensure_future(self._pass_requests())
        back = asyncio.ensure_future(self._pass_responses())
        try:
            done, _ = await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            by = "us" if back in done else "peer"
            for each in done:
                each.result()
            if by == "peer" and self._broker[1].can_write_eof() and not self._broker[1].is_closing():
                with suppress(OSError):  # the broker may have gone
                    self._broker[1].write_eof()
                await back
            return by
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            self._client[1].close()
            self._broker[1].close()

    async def _pass_requests(self) -> None:
        with suppress(ConnectionError):
            while data := await self._client[0].read(CHUNK):
                self._requests.received(data)
                self._heard.received(data)
                await _write(self._broker[1], data)

    async def _pass_responses(self) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self._pass_response()

    async def _pass_response(self) -> None:
        reader = self._broker[0]
        head = await reader.readexactly(_LENGTH.size)
        left = _LENGTH.unpack(head)[0]
        if left >= 4:
            head += await reader.readexactly(4)
            left -= 4
            kind = self._kind(head)
            if kind is not None and left > LARGEST_ADDRESSED:
                log.error("a response of %d bytes to API %d passes with the addresses of the brokers: it is too large", left, kind[0])
            elif kind is not None:
                frame = head + await reader.readexactly(left)
                self._heard.passed(frame)
                await _write(self._client[1], await self._with_own_addresses(frame, kind))
                return
        else:
            self._requests.take(None)
        self._heard.passed(head)
        await _write(self._client[1], head)
        while left > 0:
            data = await reader.read(min(left, CHUNK))
            if not data:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(data)
            self._heard.passed(data)
            await _write(self._client[1], data)
        if left < 0:
            log.warning("a broker sent a frame with the length %d; its connection is passed on without being read", left)
            while data := await reader.read(CHUNK):
                await _write(self._client[1], data)

    def _kind(self, head: bytes) -> tuple[int, int] | None:
        """API key and version of a response that may have to change; None for others."""
        found = self._requests.take(_LENGTH.unpack_from(head, 4)[0])
        if found is None or found[2] == TOKEN:
            return None
        key, version = found[1] >> 16, found[1] & 0xFFFF
        if self._requests.guard.is_on and key not in _BEFORE_LOGIN:
            self._requests.guard = SaslGuard(False)
            self._heard.logged_in()
        if key == ApiKey.API_VERSIONS:
            return key, version
        if not has_addresses(key, version):
            return None
        if not is_known(key, version):
            log.error("a response to version %d of API %d passes with the addresses of the brokers: it is not known here", version, key)
            return None
        return key, version

    async def _with_own_addresses(self, frame: bytes, kind: tuple[int, int]) -> bytes:
        try:
            if kind[0] == ApiKey.API_VERSIONS:
                return with_known_versions(frame, kind[1])
            return await self._rewrite(AddressedResponse(frame, *kind))
        except (RemoteProtocolError, LocalProtocolError) as error:
            log.error("a response of API %d passes as it is: %s", kind[0], error)
            return frame

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: object
    ) -> int:
        return kind


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
