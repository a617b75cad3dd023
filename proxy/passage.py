"""One connection of a client, passed on to its broker and back. What a peer sends is journaled before the other has it.

Requests pass as bytes, and so do responses, but for those that may have addresses or say versions: they wait until they are whole. Each
side is read only as fast as the other reads. If the client ends its side, the broker is told, and its last responses still pass.

While there are faults (`Steering`), requests pass one by one: each that a fault is about waits until all before it have their responses,
and no further one is read until it has its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from struct import Struct
from typing import Protocol

from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionSink, NoSink
from klamm.protocol.exchanges.exchanges import TOKEN, Exchanges, ExchangeSink
from klamm.protocol.exchanges.peers import other_protocol
from klamm.protocol.exchanges.splitter import HEAD_BYTES
from klamm.protocol.security.redaction import SaslGuard
from klamm.proxy.addresses import AddressedResponse, has_addresses, highest_versions, is_known, with_known_versions
from klamm.proxy.upstream import CHUNK, Streams

log = logging.getLogger(__name__)

LARGEST_ADDRESSED = 64 << 20
"""A larger response passes with the addresses that are in it."""
LARGEST_STEERED = 64 << 20
"""No fault is about a larger request, or one with a larger response."""
LARGE = 64 << 10
"""The addresses in a larger response are looked for in a thread."""
_MOST_HELD = 16
"""How many chunks are read ahead from a client that waits for a response, to see whether it has gone."""
_LENGTH = Struct(">i")
_HEAD = 8
"""Length and correlation id."""
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


class Closed(Exception):
    """The connection of the client is closed on purpose. `last` are bytes that are sent before."""

    def __init__(self, last: bytes = b"") -> None:
        super().__init__("the connection is closed on purpose")
        self.last = last


class Steering(Protocol):
    """What somebody wants to happen to requests, and who wants to see them all."""

    @property
    def is_on(self) -> bool:
        """Whether requests have to be looked at."""

    @property
    def highest_versions(self) -> Mapping[int, int]:
        """API key → the highest version in which a client may send its requests."""

    def seen(self, info: ConnectionInfo) -> ConnectionSink:
        """Gets what a client sends and receives on a new connection."""

    def respond(self, passage: Passage, frame: bytes) -> Awaitable[bytes | None] | None:
        """None if this request is passed on. Otherwise what gives the frame of its response, or None for no response; it may raise Closed.
        """


class Unsteered:
    """Everything is passed on."""

    is_on = False

    @property
    def highest_versions(self) -> Mapping[int, int]:
        """Those in which addresses can be found."""
        return highest_versions()

    def seen(self, info: ConnectionInfo) -> ConnectionSink:
        """Nobody looks."""
        return NoSink()

    def respond(self, passage: Passage, frame: bytes) -> None:
        """It is passed on."""


class Passage(ExchangeSink):
    """A connection between a client and a broker."""

    def __init__(
        self, client: Streams, broker: Streams, rewrite: Rewrite, heard: Log, info: ConnectionInfo, steering: Steering | None = None
    ) -> None:
        self.info = info
        self._client = client
        self._broker = broker
        for _, writer in (client, broker):
            writer.transport.set_write_buffer_limits(high=2 * CHUNK)
        self._rewrite = rewrite
        self._heard = heard
        self._steering = Unsteered() if steering is None else steering
        self._seen = self._steering.seen(info)
        self._requests = Exchanges(self, public=None, request_keep=lambda head: HEAD_BYTES)
        self._has_response = False
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._forwarded: asyncio.Future[bytes] | None = None
        """Gets the next response in place of the client."""
        self._is_unread = False
        """Whether the response for it passes to the client: it is too large."""
        self._held: list[bytes] = []
        """What the client sent meanwhile."""

    async def run(self) -> str:
        """Pass bytes until the broker closes, or the client's connection is lost; returns `peer` if the client ended first, else `us`."""
        there = asyncio.ensure_future(self._pass_requests())
        back = asyncio.ensure_future(self._pass_responses())
        try:
            done, _ = await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            by = "us" if back in done else "peer"
            for each in done:
                each.result()
            if by == "peer" and not self._broker[1].is_closing():
                await self._end_requests(back)
            return by
        except Closed:
            return "us"
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            self._client[1].close()
            self._broker[1].close()
            self._seen.closed("us")

    async def _end_requests(self, back: asyncio.Future[None]) -> None:
        """Tell the broker that no more requests come, and wait for its last responses; TLS cannot say it, so wait for the open ones."""
        if self._broker[1].can_write_eof():
            with suppress(OSError):  # the broker may have gone
                self._broker[1].write_eof()
            await back
            return
        answered = asyncio.ensure_future(self._all_answered.wait())
        try:
            await asyncio.wait((answered, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()

    # --- requests

    async def _pass_requests(self) -> None:
        with suppress(OSError):
            data = await self._read()
            if (stranger := other_protocol(data)) is not None:
                where = self.info.peer, stranger, self.info.broker_id
                log.warning("%s speaks %s to broker %d: its bytes pass, but frames cannot be read", *where)
            while data:
                if self._steering.is_on:
                    await self._pass_steered(data)
                else:
                    await self._send(data)
                data = await self._read()

    async def _read(self) -> bytes:
        return self._held.pop(0) if self._held else await self._client[0].read(CHUNK)

    async def _send(self, data: bytes) -> None:
        """To the broker, and to those who look on."""
        self._seen.received(data)
        await self._pass_on(data)

    async def _pass_on(self, data: bytes) -> None:
        self._has_response = False
        self._requests.received(data)
        if self._requests.waiting:
            self._all_answered.clear()
        self._heard.received(data)
        await _write(self._broker[1], data)

    async def _pass_steered(self, data: bytes) -> None:
        """Pass these bytes request by request, until one ends where they end."""
        while data:
            begun = self._requests.requests.missing
            size = 4 + _LENGTH.unpack_from(data)[0] if len(data) >= 4 else 0
            if begun or len(data) >= 4 > size or size > LARGEST_STEERED:
                begun = begun or len(data)
                await self._send(data[:begun])
                data = data[begun:]
            elif len(data) < max(size, 4):
                more = await self._more(max(size, 4) - len(data))
                data += more
                if len(data) < max(size, 4):
                    await self._send(data)
                    return
            else:
                await self._steer(data[:size])
                data = data[size:]

    async def _more(self, size: int) -> bytes:
        """This number of bytes of the client, or what comes before its end."""
        parts = []
        while size > 0 and (data := await self._read()):
            parts.append(data[:size])
            if len(data) > size:
                self._held.insert(0, data[size:])
            size -= len(data)
        return b"".join(parts)

    async def _steer(self, frame: bytes) -> None:
        is_token = self._requests.guard.may_be_token(*_key_and_version(frame))
        work = None if is_token or len(frame) < 12 else self._steering.respond(self, frame)
        if work is None:
            await self._send(frame)
            return
        self._seen.received(frame)
        await self._all_answered.wait()
        try:
            response = await work
        except Closed as closed:
            if closed.last:
                await self._write_client(closed.last)
            raise
        if response is not None:
            await self._write_client(response)

    async def forward(self, frame: bytes) -> bytes | None:
        """Send a request to the broker. Returns the frame of its response, with the addresses of the proxy; None if it has none, or if the
        client has it already: it is too large.
        """
        self._forwarded = asyncio.get_running_loop().create_future()
        try:
            await self._pass_on(frame)
            return (await self._forwarded or None) if self._has_response else None
        finally:
            self._forwarded = None

    async def gone(self) -> None:
        """Wait until the client has closed its connection. It may send some requests meanwhile; if it sends more, this waits forever."""
        while data := await self._client[0].read(CHUNK):
            self._held.append(data)
            if len(self._held) >= _MOST_HELD:
                await asyncio.get_running_loop().create_future()

    # --- responses

    async def _pass_responses(self) -> None:
        """Pass on what the broker sends, in the pieces in which it comes."""
        rest, left = b"", 0
        with suppress(OSError, asyncio.IncompleteReadError):
            while chunk := await self._broker[0].read(CHUNK):
                rest, left = await self._pass_chunk(rest + chunk if rest else chunk, left)
                if not left:
                    self._frames_passed()
            await self._pass_back(rest)

    async def _pass_chunk(self, data: bytes, left: int) -> tuple[bytes, int]:
        """Pass on these bytes, of which the first `left` end a frame, and wait for the rest of a frame that may have to change. Returns the
        beginning of a frame whose head is not whole, and how many bytes of the last frame are still to come.
        """
        begun, at = 0, left  # all before `begun` is passed on; the next frame begins at `at`
        while (size := _size(data, at)) > 0:
            if self._requests.guard.is_on:  # who looks on learns of the login in between
                await self._pass_back(data[begun:at])
                begun = at
            kind = self._kind(data, at, size)
            if kind is None and (self._forwarded is None or size > LARGEST_STEERED):
                self._is_unread = self._forwarded is not None
                at += size
                continue
            await self._pass_back(data[begun:at])
            frame = data[at : at + size]
            await self._pass_whole(frame + await self._broker[0].readexactly(size - len(frame)), kind)
            begun = at = min(at + size, len(data))
        if size < 0:
            await self._pass_back(data[begun : at + _LENGTH.size])
            await self._pass_rest(data[at + _LENGTH.size :], size)
            return b"", 0
        await self._pass_back(data[begun:at])
        return data[at:], max(at - len(data), 0)

    def _frames_passed(self) -> None:
        """The frames that have begun are passed on to their ends."""
        if self._is_unread and self._forwarded is not None and not self._forwarded.done():
            self._forwarded.set_result(b"")
        self._is_unread = False
        if not self._requests.waiting:
            self._all_answered.set()

    async def _pass_back(self, data: bytes) -> None:
        if data:
            self._heard.passed(data)
            await self._write_client(data)

    async def _pass_whole(self, frame: bytes, kind: tuple[int, int] | None) -> None:
        self._heard.passed(frame)
        if kind is not None:
            frame = await self._with_own_addresses(frame, kind)
        if self._forwarded is not None and not self._forwarded.done():
            self._forwarded.set_result(frame)
        else:
            await self._write_client(frame)

    async def _pass_rest(self, data: bytes, length: int) -> None:
        log.warning("broker %d sent a frame with the length %d; its connection passes without being read", self.info.broker_id, length)
        while data or (data := await self._broker[0].read(CHUNK)):
            await _write(self._client[1], data)
            data = b""

    async def _write_client(self, data: bytes) -> None:
        self._seen.sent(data)
        await _write(self._client[1], data)

    def _kind(self, data: bytes, at: int, size: int) -> tuple[int, int] | None:
        """API key and version of the response of this size that begins here, if it may have to change; None for others."""
        found = self._requests.take(_LENGTH.unpack_from(data, at + _LENGTH.size)[0] if size >= _HEAD else None)
        if found is None or found[2] == TOKEN:
            return None
        key, version = found[1] >> 16, found[1] & 0xFFFF
        if self._requests.guard.is_on and key not in _BEFORE_LOGIN:
            self._requests.guard = SaslGuard(False)
            self._heard.logged_in()
            self._seen.authenticated("", "")
        if key != ApiKey.API_VERSIONS and not has_addresses(key, version):
            return None
        if key != ApiKey.API_VERSIONS and not is_known(key, version):
            log.error("a response to version %d of API %d passes with the addresses of the brokers: it is not known here", version, key)
            return None
        if size > LARGEST_ADDRESSED:
            log.error("a response of %d bytes to API %d passes with the addresses of the brokers: it is too large", size, key)
            return None
        return key, version

    async def _with_own_addresses(self, frame: bytes, kind: tuple[int, int]) -> bytes:
        try:
            if kind[0] == ApiKey.API_VERSIONS:
                return with_known_versions(frame, kind[1], self._steering.highest_versions)
            if len(frame) > LARGE:
                return await self._rewrite(await asyncio.to_thread(AddressedResponse, frame, *kind))
            return await self._rewrite(AddressedResponse(frame, *kind))
        except (RemoteProtocolError, LocalProtocolError) as error:
            log.error("a response of API %d passes as it is: %s", kind[0], error)
            return frame

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: object
    ) -> int:
        self._has_response = has_response
        return kind


def _key_and_version(frame: bytes) -> tuple[int, int]:
    """API key and version in the frame of a request, -1 for those that are not there."""
    return (-1, -1) if len(frame) < 8 else (int.from_bytes(frame[4:6], "big", signed=True), int.from_bytes(frame[6:8], "big", signed=True))


def _size(data: bytes, at: int) -> int:
    """The size of the frame that begins here, with its length; 0 if its head is not whole, and a negative length as it is."""
    have = len(data) - at
    if have < _LENGTH.size:
        return 0
    length: int = _LENGTH.unpack_from(data, at)[0]
    return length if length < 0 else 0 if length >= 4 and have < _HEAD else _LENGTH.size + length


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def pump(client: Streams, broker: Streams) -> None:
    """Pass bytes both ways that nobody can read: those of TLS. If the client ends its side, what the broker still sends passes."""

    async def way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await _write(writer, data)
            if not writer.is_closing():
                writer.write_eof()

    there, back = asyncio.ensure_future(way(client[0], broker[1])), asyncio.ensure_future(way(broker[0], client[1]))
    try:
        await back
    finally:
        there.cancel()
        back.cancel()
        client[1].close()
        broker[1].close()
