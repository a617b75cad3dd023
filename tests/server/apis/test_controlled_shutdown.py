"""Controlled shutdown of a broker, against a scripted controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache
from klamm.configs.broker_config import BrokerConfig
from klamm.protocol import messages
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.lifecycle import controlled_shutdown
from klamm.server.lifecycle.controlled_shutdown import request_controlled_shutdown
from klamm.server.net.controller_requests import ControllerRequests
from klamm.tests.broker import update_metadata
from klamm.tests.broker.update_metadata import update
from klamm.tests.server.scripted import ScriptedBroker

REMAINING = [messages.ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=0)]


@pytest.fixture
async def controller() -> AsyncIterator[ScriptedBroker]:
    one = ScriptedBroker()
    await one.start()
    yield one
    await one.stop()


class Session:
    """ZooKeeper's children of /brokers/ids."""

    def __init__(self, *ids: str) -> None:
        self.ids = list(ids)

    async def children(self, path: str) -> list[str]:
        assert path == "/brokers/ids"
        return self.ids


class Stopping:
    """Broker 2, which knows broker 1 on `port` as the controller (no controller: None)."""

    def __init__(self, port: int | None, registered: tuple[str, ...] = ("1", "2"), **properties: object) -> None:
        settings = {"broker.id": "2", "zookeeper.connect": "none:1", "controlled.shutdown.retry.backoff.ms": "10"}
        settings |= {"request.timeout.ms": "300"} | {name.replace("_", "."): str(value) for name, value in properties.items()}
        self.config = BrokerConfig(settings)
        self.session = Session(*registered)
        metadata = MetadataCache(2)
        if port is not None:
            metadata.update(update(brokers=[update_metadata.broker(1, host="127.0.0.1", port=port)]))
        self.requests = ControllerRequests("2", lambda: metadata.controller_endpoint("PLAINTEXT"))

    async def shut_down(self, patient: bool) -> bool:
        try:
            return await request_controlled_shutdown(BrokerIdentity(2, "c", 77), self.config, self.requests, self.session, patient)
        finally:
            await self.requests.close()


@pytest.mark.parametrize(("step", "version"), [("3.9", 3), ("2.4-IV1", 3), ("2.4-IV0", 2), ("2.2-IV0", 2), ("2.1", 1)])
async def test_request_is_the_one_of_the_inter_broker_protocol(controller: ScriptedBroker, step: str, version: int) -> None:
    asking = asyncio.ensure_future(Stopping(controller.port, inter_broker_protocol_version=step).shut_down(patient=True))
    await controller.received(1)
    _, header, request = controller.requests[0]
    assert header == (7, version, 0, "2")
    assert (request.broker_id, request.broker_epoch) == (2, 77 if version >= 2 else -1)
    controller.answer(0)
    assert await asking


@pytest.mark.parametrize("answer", [{"remaining_partitions": REMAINING}, {"error_code": 11}])
async def test_patient_broker_asks_again(controller: ScriptedBroker, answer: dict[str, Any]) -> None:
    asking = asyncio.ensure_future(Stopping(controller.port).shut_down(patient=True))
    for attempt in range(2):
        await controller.received(attempt + 1)
        controller.answer(attempt, **answer)
    await controller.received(3)
    controller.answer(2)
    assert await asking


async def test_patient_broker_gives_up_after_its_attempts(controller: ScriptedBroker) -> None:
    asking = asyncio.ensure_future(Stopping(controller.port, controlled_shutdown_max_retries=2).shut_down(patient=True))
    for attempt in range(2):
        await controller.received(attempt + 1)
        controller.answer(attempt, remaining_partitions=REMAINING)
    assert not await asking
    assert len(controller.requests) == 2


async def test_silent_controller_is_asked_again(controller: ScriptedBroker) -> None:
    one = Stopping(controller.port, request_timeout_ms=20, controlled_shutdown_max_retries=2)
    assert not await one.shut_down(patient=True)
    assert len(controller.requests) == 2


async def test_impatient_broker_does_not_wait_for_what_did_not_move(controller: ScriptedBroker) -> None:
    asking = asyncio.ensure_future(Stopping(controller.port).shut_down(patient=False))
    await controller.received(1)
    controller.answer(0, remaining_partitions=REMAINING)
    assert not await asking
    assert len(controller.requests) == 1


async def test_impatient_broker_asks_again_after_an_error(controller: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlled_shutdown, "IMPATIENT_BACKOFF_S", 0.001)
    asking = asyncio.ensure_future(Stopping(controller.port).shut_down(patient=False))
    await controller.received(1)
    controller.answer(0, error_code=11)
    await controller.received(2)
    controller.answer(1)
    assert await asking


async def test_last_broker_does_not_try_again(controller: ScriptedBroker) -> None:
    asking = asyncio.ensure_future(Stopping(controller.port, registered=("2",)).shut_down(patient=False))
    await controller.received(1)
    controller.answer(0, error_code=11)
    assert not await asking
    assert len(controller.requests) == 1


@pytest.mark.parametrize("patient", [True, False])
async def test_unknown_controller(patient: bool) -> None:
    assert not await Stopping(None).shut_down(patient)


async def test_attempts_share_one_connection(controller: ScriptedBroker) -> None:
    stopping = asyncio.ensure_future(Stopping(controller.port).shut_down(patient=True))
    for attempt in range(2):
        await controller.received(attempt + 1)
        controller.answer(attempt, error_code=11)
    await controller.received(3)
    controller.answer(2)
    assert await stopping
    assert controller.connections == 1
    assert [header.correlation_id for _, header, _ in controller.requests] == [0, 1, 2]


async def test_dead_controller() -> None:
    assert not await Stopping(1).shut_down(patient=True)
