"""One connection of a client, passed on to its broker and back. What a peer sends is journaled before the other has it.

Requests pass as bytes, and so do responses, but for those that may have addresses: they wait until they are whole. Each side is read only
as fast as the other reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from struct import Struct
from typing import Protocol

from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.exchanges.exchanges import TOKEN, Exchanges, ExchangeSink
from klamm.protocol.exchanges.splitter import HEAD_BYTES
from klamm.proxy.addresses import AddressedResponse, has_addresses, is_known

log = logging.getLogger(__name__)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
CHUNK = 64 << 10
LARGEST_ADDRESSED = 64 << 20
"""A larger response passes with the addresses that are in it."""

_LENGTH = Struct(">i")


class Rewrite(Protocol):
    """Returns the frame of a response with the addresses of the proxy."""

    def __call__(self, response: AddressedResponse) -> Awaitable[bytes]: ...


class Passage(ExchangeSink):
    """A connection between a client and a broker."""

    def __init__(
        self, client: Streams, broker: Streams, rewrite: Rewrite, received: Callable[[bytes], None], sent: Callable[[bytes], None]
    ) -> None:
        """`received` and `sent` get the bytes of requests and of responses, as the broker has them, split anywhere."""
        self._client = client
        self._broker = broker
        self._rewrite = rewrite
        self._received = received
        self._sent = sent
        self._requests = Exchanges(self, public=None, request_keep=lambda head: HEAD_BYTES)

    async def run(self) -> str:
        """Pass bytes until either side closes; returns `peer` if the client did, else `us`."""
        there = asyncio.ensure_future(self._pass_requests())
        back = asyncio.ensure_future(self._pass_responses())
        try:
            done, _ = await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
            return "us" if back in done else "peer"
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
                self._received(data)
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
            if kind is not None and left <= LARGEST_ADDRESSED:
                frame = head + await reader.readexactly(left)
                self._sent(frame)
                await _write(self._client[1], await self._with_own_addresses(frame, kind))
                return
        else:
            self._requests.take(None)
        self._sent(head)
        await _write(self._client[1], head)
        while left > 0:
            data = await reader.read(min(left, CHUNK))
            if not data:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(data)
            self._sent(data)
            await _write(self._client[1], data)
        if left < 0:
            log.warning("a broker sent a frame with the length %d; its connection is passed on without being read", left)
            while data := await reader.read(CHUNK):
                await _write(self._client[1], data)

    def _kind(self, head: bytes) -> tuple[int, int] | None:
        """API key and version of a response that may have addresses; None for others."""
        found = self._requests.take(_LENGTH.unpack_from(head, 4)[0])
        if found is None or found[2] == TOKEN:
            return None
        key, version = found[1] >> 16, found[1] & 0xFFFF
        if not has_addresses(key, version):
            return None
        if not is_known(key, version):
            log.warning("responses to version %d of API %d pass with the addresses of the brokers: it is not known here", version, key)
            return None
        return key, version

    async def _with_own_addresses(self, frame: bytes, kind: tuple[int, int]) -> bytes:
        try:
            return await self._rewrite(AddressedResponse(frame, *kind))
        except (RemoteProtocolError, LocalProtocolError) as error:
            log.warning("a response of API %d passes as it is: %s", kind[0], error)
            return frame

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: object
    ) -> int:
        return kind


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
