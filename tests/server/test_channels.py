"""The controller's channels against a scripted broker: FIFO, one in flight, sent again until answered, ended with the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.server import channels
from klamm.server.channels import Channels
from klamm.tests.cluster.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker

STOP_REPLICA, UPDATE_METADATA = 5, 6


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    one = ScriptedBroker()
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def sender() -> AsyncIterator[Channels]:
    one = Channels(17)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "RETRY_S", 0.01)


def update_metadata(epoch: int) -> bytes:
    return messages.encode(messages.UpdateMetadataRequest(controller_id=17, controller_epoch=epoch), 8)


async def test_requests_look_as_a_controllers(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(4), answers.append)
    await broker.received(1)
    _, header, body = broker.requests[0]
    assert header == (UPDATE_METADATA, 8, 0, "17")
    assert (body.controller_id, body.controller_epoch) == (17, 4)
    broker.answer(0, error_code=11)
    await eventually(lambda: answers, "the answer arrived")
    assert answers == [messages.UpdateMetadataResponse(error_code=11)]


async def test_one_request_in_flight_and_first_come_first_served(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[int] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    for epoch in range(5):
        sender.send(2, UPDATE_METADATA, 8, update_metadata(epoch), lambda response: answers.append(len(broker.requests) - 1))
    for n in range(5):
        await broker.received(n + 1)
        broker.answer(n)
    await eventually(lambda: len(answers) == 5, "all answers arrived")
    assert answers == [0, 1, 2, 3, 4]
    assert [header.correlation_id for _, header, _ in broker.requests] == [0, 1, 2, 3, 4]
    assert [body.controller_epoch for _, _, body in broker.requests] == [0, 1, 2, 3, 4]
    assert broker.connections == 1


async def test_lost_answer_sends_the_request_again(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(1), answers.append)
    sender.send(2, STOP_REPLICA, 4, messages.encode(messages.StopReplicaRequest(), 4))
    await broker.received(1)
    broker.writers[0].close()
    await broker.received(2)
    assert [(number, h.api_key, h.correlation_id) for number, h, _ in broker.requests] == [(0, 6, 0), (1, 6, 1)]
    broker.answer(1)
    await broker.received(3)
    assert (broker.requests[2][1].api_key, broker.requests[2][1].correlation_id) == (5, 2)
    assert len(answers) == 1


async def test_broker_that_is_not_there_yet_is_tried_until_it_is(sender: Channels, caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedBroker()
    await broker.start()
    await broker.stop()
    sender.add_broker(2, "127.0.0.1", broker.port)
    with caplog.at_level(logging.INFO):
        sender.send(2, UPDATE_METADATA, 8, update_metadata(1))
        await asyncio.sleep(0.1)
        await broker.start()
        await broker.received(1)
    assert broker.requests[0][1].correlation_id == 0  # only what was sent has a number
    assert [r.levelname for r in caplog.records if "broker 2" in r.getMessage()] == ["WARNING", "INFO"]
    await broker.stop()


async def test_silent_broker_is_asked_again(broker: ScriptedBroker) -> None:
    sender = Channels(17, timeout_s=0.05)
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(1))
    await eventually(lambda: len(broker.requests) >= 2, "it was sent again")
    assert [h.correlation_id for _, h, _ in broker.requests[:2]] == [0, 1]
    assert broker.connections >= 2
    sender.close()


@pytest.mark.parametrize("correlation_id", [-1, 7])
async def test_answer_to_something_else_counts_as_none(broker: ScriptedBroker, sender: Channels, correlation_id: int) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(1), answers.append)
    await broker.received(1)
    broker.answer(0, correlation_id=correlation_id)
    await broker.received(2)
    assert answers == []
    broker.answer(1)
    await eventually(lambda: answers, "the answer arrived")


async def test_nonsense_as_an_answer_counts_as_none(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(1), answers.append)
    await broker.received(1)
    broker.writers[0].write(b"\x00\x00\x00\x05\x00\x00\x00\x00\x00")
    await broker.received(2)
    broker.writers[1].write(b"\xff\xff\xff\xff")
    await broker.received(3)
    broker.answer(2)
    await eventually(lambda: answers, "the answer arrived")


async def test_connection_lost_while_idle_is_opened_again_when_needed(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(1), answers.append)
    await broker.received(1)
    broker.answer(0)
    await eventually(lambda: answers, "the answer arrived")
    broker.writers[0].close()
    await asyncio.sleep(0.05)
    assert broker.connections == 1
    sender.send(2, UPDATE_METADATA, 8, update_metadata(2), answers.append)
    await broker.received(2)
    broker.answer(1)
    await eventually(lambda: len(answers) == 2, "the answer arrived")


async def test_removed_broker_is_told_nothing_more(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    for epoch in range(3):
        sender.send(2, UPDATE_METADATA, 8, update_metadata(epoch), answers.append)
    await broker.received(1)
    broker.answer(0)
    sender.remove_broker(2)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(9), answers.append)
    await asyncio.sleep(0.1)
    assert len(broker.requests) == 1
    assert answers == []
    assert sender.broker_ids == frozenset()


async def test_broker_added_again_starts_anew(broker: ScriptedBroker, sender: Channels) -> None:
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(1))
    await broker.received(1)
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(2))
    await broker.received(2)
    assert [(number, h.correlation_id, body.controller_epoch) for number, h, body in broker.requests] == [(0, 0, 1), (1, 0, 2)]


async def test_fault_of_the_caller_stops_nothing(broker: ScriptedBroker, sender: Channels, caplog: pytest.LogCaptureFixture) -> None:
    def broken(response: Any) -> None:
        raise RuntimeError("cannot handle it")

    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(1), broken)
    sender.send(2, UPDATE_METADATA, 8, update_metadata(2))
    await broker.received(1)
    broker.answer(0)
    await broker.received(2)
    await eventually(lambda: "cannot handle it" in caplog.text, "the fault is logged")


async def test_one_dead_broker_holds_up_no_other(broker: ScriptedBroker, sender: Channels) -> None:
    sender.add_broker(1, "127.0.0.1", 1)
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(1, UPDATE_METADATA, 8, update_metadata(1))
    sender.send(2, UPDATE_METADATA, 8, update_metadata(1))
    await broker.received(1)
