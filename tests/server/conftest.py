"""Fixtures of the server tests: they run on uvloop, as brokers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop

from klamm.server.listeners.connection_limits import ConnectionLimits
from klamm.server.listeners.listener import Listener
from klamm.server.requests.dispatch import Handler
from klamm.tests.server import wire

Serve = Callable[..., Awaitable[Listener]]
Connect = Callable[..., Awaitable[wire.Peer]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`await serve({key: Handler}, limits, **options)`: a listener that is closed at the end."""
    listeners: list[Listener] = []

    async def start(handlers: dict[int, Handler] | None = None, limits: ConnectionLimits | None = None, **options: int) -> Listener:
        listener = await wire.listen(wire.make_dispatcher(wire.HANDLERS | (handlers or {})), limits, **options)
        listeners.append(listener)
        return listener

    yield start
    for listener in listeners:
        await listener.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`await connect(port)`: a connection that is closed at the end."""
    peers: list[wire.Peer] = []

    async def dial(port: int) -> wire.Peer:
        peer = await wire.Peer.connect(port)
        peers.append(peer)
        return peer

    yield dial
    for peer in peers:
        peer.close()
