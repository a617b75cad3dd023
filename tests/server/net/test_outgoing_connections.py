"""Connections this broker opens: told once when they are gone, and requests that have a connection of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.server.net.outgoing_connections import OutgoingConnection, dial, request_once
from klamm.tests.harness.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker

REQUEST = messages.ControlledShutdownRequest(broker_id=1, broker_epoch=5)


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    one = ScriptedBroker()
    await one.start()
    yield one
    await one.stop()


class Owner:
    """Who opened a connection, and what it was told."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.lost: list[Exception | None] = []

    async def dial(self, port: int) -> OutgoingConnection:
        return await dial("127.0.0.1", port, self.payloads.append, self.lost.append, 10)


async def test_a_lost_connection_is_told_once(broker: ScriptedBroker) -> None:
    owner = Owner()
    await owner.dial(broker.port)
    await eventually(lambda: broker.writers, "the connection is there")
    broker.writers[0].write(b"\xff\xff\xff\xff")
    await eventually(lambda: owner.lost, "nonsense ends it")
    await eventually(broker.writers[0].is_closing, "it is closed")
    await asyncio.sleep(0)
    assert len(owner.lost) == 1
    assert isinstance(owner.lost[0], RemoteProtocolError)


async def test_who_closes_is_told_nothing(broker: ScriptedBroker) -> None:
    owner = Owner()
    connection = await owner.dial(broker.port)
    await eventually(lambda: broker.writers, "the connection is there")
    connection.close()
    await eventually(broker.writers[0].is_closing, "it is closed")
    assert owner.lost == []
    connection.send(b"to nobody")


async def test_a_request_has_a_connection_of_its_own(broker: ScriptedBroker) -> None:
    asking = asyncio.ensure_future(request_once("127.0.0.1", broker.port, ApiKey.CONTROLLED_SHUTDOWN, 3, "me", REQUEST, 10))
    await broker.received(1)
    assert broker.requests[0][1] == (ApiKey.CONTROLLED_SHUTDOWN, 3, 0, "me")
    broker.answer(0, error_code=11)
    assert (await asking).error_code == 11
    await eventually(broker.writers[0].is_closing, "it is closed")


async def test_an_answer_to_something_else_is_an_error(broker: ScriptedBroker) -> None:
    asking = asyncio.ensure_future(request_once("127.0.0.1", broker.port, ApiKey.CONTROLLED_SHUTDOWN, 3, "me", REQUEST, 10))
    await broker.received(1)
    broker.answer(0, correlation_id=5)
    with pytest.raises(RemoteProtocolError, match="request 5"):
        await asking


async def test_silence_ends_with_the_time_and_a_hang_up_at_once(broker: ScriptedBroker) -> None:
    with pytest.raises(TimeoutError):
        await request_once("127.0.0.1", broker.port, ApiKey.CONTROLLED_SHUTDOWN, 3, "me", REQUEST, 0.05)
    asking = asyncio.ensure_future(request_once("127.0.0.1", broker.port, ApiKey.CONTROLLED_SHUTDOWN, 3, "me", REQUEST, 10))
    await broker.received(2)
    broker.writers[1].close()
    with pytest.raises(ConnectionResetError):
        await asking


class Security:
    """Authenticates by one request, and goes on when the broker has hung up."""

    context = None
    has_sasl = True

    def __init__(self, hang_up: Callable[[], Awaitable[object]]) -> None:
        self._hang_up = hang_up

    async def authenticate(self, ask: Callable[[bytes], Awaitable[bytes]], client_id: str) -> None:
        assert await ask(b"\0\0\0\1?") == b"!"
        await self._hang_up()


class Sink:
    """The tap of one connection; it knows when the connection has ended."""

    def __init__(self) -> None:
        self.has_ended = False

    def sent(self, frame: bytes, cause: object) -> None:
        pass

    def received(self, data: bytes) -> None:
        pass

    def closed(self, by: str, reason: str | None) -> None:
        self.has_ended = True


async def test_a_connection_that_is_lost_behind_the_last_answer_of_the_authentication_is_not_handed_out() -> None:
    sink: Any = Sink()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readexactly(5)
        writer.write(b"\0\0\0\1!")

    async def hang_up() -> None:
        writers[0].close()
        await eventually(lambda: sink.has_ended, "the connection has ended")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    security: Any = Security(hang_up)
    owner = Owner()
    async with server:
        with pytest.raises(ConnectionResetError):
            await dial(
                "127.0.0.1", server.sockets[0].getsockname()[1], owner.payloads.append, owner.lost.append, 10, lambda: sink,
                security=security,
            )
