"""InitProducerId and the blocks of ids behind it: every id is given out once, in each inter-broker protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Endpoint
from klamm.server.ground.background import BackgroundTasks
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.net.controller_requests import ControllerRequests
from klamm.server.requests.services import Services
from klamm.server.security.authorizer import Operation
from klamm.server.transactions.producer_ids import RETRY_MS, ControllerProducerIds
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import knows, node, request
from klamm.tests.server.scripted import ScriptedBroker
from klamm.tests.services import Denying, make_services, respond

INIT_PRODUCER_ID = 22
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
VERSIONS = range(messages.APIS[INIT_PRODUCER_ID].min_version, messages.APIS[INIT_PRODUCER_ID].max_version + 1)


class Counting:
    """Gives out 7, 8, …"""

    def __init__(self) -> None:
        self.last = 6

    def prepare(self) -> bool:
        return True

    async def next_id(self) -> int:
        self.last += 1
        return self.last


async def asked(services: Services, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    """(error code, producer id, epoch)."""
    response = await respond(services, messages.InitProducerIdRequest(**{"transactional_id": None} | fields), version)
    return response.error_code, response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_producer_gets_an_id_of_its_own_with_epoch_0(version: int) -> None:
    services = make_services(producer_ids=Counting())
    assert await asked(services, version) == (0, 7, 0)
    assert await asked(services, version) == (0, 8, 0)


async def test_a_producer_that_begins_again_gets_another_id() -> None:
    assert await asked(make_services(producer_ids=Counting()), producer_id=3, producer_epoch=9) == (0, 7, 0)


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(3, -1), (-1, 3)])
@pytest.mark.parametrize("transactional_id", [None, "t"])
async def test_an_id_without_an_epoch_or_the_reverse_is_an_invalid_request(
    producer_id: int, producer_epoch: int, transactional_id: str | None
) -> None:
    fields: dict[str, Any] = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": producer_epoch}
    assert await asked(make_services(producer_ids=Counting()), **fields) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 1000, ErrorCode.INVALID_REQUEST),
        ("t", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_000, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_a_transactional_id_is_checked_before_its_coordinator(transactional_id: str, timeout_ms: int, code: ErrorCode) -> None:
    fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    assert await asked(make_services(producer_ids=Counting()), **fields) == (code, -1, -1)


async def test_without_a_block_of_ids_the_coordinator_is_loading() -> None:
    assert await asked(make_services()) == (LOADING, -1, -1)


async def test_a_producer_needs_idempotent_write_or_write_of_a_topic() -> None:
    denied = (Operation.IDEMPOTENT_WRITE, "kafka-cluster")
    services = make_services(producer_ids=Counting(), authorizer=Denying(denied))
    assert await asked(services) == (0, 7, 0)
    services = make_services(producer_ids=Counting(), authorizer=Denying(denied, (Operation.WRITE, None)))
    assert await asked(services) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1)


async def test_a_transactional_id_needs_write() -> None:
    services = make_services(authorizer=Denying((Operation.WRITE, "t")))
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await asked(services, transactional_id="t", transaction_timeout_ms=1000) == (code, -1, -1)


class Blocks:
    """A broker's ids, and the controller that gives it blocks when the test says so."""

    def __init__(self, controller: ScriptedBroker) -> None:
        self.controller = controller
        self.clock = DrivenClock()
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", controller.port, 0)
        self.requests = ControllerRequests("3", lambda: endpoint, clock=self.clock)
        self.background = BackgroundTasks()
        self.ids = ControllerProducerIds(BrokerIdentity(3, "c", 44), self.requests, self.background, 10_000)

    async def is_loading(self) -> bool:
        try:
            await self.ids.next_id()
        except ApiError as error:
            return error.code is LOADING
        return False

    async def give(self, number: int, first: int, count: int = 1000, code: int = 0) -> None:
        """Respond to the request for a block with this number, counted from 0; returns when the broker has seen it."""
        await self.controller.received(number + 1)
        self.controller.answer(number, code, producer_id_start=first, producer_id_len=count)
        await eventually(lambda: not self.ids._requested, "the block has arrived")


@pytest.fixture
async def blocks() -> AsyncIterator[Blocks]:
    controller = ScriptedBroker()
    await controller.start()
    one = Blocks(controller)
    yield one
    await one.background.close()
    await one.requests.close()
    await controller.stop()


async def test_a_block_is_requested_with_the_first_id_and_the_next_one_before_it_is_used_up(blocks: Blocks) -> None:
    assert await blocks.is_loading()
    assert await blocks.is_loading()
    await blocks.give(0, 5000, 10)
    assert (blocks.controller.requests[0][2].broker_id, blocks.controller.requests[0][2].broker_epoch) == (3, 44)
    assert [await blocks.ids.next_id() for _ in range(9)] == list(range(5000, 5009))
    await asyncio.sleep(0)
    assert len(blocks.controller.requests) == 1
    assert await blocks.ids.next_id() == 5009
    await blocks.give(1, 7000, 10)
    assert await blocks.ids.next_id() == 7000


async def test_after_an_error_of_the_controller_the_next_request_for_a_block_waits_a_little(blocks: Blocks) -> None:
    assert await blocks.is_loading()
    await blocks.give(0, 0, 0, ErrorCode.STALE_BROKER_EPOCH)
    assert await blocks.is_loading()
    assert len(blocks.controller.requests) == 1
    await blocks.clock.advance(RETRY_MS / 1000)
    assert await blocks.is_loading()
    await blocks.give(1, 1000)
    assert await blocks.ids.next_id() == 1000


@pytest.mark.parametrize("protocol", ["2.8", "3.9"])
async def test_ids_of_a_cluster_are_given_out_once(zookeeper: str, chroot: str, protocol: str) -> None:
    brokers = [node(zookeeper + chroot, broker_id, inter_broker_protocol_version=protocol) for broker_id in (1, 2)]
    try:
        for broker in brokers:
            await broker.start()
        for broker in brokers:
            await knows(broker, 1, 2)
        found = []
        for number in range(40):
            broker = brokers[number % 2]
            response = await request(broker, INIT_PRODUCER_ID, 4, messages.InitProducerIdRequest(transactional_id=None))
            while response.error_code == LOADING:
                response = await request(broker, INIT_PRODUCER_ID, 4, messages.InitProducerIdRequest(transactional_id=None))
            assert (response.error_code, response.producer_epoch) == (0, 0)
            found.append(response.producer_id)
        assert sorted(found) == [*range(20), *range(1000, 1020)]
    finally:
        for broker in brokers:
            await broker.stop()
