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
