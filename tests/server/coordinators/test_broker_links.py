"""Requests of coordinators to other brokers: one in flight on a connection, which is closed after a failure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import Endpoint
from klamm.server.coordinators.broker_links import BrokerLinks
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.harness.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker

TIMEOUT_S = 30


@pytest.fixture
async def other() -> AsyncIterator[ScriptedBroker]:
    other = ScriptedBroker()
    await other.start()
    yield other
    await other.stop()


async def test_a_response_after_the_time_out_is_not_that_of_the_next_request(other: ScriptedBroker) -> None:
    clock = DrivenClock()
    links = BrokerLinks("test", lambda _: Endpoint("PLAINTEXT", "127.0.0.1", other.port, 0), TIMEOUT_S, None, clock)

    def ask() -> asyncio.Task[Any]:
        request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        return asyncio.create_task(links.send(2, ApiKey.HEARTBEAT, 3, request))

    late = ask()
    await other.received(1)
    await clock.advance(TIMEOUT_S, lambda: asyncio.sleep(0))
    await eventually(late.done, "the request timed out")
    assert late.result() is None
    for number in (1, 2):  # also those that come later
        asked = ask()
        await other.received(number + 1)
        if number == 1:
            with contextlib.suppress(RuntimeError):  # the connection is closed
                other.answer(0, 16)
        other.answer(number, 20 + number)
        response = await asked
        assert response is not None and response.error_code == 20 + number
    assert [number for number, _, _ in other.requests] == [0, 1, 1]
    links.close()


async def test_a_broker_that_is_not_known_is_not_asked() -> None:
    links = BrokerLinks("test", lambda _: None, TIMEOUT_S, None, DrivenClock())
    request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert not links.knows(2)
    assert await links.send(2, ApiKey.HEARTBEAT, 3, request) is None


PENDING = messages.EndPendingTransactionsRequest(1, "t", 0, 3, [])


async def test_those_that_wait_behind_a_request_without_a_response_in_time_fail_with_it(other: ScriptedBroker) -> None:
    clock = DrivenClock()
    links = BrokerLinks("test", lambda _: Endpoint("PLAINTEXT", "127.0.0.1", other.port, 0), TIMEOUT_S, None, clock)
    request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    asked = [asyncio.create_task(links.send(2, ApiKey.HEARTBEAT, 3, request)) for _ in range(3)]
    await other.received(1)
    await clock.advance(TIMEOUT_S, lambda: asyncio.sleep(0))
    await eventually(lambda: all(each.done() for each in asked), "all requests ended")
    assert ([each.result() for each in asked], len(other.requests)) == ([None] * 3, 1)
    links.close()


async def test_the_response_to_a_request_that_was_cancelled_is_not_that_of_the_next_one(other: ScriptedBroker) -> None:
    links = BrokerLinks("test", lambda _: Endpoint("PLAINTEXT", "127.0.0.1", other.port, 0), TIMEOUT_S, None, DrivenClock())
    request = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    first = asyncio.create_task(links.send(2, ApiKey.HEARTBEAT, 3, request))
    await other.received(1)
    second = asyncio.create_task(links.send(2, ApiKey.HEARTBEAT, 3, request))
    first.cancel()
    await other.received(2)
    with contextlib.suppress(RuntimeError):  # the connection is closed
        other.answer(0, 16)
    other.answer(1, 17)
    response = await second
    assert response is not None and response.error_code == 17
    links.close()


@pytest.mark.parametrize("is_klamm", [True, False])
async def test_an_api_of_klamm_is_asked_only_of_brokers_that_list_it(other: ScriptedBroker, is_klamm: bool) -> None:
    links = BrokerLinks("test", lambda _: Endpoint("PLAINTEXT", "127.0.0.1", other.port, 0), TIMEOUT_S, None, DrivenClock())
    asked = asyncio.create_task(links.send(2, ApiKey.END_PENDING_TRANSACTIONS, 0, PENDING))
    await other.received(1)
    assert other.requests[0][1].api_key == ApiKey.API_VERSIONS
    other.list_apis(0, ApiKey.END_TXN, *((ApiKey.END_PENDING_TRANSACTIONS,) if is_klamm else ()))
    if is_klamm:
        await other.received(2)
        other.respond(1, messages.EndPendingTransactionsResponse(0, [4], []))
    response = await asked
    assert (None if response is None else list(response.coordinated_partitions)) == ([4] if is_klamm else None)
    again = asyncio.create_task(links.send(2, ApiKey.END_PENDING_TRANSACTIONS, 0, PENDING))
    if is_klamm:
        await other.received(3)
        other.respond(2, messages.EndPendingTransactionsResponse(0, [4], []))
    await again
    assert [header.api_key for _, header, _ in other.requests[1:]] == [ApiKey.END_PENDING_TRANSACTIONS] * (2 * is_klamm)
    links.close()
