"""Requests of a broker to the controller: a kept connection, order, rediscovery, retries until the time is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.exchanges.connections import ConnectionKind, RequestId
from klamm.protocol.nouns import Endpoint
from klamm.server.net import controller_requests
from klamm.server.net.controller_requests import ControllerRequests, ControllerUnreachable
from klamm.server.net.tap import BrokerTap, Frame
from klamm.tests.harness.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker

ALLOCATE_PRODUCER_IDS = 67
NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_requests, "RETRY_S", 0.01)


@pytest.fixture
async def brokers() -> AsyncIterator[list[ScriptedBroker]]:
    """Two brokers, each of which may be the controller."""
    both = [ScriptedBroker(), ScriptedBroker()]
    for one in both:
        await one.start()
    yield both
    for one in both:
        await one.stop()


class Sender:
    """Requests to whichever broker `controller` is."""

    def __init__(self, controller: ScriptedBroker | None, timeout_s: float = 20, tap: BrokerTap | None = None) -> None:
        self.timeout_s = timeout_s
        self.controller = controller
        self.requests = ControllerRequests("3", self._find, tap)

    def _find(self) -> Endpoint | None:
        return None if self.controller is None else Endpoint("PLAINTEXT", "127.0.0.1", self.controller.port, 0)

    def send(self, broker_epoch: int = 0, retry_s: float = 20) -> asyncio.Task[Any]:
        request = messages.AllocateProducerIdsRequest(broker_id=3, broker_epoch=broker_epoch)
        return asyncio.ensure_future(self.requests.send(ALLOCATE_PRODUCER_IDS, 0, request, self.timeout_s, retry_s))


@pytest.fixture
async def sender(brokers: list[ScriptedBroker]) -> AsyncIterator[Sender]:
    one = Sender(brokers[0])
    yield one
    await one.requests.close()


async def test_connection_is_kept_for_the_next_request(brokers: list[ScriptedBroker], sender: Sender) -> None:
    for number in range(3):
        pending = sender.send(number)
        await brokers[0].received(number + 1)
        brokers[0].answer(number, producer_id_start=number)
        assert (await pending).producer_id_start == number
    assert brokers[0].connections == 1
    assert [header for _, header, _ in brokers[0].requests] == [(ALLOCATE_PRODUCER_IDS, 0, number, "3") for number in range(3)]


async def test_requests_wait_for_each_other_in_order(brokers: list[ScriptedBroker], sender: Sender) -> None:
    pending = [sender.send(number) for number in range(3)]
    for number in range(3):
        await brokers[0].received(number + 1)
        assert brokers[0].requests[number][2].broker_epoch == number
        brokers[0].answer(number, producer_id_start=number)
    assert [(await one).producer_id_start for one in pending] == [0, 1, 2]


async def test_new_controller_is_found_when_the_old_one_says_so(brokers: list[ScriptedBroker], sender: Sender) -> None:
    pending = sender.send()
    await brokers[0].received(1)
    sender.controller = brokers[1]
    brokers[0].answer(0, error_code=NOT_CONTROLLER)
    await brokers[1].received(1)
    await eventually(brokers[0].writers[0].is_closing, "the connection to the old controller is closed")
    brokers[1].answer(0, producer_id_start=7)
    assert (await pending).producer_id_start == 7


async def test_controller_that_is_not_yet_active_gets_the_request_again_on_the_same_connection(
    brokers: list[ScriptedBroker], sender: Sender
) -> None:
    pending = sender.send()
    await brokers[0].received(1)
    brokers[0].answer(0, error_code=NOT_CONTROLLER)
    await brokers[0].received(2)
    brokers[0].answer(1)
    await pending
    assert brokers[0].connections == 1


async def test_request_is_sent_again_after_a_lost_connection(brokers: list[ScriptedBroker], sender: Sender) -> None:
    pending = sender.send()
    await brokers[0].received(1)
    brokers[0].writers[0].close()
    await brokers[0].received(2)
    brokers[0].answer(1)
    await pending
    assert brokers[0].connections == 2


async def test_connection_lost_while_idle_is_opened_again_for_the_next_request(brokers: list[ScriptedBroker], sender: Sender) -> None:
    for number in range(2):
        pending = sender.send()
        await brokers[0].received(number + 1)
        brokers[0].answer(number)
        await pending
        brokers[0].writers[number].close()
        await eventually(lambda: not sender.requests._connection.is_open, "the loss is noticed")
    assert brokers[0].connections == 2


async def test_request_waits_until_a_controller_is_known(brokers: list[ScriptedBroker]) -> None:
    sender = Sender(None)
    pending = sender.send()
    await asyncio.sleep(0)
    sender.controller = brokers[0]
    await brokers[0].received(1)
    brokers[0].answer(0)
    await pending
    await sender.requests.close()


async def test_other_errors_are_the_callers_business(brokers: list[ScriptedBroker], sender: Sender) -> None:
    pending = sender.send()
    await brokers[0].received(1)
    brokers[0].answer(0, error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    assert (await pending).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert len(brokers[0].requests) == 1


@pytest.mark.parametrize("retry_s", [0, 0.05])
async def test_tries_end_with_the_time_to_retry(brokers: list[ScriptedBroker], retry_s: float) -> None:
    sender = Sender(None)
    with pytest.raises(ControllerUnreachable, match="not known"):
        await sender.send(retry_s=retry_s)
    sender.controller = brokers[0]
    await brokers[0].stop()
    with pytest.raises(ControllerUnreachable, match="Connect"):
        await sender.send(retry_s=retry_s)
    await sender.requests.close()


async def test_silent_controller_is_unreachable(brokers: list[ScriptedBroker]) -> None:
    sender = Sender(brokers[0], timeout_s=0.02)
    with pytest.raises(ControllerUnreachable, match="no response in time"):
        await sender.send(retry_s=0)
    await sender.requests.close()


async def test_late_response_of_an_earlier_try_is_not_taken_for_a_later_one(brokers: list[ScriptedBroker], sender: Sender) -> None:
    pending = sender.send()
    await brokers[0].received(1)
    brokers[0].answer(0, correlation_id=17)
    await brokers[0].received(2)
    assert brokers[0].connections == 2, "nonsense ends the connection"
    brokers[0].answer(1)
    await pending


async def test_number_of_requests_that_wait_is_limited(
    brokers: list[ScriptedBroker], sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_requests, "MAX_WAITING", 2)
    pending = [sender.send(number) for number in range(2)]
    await brokers[0].received(1)
    with pytest.raises(ControllerUnreachable, match="2 requests already wait"):
        await sender.send()
    for number in range(2):
        await brokers[0].received(number + 1)
        brokers[0].answer(number)
    await asyncio.gather(*pending)


async def test_request_nobody_waits_for_is_not_sent(brokers: list[ScriptedBroker], sender: Sender) -> None:
    first, second, third = (sender.send(number) for number in range(3))
    await brokers[0].received(1)
    second.cancel()
    await asyncio.sleep(0)
    brokers[0].answer(0)
    await brokers[0].received(2)
    assert brokers[0].requests[1][2].broker_epoch == 2
    brokers[0].answer(1)
    await asyncio.gather(first, third)


async def test_closing_ends_what_waits(brokers: list[ScriptedBroker], sender: Sender) -> None:
    pending = [sender.send() for _ in range(2)]
    await brokers[0].received(1)
    await sender.requests.close()
    for one in [*pending, sender.send()]:
        with pytest.raises(ControllerUnreachable, match="stopping"):
            await one
    await eventually(brokers[0].writers[0].is_closing, "the connection is closed")


async def test_tap_sees_requests_to_the_controller(brokers: list[ScriptedBroker]) -> None:
    frames: list[Frame] = []

    class Keep:
        def frame(self, frame: Frame) -> None:
            frames.append(frame)

    sender = Sender(brokers[0], tap=BrokerTap(Keep(), 3, lambda: 5.0))
    pending = sender.send()
    await brokers[0].received(1)
    brokers[0].answer(0)
    await pending
    await sender.requests.close()
    assert [frame.connection.kind for frame in frames] == [ConnectionKind.TO_CONTROLLER] * 2
    assert [frame.cause for frame in frames] == [None, RequestId(frames[0].connection.id, 0)]


async def test_a_fault_with_one_request_is_told_to_its_caller_alone_and_the_next_one_is_sent(
    brokers: list[ScriptedBroker], sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    def build(version: int) -> messages.AllocateProducerIdsRequest:
        return messages.AllocateProducerIdsRequest(broker_id=2**31, broker_epoch=0)  # more than an int32 holds

    row = messages.ApiVersionsResponse.ApiVersion(ALLOCATE_PRODUCER_IDS, 0, 0)
    broken = asyncio.ensure_future(sender.requests.send_negotiated(ALLOCATE_PRODUCER_IDS, 0, build, 20, 20))
    next_one = sender.send()
    await brokers[0].received(1)
    brokers[0].answer(0, api_keys=[row])
    with pytest.raises(ControllerUnreachable, match="AllocateProducerIds failed"):
        await broken
    await brokers[0].received(2)
    brokers[0].answer(1, producer_id_start=5)
    assert (await next_one).producer_id_start == 5
    assert "raised an exception; the work continues" in caplog.text
