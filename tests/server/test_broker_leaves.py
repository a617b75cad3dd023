"""A broker that asks to leave, against a scripted controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.configs.broker_config import BrokerConfig
from klamm.protocol import messages
from klamm.server import controlled_shutdown as leaving
from klamm.server.controlled_shutdown import leave
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


def broker(port: int, registered: tuple[str, ...] = ("1", "2"), **properties: object) -> Any:
    """Broker 2, which knows broker 1 on `port` as the controller."""
    settings = {"broker.id": "2", "zookeeper.connect": "none:1", "controlled.shutdown.retry.backoff.ms": "10", "request.timeout.ms": "300"}
    settings.update({name.replace("_", "."): str(value) for name, value in properties.items()})
    endpoint = SimpleNamespace(host="127.0.0.1", port=port)
    controller = SimpleNamespace(id=1, endpoints={"PLAINTEXT": endpoint})
    return SimpleNamespace(
        id=2,
        broker_epoch=77,
        config=BrokerConfig(settings),
        inter_broker_listener="PLAINTEXT",
        metadata=SimpleNamespace(controller_id=1, brokers={1: controller}),
        zk=Session(*registered),
    )


@pytest.mark.parametrize(("step", "version"), [("3.9", 3), ("2.4-IV1", 3), ("2.4-IV0", 2), ("2.2-IV0", 2), ("2.1", 1)])
async def test_request_is_the_one_of_the_inter_broker_protocol(controller: ScriptedBroker, step: str, version: int) -> None:
    asking = asyncio.ensure_future(leave(broker(controller.port, inter_broker_protocol_version=step), patient=True))
    await controller.received(1)
    _, header, request = controller.requests[0]
    assert header == (7, version, 0, "2")
    assert (request.broker_id, request.broker_epoch) == (2, 77 if version >= 2 else -1)
    controller.answer(0)
    assert await asking


@pytest.mark.parametrize("answer", [{"remaining_partitions": REMAINING}, {"error_code": 11}])
async def test_patient_broker_asks_again(controller: ScriptedBroker, answer: dict[str, Any]) -> None:
    asking = asyncio.ensure_future(leave(broker(controller.port), patient=True))
    for attempt in range(2):
        await controller.received(attempt + 1)
        controller.answer(attempt, **answer)
    await controller.received(3)
    controller.answer(2)
    assert await asking


async def test_patient_broker_gives_up_after_its_attempts(controller: ScriptedBroker) -> None:
    asking = asyncio.ensure_future(leave(broker(controller.port, controlled_shutdown_max_retries=2), patient=True))
    for attempt in range(2):
        await controller.received(attempt + 1)
        controller.answer(attempt, remaining_partitions=REMAINING)
    assert not await asking
    assert len(controller.requests) == 2


async def test_silent_controller_is_asked_again(controller: ScriptedBroker) -> None:
    one = broker(controller.port, request_timeout_ms=20, controlled_shutdown_max_retries=2)
    assert not await leave(one, patient=True)
    assert len(controller.requests) == 2


async def test_impatient_broker_does_not_wait_for_what_did_not_move(controller: ScriptedBroker) -> None:
    asking = asyncio.ensure_future(leave(broker(controller.port), patient=False))
    await controller.received(1)
    controller.answer(0, remaining_partitions=REMAINING)
    assert not await asking
    assert len(controller.requests) == 1


async def test_impatient_broker_asks_again_after_an_error(controller: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "IMPATIENT_BACKOFF_S", 0.001)
    asking = asyncio.ensure_future(leave(broker(controller.port), patient=False))
    await controller.received(1)
    controller.answer(0, error_code=11)
    await controller.received(2)
    controller.answer(1)
    assert await asking


async def test_last_broker_does_not_try_again(controller: ScriptedBroker) -> None:
    asking = asyncio.ensure_future(leave(broker(controller.port, registered=("2",)), patient=False))
    await controller.received(1)
    controller.answer(0, error_code=11)
    assert not await asking
    assert len(controller.requests) == 1


@pytest.mark.parametrize("patient", [True, False])
async def test_unknown_controller(patient: bool) -> None:
    one = broker(1)
    one.metadata.controller_id = None
    assert not await leave(one, patient)


async def test_dead_controller() -> None:
    assert not await leave(broker(1), patient=True)
