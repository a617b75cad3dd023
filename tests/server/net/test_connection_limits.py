"""Limits of connections that take their time or several listeners; the rest is told by stories/both/connections.txt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.server.listeners.connection_limits import UNLIMITED, ConnectionLimits, ConnectionRate
from klamm.tests.harness.waits import eventually
from klamm.tests.server.conftest import Connect, Serve
from klamm.tests.server.net.fake_transport import ask_versions


def waits(rate: ConnectionRate, *moments: float) -> list[float]:
    return [round(rate.count(moment), 3) for moment in moments]


def test_a_burst_of_what_all_windows_but_one_may_hold_need_not_wait() -> None:
    """At most 20 in a burst at 2 a second, as a Kafka 3.9.1 was seen to let in; then half a second each, and never more than a window."""
    assert waits(ConnectionRate(2), *[100.0] * 24) == [0] * 20 + [0.5, 1.0, 1.0, 1.0]


def test_a_steady_rate_below_the_limit_never_waits() -> None:
    assert set(waits(ConnectionRate(4), *(100 + n * 0.28 for n in range(400)))) == {0}


def test_a_burst_is_forgotten_after_all_windows() -> None:
    rate = ConnectionRate(1)
    assert waits(rate, *[100.0] * 12)[-1] == 1
    assert waits(rate, 110.9, 111.0) == [1, 0]


def test_windows_are_counted_and_measured_as_configured() -> None:
    assert waits(ConnectionRate(1, windows=3, window_s=2.0), *[5.0] * 7) == [0, 0, 0, 0, 1, 2, 2]
    assert waits(ConnectionRate(1, windows=1), 5.0, 5.0) == [0, 0]
    assert waits(ConnectionRate(0, window_s=2.0), 5.0, 5.0, 6.0) == [2, 2, 2]


def test_without_a_limit_nothing_is_counted() -> None:
    rate = ConnectionRate()
    assert waits(rate, *[5.0] * 100) == [0] * 100
    assert rate.limit == UNLIMITED and not rate._counted


async def answered(peer: Any, number: int) -> bool:
    peer.send(ask_versions(number))
    return bool(await peer.correlation_ids(1) == [number])


async def test_connections_that_come_too_fast_are_served_in_their_order(serve: Serve, connect: Connect) -> None:
    limits = ConnectionLimits()
    limits.rate.limit, limits.rate.windows, limits.rate.window_s = 10, 2, 0.1  # one is free, the others a tenth of a second each
    listener = await serve(limits=limits)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    peers = [await connect(listener.port) for _ in range(4)]
    order: list[int] = []

    async def ask(number: int) -> None:
        assert await answered(peers[number], number)
        order.append(number)

    await asyncio.gather(*(ask(number) for number in (3, 1, 2, 0)))
    assert order == [0, 1, 2, 3]
    assert loop.time() - begin > 0.15


async def test_the_rate_of_all_does_not_hold_for_the_listener_of_brokers(serve: Serve, connect: Connect) -> None:
    limits = ConnectionLimits()
    limits.rate.limit, limits.rate.windows = 1, 2
    limits.inter_broker_listener = "PLAINTEXT"
    listener = await serve(limits=limits)
    limits.gate("OTHER", lambda connection: None)
    for number in range(5):
        assert await answered(await connect(listener.port), number)
    assert not limits.rate._counted


async def test_one_that_waits_in_line_and_leaves_is_forgotten(serve: Serve, connect: Connect) -> None:
    listener = await serve(limits=ConnectionLimits(max_connections=1))
    first, second = await connect(listener.port), await connect(listener.port)
    assert await answered(first, 1)
    await eventually(lambda: len(listener.gate.line) == 1, "the second waits")
    first.close()
    assert await answered(second, 2)
    second.close()
    await eventually(lambda: not listener.connections, "both are gone")
    assert not listener.gate.line and not listener.gate.served


async def test_one_that_is_closed_while_it_waits_in_line_is_never_let_in(serve: Serve, connect: Connect) -> None:
    listener = await serve(limits=ConnectionLimits(max_connections=1))
    first, second, third = [await connect(listener.port) for _ in range(3)]
    assert await answered(first, 1)
    await eventually(lambda: len(listener.gate.line) == 2, "two wait")
    next(iter(listener.gate.line)).abort()  # as when it was idle for too long
    assert await second.answer() is None
    first.close()
    assert await answered(third, 2)


async def test_the_listener_of_brokers_is_exempt_as_soon_as_there_is_another(serve: Serve, connect: Connect) -> None:
    limits = ConnectionLimits(max_connections=1)
    limits.inter_broker_listener = "PLAINTEXT"
    listener = await serve(limits=limits)
    first, second = await connect(listener.port), await connect(listener.port)
    assert await answered(first, 1)
    await eventually(lambda: len(listener.gate.line) == 1, "the second waits")
    limits.gate("OTHER", lambda connection: None)
    assert await answered(second, 2)
    assert await answered(first, 3)


async def test_an_address_has_too_many_only_when_the_turn_of_its_connection_has_come(serve: Serve, connect: Connect) -> None:
    limits = ConnectionLimits(max_connections=1, max_per_ip=1)
    listener = await serve(limits=limits)
    first, second = await connect(listener.port), await connect(listener.port)
    assert await answered(first, 1)
    await eventually(lambda: len(listener.gate.line) == 1, "the second waits")
    limits.max_connections = 2
    limits.changed()
    assert await second.answer() is None
    assert await answered(first, 2)


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_closed_listener_leaves_no_connection_counted(serve: Serve, connect: Connect, limit: int) -> None:
    limits = ConnectionLimits(max_connections=limit)
    listener = await serve(limits=limits)
    first, _ = await connect(listener.port), await connect(listener.port)
    assert await answered(first, 1)
    await listener.close()
    await eventually(lambda: not listener.connections, "connections are gone")
    assert not list(limits) and not limits._served and not limits._by_host
