"""The controller's channels against a scripted broker: FIFO, one in flight, sent again until answered, ended with the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.net import channels
from klamm.server.net.channels import Channels
from klamm.server.net.outgoing_connections import dial
from klamm.tests.harness.waits import eventually
from klamm.tests.server.scripted import ScriptedBroker


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
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(4), answers.append)
    await broker.received(1)
    _, header, body = broker.requests[0]
    assert header == (ApiKey.UPDATE_METADATA, 8, 0, "17")
    assert (body.controller_id, body.controller_epoch) == (17, 4)
    broker.answer(0, error_code=11)
    await eventually(lambda: answers, "the answer arrived")
    assert answers == [messages.UpdateMetadataResponse(error_code=11)]


async def test_one_request_in_flight_and_first_come_first_served(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[int] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    for epoch in range(5):
        sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(epoch), lambda response: answers.append(len(broker.requests) - 1))
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
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1), answers.append)
    sender.send(2, ApiKey.STOP_REPLICA, 4, messages.encode(messages.StopReplicaRequest(), 4))
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
        sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1))
        await asyncio.sleep(0.1)
        await broker.start()
        await broker.received(1)
        broker.answer(0)
        await eventually(lambda: "responds again" in caplog.text, "the answer is news")
    assert broker.requests[0][1].correlation_id == 0  # only what was sent has a number
    assert [r.levelname for r in caplog.records if "broker 2" in r.getMessage()] == ["WARNING", "INFO"]
    await broker.stop()


async def test_silent_broker_is_asked_again(broker: ScriptedBroker) -> None:
    sender = Channels(17, timeout_s=0.05)
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1))
    await eventually(lambda: len(broker.requests) >= 2, "it was sent again")
    assert [h.correlation_id for _, h, _ in broker.requests[:2]] == [0, 1]
    assert broker.connections >= 2
    sender.close()


@pytest.mark.parametrize("correlation_id", [-1, 7])
async def test_answer_to_something_else_counts_as_none(broker: ScriptedBroker, sender: Channels, correlation_id: int) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1), answers.append)
    await broker.received(1)
    broker.answer(0, correlation_id=correlation_id)
    await broker.received(2)
    assert answers == []
    broker.answer(1)
    await eventually(lambda: answers, "the answer arrived")


async def test_nonsense_as_an_answer_counts_as_none(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1), answers.append)
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
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1), answers.append)
    await broker.received(1)
    broker.answer(0)
    await eventually(lambda: answers, "the answer arrived")
    broker.writers[0].close()
    await asyncio.sleep(0.05)
    assert broker.connections == 1
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(2), answers.append)
    await broker.received(2)
    broker.answer(1)
    await eventually(lambda: len(answers) == 2, "the answer arrived")


async def test_connection_lost_while_idle_is_no_failure(broker: ScriptedBroker, sender: Channels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers close idle connections; what comes next must not wait for a retry."""
    monkeypatch.setattr(channels, "RETRY_S", 60)
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    for n in range(2):
        sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(n), answers.append)
        await broker.received(n + 1)
        broker.answer(n)
        await eventually(lambda count=n + 1: len(answers) == count, "the answer arrived")  # type: ignore[misc]
        broker.writers[n].close()
        await eventually(lambda: sender._channels[2]._connection is None, "the connection is gone")
    assert broker.connections == 2


