"""What the wire tests share: a listener with handlers of the test's own, and raw frames to and from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.apis import api_versions
from klamm.server.apis.handlers import offered
from klamm.server.ground.features import Features
from klamm.server.listeners.connection_limits import ConnectionLimits
from klamm.server.listeners.listener import Listener, bind
from klamm.server.requests.dispatch import Dispatcher, Handler
from klamm.tests.services import make_services


def empty_metadata(ctx: Any, request: Any) -> Any:
    return messages.MetadataResponse()


HANDLERS: dict[int, Handler] = {
    ApiKey.METADATA: Handler(empty_metadata),
    ApiKey.API_VERSIONS: Handler(api_versions.handle, cached=True, unsupported_version=api_versions.UNSUPPORTED_BODY),
}


def make_dispatcher(handlers: Mapping[int, Handler]) -> Dispatcher:
    services = make_services(offers=offered(handlers))
    services.features.current = Features(epoch=0)
    return Dispatcher(services, handlers)


async def listen(dispatcher: Dispatcher, limits: ConnectionLimits | None = None, **options: Any) -> Listener:
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, limits or ConnectionLimits(), **options)
    await listener.serve()
    return listener


def request(api_key: int, version: int, correlation_id: int, message: Any, client_id: str = "test") -> bytes:
    return messages.encode_request(api_key, version, correlation_id, client_id, messages.encode(message, version))


class Peer:
    """The test's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes | None:
        """The next frame without its length; None when the broker closed the connection. The limit only ends a test that has failed."""
        try:
            async with asyncio.timeout(20):
                length = int.from_bytes(await self.reader.readexactly(4), "big")
                return await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return None

    async def correlation_ids(self, count: int) -> list[int]:
        return [int.from_bytes((await self.answer() or b"")[:4], "big") for _ in range(count)]

    def close(self) -> None:
        self.writer.close()
