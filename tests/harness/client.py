"""A Kafka client of one connection that says what it is told to: any request, any version, raw frames too."""

from __future__ import annotations

import asyncio
import itertools
import struct
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.decoded import decoded

KEYS = {api.name: key for key, api in messages.APIS.items()}


class ConnectionClosed(Exception):
    """The broker hung up."""


class Client:
    """One connection; requests of several tasks are answered in order."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()
        self._correlation = itertools.count(1)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port, limit=1 << 26)
        return self._streams

    async def frame(self, payload: bytes) -> bytes:
        """Send a payload (its length is put before it) and return the payload of the answer."""
        reader, writer = await self._connected()
        writer.write(struct.pack(">i", len(payload)) + payload)
        try:
            await writer.drain()
            return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
        except (asyncio.IncompleteReadError, ConnectionError) as gone:
            await self.close()
            raise ConnectionClosed(f"{self.host}:{self.port} hung up") from gone

    async def ask(self, message: Any, version: int, timeout_s: float = 60) -> Any:
        """Send a request message and return the answer, decoded."""
        name = type(message).__name__.removesuffix("Request")
        key = KEYS[name]
        frame = messages.encode_request(key, version, next(self._correlation), "test", messages.encode(message, version))
        async with self._lock, asyncio.timeout(timeout_s):
            payload = await self.frame(bytes(frame[4:]))
        _, offset = messages.decode_response_header(key, version, payload)
        return decoded(f"{name}Response", version, payload, offset)[0]

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