async def test_failures_are_forgotten_after_an_answer(broker: ScriptedBroker, sender: Channels, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that lost one answer now and then is not one that cannot be reached."""
    monkeypatch.setattr(channels, "QUICK_TRIES", 1)
    monkeypatch.setattr(channels, "SLOW_RETRY_S", 60)
    sender.add_broker(2, "127.0.0.1", broker.port)
    for n in range(0, 4, 2):
        sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(n))
        await broker.received(n + 1)
        broker.writers[-1].close()
        await broker.received(n + 2)
        broker.answer(n + 1)


async def test_removed_broker_is_told_nothing_more(broker: ScriptedBroker, sender: Channels) -> None:
    answers: list[Any] = []
    sender.add_broker(2, "127.0.0.1", broker.port)
    for epoch in range(3):
        sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(epoch), answers.append)
    await broker.received(1)
    broker.answer(0)
    sender.remove_broker(2)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(9), answers.append)
    later = ScriptedBroker()
    await later.start()
    sender.add_broker(3, "127.0.0.1", later.port)
    sender.send(3, ApiKey.UPDATE_METADATA, 8, update_metadata(10))
    await later.received(1)
    assert len(broker.requests) == 1
    assert answers == []
    assert sender.broker_ids == frozenset({3})
    await later.stop()


async def test_broker_added_again_starts_anew(broker: ScriptedBroker, sender: Channels) -> None:
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1))
    await broker.received(1)
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(2))
    await broker.received(2)
    assert [(number, h.correlation_id, body.controller_epoch) for number, h, body in broker.requests] == [(0, 0, 1), (1, 0, 2)]
    await eventually(broker.writers[0].is_closing, "the connection of the replaced channel is closed")


async def test_fault_of_the_caller_stops_nothing(broker: ScriptedBroker, sender: Channels, caplog: pytest.LogCaptureFixture) -> None:
    def broken(response: Any) -> None:
        raise RuntimeError("cannot handle it")

    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1), broken)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(2))
    await broker.received(1)
    broker.answer(0)
    await broker.received(2)
    await eventually(lambda: "cannot handle the response of" in caplog.text, "the fault is logged")
    broker.answer(1)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(3))
    await broker.received(3)
    assert broker.connections == 1


async def test_answers_that_nobody_needs_are_told_to_nobody(broker: ScriptedBroker, sender: Channels) -> None:
    told: list[Any] = []
    looked: list[int] = []

    def is_clean(payload: bytes, offset: int) -> bool:
        looked.append(int.from_bytes(payload[:4], "big"))
        return payload[offset : offset + 2] == b"\0\0"

    sender.add_broker(2, "127.0.0.1", broker.port)
    for n in range(2):
        sender.send(2, ApiKey.UPDATE_METADATA, 5, messages.encode(messages.UpdateMetadataRequest(), 5), told.append, is_clean)
        await broker.received(n + 1)
        broker.answer(n, error_code=11 * n)
        await eventually(lambda count=n + 1: len(looked) == count, "the answer arrived")  # type: ignore[misc]
    assert told == [messages.UpdateMetadataResponse(error_code=11)]
    assert looked == [0, 1]


async def test_one_dead_broker_holds_up_no_other(broker: ScriptedBroker, sender: Channels) -> None:
    sender.add_broker(1, "127.0.0.1", 1)
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(1, ApiKey.UPDATE_METADATA, 8, update_metadata(1))
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1))
    await broker.received(1)


@pytest.mark.parametrize(("host", "port"), [("a..b", 9092), ("x" * 64, 9092), ("127.0.0.1", 70_000), ("127.0.0.1", -1)])
async def test_address_that_cannot_be_is_complained_of_and_the_channel_lives(
    sender: Channels, caplog: pytest.LogCaptureFixture, host: str, port: int
) -> None:
    sender.add_broker(2, host, port)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1))
    await eventually(lambda: f"broker 2 at {host}:{port}: cannot connect" in caplog.text, "the reason is logged")
    assert "is not a " in caplog.text


async def test_broker_that_accepts_and_closes_costs_one_line_and_is_tried_less_often(
    sender: Channels, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "RETRY_S", 0.001)
    monkeypatch.setattr(channels, "SLOW_RETRY_S", 3600.0)
    accepted = 0

    def accept_and_close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        writer.close()

    server = await asyncio.start_server(accept_and_close, "127.0.0.1", 0)
    sender.add_broker(2, "127.0.0.1", server.sockets[0].getsockname()[1])
    with caplog.at_level(logging.INFO):
        sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(1))
        await eventually(lambda: accepted > channels.QUICK_TRIES, "the quick tries are over")
        await asyncio.sleep(0.1)
    assert accepted == channels.QUICK_TRIES + 1
    (line,) = [record.getMessage() for record in caplog.records if record.name == "klamm.server.net.channels"]
    assert "connection lost" in line
    sender.close()
    assert "19 more lines like this were suppressed" in caplog.text  # the first failure is not worth a line
    server.close()


async def test_a_fault_while_connecting_is_followed_by_another_attempt(
    broker: ScriptedBroker, sender: Channels, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [RuntimeError("a fault")]

    async def fail_once(*arguments: Any) -> Any:
        if faults:
            raise faults.pop()
        return await dial(*arguments)

    monkeypatch.setattr(channels, "dial", fail_once)
    sender.add_broker(2, "127.0.0.1", broker.port)
    sender.send(2, ApiKey.UPDATE_METADATA, 8, update_metadata(4))
    await broker.received(1)
    assert "unexpected exception while connecting to broker 2" in caplog.text
