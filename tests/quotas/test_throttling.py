"""Requests under quotas, with a driven clock: what counts as their time, what their responses say, and when their connection is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.apis.handlers import HANDLERS
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.requests.context import Context
from klamm.server.requests.dispatch import Dispatcher, Handler
from klamm.server.requests.quotas import ClientQuotas
from klamm.server.requests.throttling import RequestThrottle, handle_throttled
from klamm.server.security.authorizer import Principal
from klamm.tests.harness.waits import eventually
from klamm.tests.server import wire
from klamm.tests.services import broker_config, make_context, make_services

LONG_S = 5.25
"""A client that may use half of the time, 5 s in ten, is throttled for half a second when it has used this."""


class DrivenBroker:
    """A listener whose clock only the test moves. A Metadata request is handled by `work`."""

    def __init__(self) -> None:
        self.clock = DrivenClock()
        self.quotas = ClientQuotas(broker_config(), self.clock)
        self.work: Any = self.respond
        self.handlers = {**HANDLERS, ApiKey.METADATA: Handler(self.handle, cached=True, pipelined=True)}
        services = replace(make_services(client_quotas=self.quotas), clock=self.clock)
        self.dispatcher = Dispatcher(services, self.handlers)

    async def serve(self) -> None:
        self.listener = await wire.listen(self.dispatcher, clock=self.clock)

    async def connect(self) -> wire.Peer:
        return await wire.Peer.connect(self.listener.port)

    def limit(self, **quotas: float) -> None:
        self.quotas.set("clients", "<default>", {key: str(value) for key, value in quotas.items()})

    def handle(self, ctx: Context, request: Any) -> Any:
        return self.work(ctx, request)

    def respond(self, ctx: Context, request: Any) -> Any:
        return messages.MetadataResponse()

    def respond_after(self, seconds: float) -> Any:
        """A handler that keeps the event loop for this time."""

        def work(ctx: Context, request: Any) -> Any:
            self.clock.jump(seconds)
            self.work = self.respond
            return messages.MetadataResponse()

        return work


@pytest.fixture
async def driven() -> AsyncIterator[DrivenBroker]:
    one = DrivenBroker()
    await one.serve()
    yield one
    await one.listener.close()


def metadata(correlation_id: int = 1, version: int = 9) -> bytes:
    return wire.request(ApiKey.METADATA, version, correlation_id, messages.MetadataRequest(topics=[]))


async def throttle_ms(peer: wire.Peer, version: int = 9) -> int:
    """The throttle time in the next response to Metadata."""
    payload = await peer.answer()
    assert payload is not None
    _, offset = messages.decode_response_header(ApiKey.METADATA, version, payload)
    throttled: int = messages.decode("MetadataResponse", version, payload, offset)[0].throttle_time_ms
    return throttled


async def test_the_connection_of_a_throttled_client_is_served_when_the_time_is_over(driven: DrivenBroker) -> None:
    driven.limit(request_percentage=50)
    driven.work = driven.respond_after(LONG_S)
    muted, other = await driven.connect(), await driven.connect()
    muted.send(metadata(1) + metadata(2))
    assert await throttle_ms(muted) == 500
    waiting = asyncio.create_task(muted.answer())
    muted.send(metadata(3))
    await driven.clock.advance(0.25)
    other.send(metadata(4))
    assert await throttle_ms(other) == 250  # what is left of the time
    assert not waiting.done()
    await driven.clock.advance(0.25)
    assert (await waiting or b"")[:4] == (2).to_bytes(4, "big")


async def test_time_in_which_a_handler_waits_does_not_count(driven: DrivenBroker) -> None:
    driven.limit(request_percentage=50)
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def work(ctx: Context, request: Any) -> Any:
        driven.clock.jump(2.0)
        waits.set()
        await goes_on.wait()
        driven.clock.jump(3.25)
        return messages.MetadataResponse()

    driven.work = work
    peer = await driven.connect()
    peer.send(metadata())
    await waits.wait()
    driven.clock.jump(100)
    goes_on.set()
    assert await throttle_ms(peer) == 500


async def test_a_version_without_a_throttle_time_is_muted_too(driven: DrivenBroker) -> None:
    driven.limit(request_percentage=50)
    driven.work = driven.respond_after(LONG_S)
    peer = await driven.connect()
    peer.send(metadata(1, version=2) + metadata(2))
    assert (await peer.answer() or b"")[:4] == (1).to_bytes(4, "big")
    waiting = asyncio.create_task(peer.answer())
    await driven.clock.advance(0.25)
    assert not waiting.done()
    await driven.clock.advance(0.25)
    assert (await waiting or b"")[:4] == (2).to_bytes(4, "big")


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_response_that_is_encoded_already_gets_the_throttle_time(driven: DrivenBroker, in_pieces: bool) -> None:
    driven.limit(request_percentage=50)

    def work(ctx: Context, request: Any) -> Any:
        driven.clock.jump(LONG_S)
        body = messages.encode(messages.MetadataResponse(controller_id=7), ctx.api_version)
        return [body[:5], body[5:]] if in_pieces else body

    driven.work = work
    peer = await driven.connect()
    peer.send(metadata())
    payload = await peer.answer() or b""
    response = messages.decode("MetadataResponse", 9, payload, messages.decode_response_header(ApiKey.METADATA, 9, payload)[1])[0]
    assert (response.throttle_time_ms, response.controller_id) == (500, 7)


async def test_a_request_that_fails_is_neither_measured_nor_muted(driven: DrivenBroker) -> None:
    driven.limit(request_percentage=50)
    peer = await driven.connect()

    def fails(ctx: Context, request: Any) -> Any:
        driven.clock.jump(LONG_S)
        raise RuntimeError("a fault")

    driven.work = fails
    peer.send(metadata())
    assert await peer.answer() is None  # Metadata without `refuse` closes the connection
    again = await driven.connect()
    driven.work = driven.respond
    again.send(metadata())
    assert await throttle_ms(again) == 0


async def test_a_client_that_hangs_up_while_it_is_muted_is_noticed_afterwards(driven: DrivenBroker) -> None:
    driven.limit(request_percentage=50)
    driven.work = driven.respond_after(LONG_S)
    peer = await driven.connect()
    peer.send(metadata())
    assert await throttle_ms(peer) == 500
    peer.close()
    await driven.clock.advance(0.5)
    await eventually(lambda: not driven.listener.connections, "the connection is lost")


async def test_a_muted_connection_that_is_closed_is_left_alone(driven: DrivenBroker) -> None:
    driven.limit(request_percentage=50)
    driven.work = driven.respond_after(LONG_S)
    peer = await driven.connect()
    peer.send(metadata())
    assert await throttle_ms(peer) == 500
    await driven.listener.close()
    await eventually(lambda: not driven.listener.connections, "the connection is lost")
    assert await driven.clock.advance(0.5) == 0


async def test_the_quota_of_a_user_counts_from_its_authentication_on(driven: DrivenBroker) -> None:
    driven.quotas.set("users", "al%20ice", {"request_percentage": "50"})
    peer = await driven.connect()
    driven.work = driven.respond_after(LONG_S)
    peer.send(metadata())
    assert await throttle_ms(peer) == 0
    (connection,) = driven.listener.connections
    connection.identify(Principal("User", "al ice"))
    driven.work = driven.respond_after(LONG_S)
    peer.send(metadata())
    assert await throttle_ms(peer) == 500


async def test_responses_are_not_cached_while_there_are_quotas(driven: DrivenBroker) -> None:
    handled = 0

    def work(ctx: Context, request: Any) -> Any:
        nonlocal handled
        handled += 1
        return messages.MetadataResponse()

    driven.work = work
    peer = await driven.connect()
    driven.limit(request_percentage=50)
    for _ in range(3):
        peer.send(metadata())
        assert await throttle_ms(peer) == 0
    assert handled == 3
    driven.limit()
    for _ in range(3):
        peer.send(metadata())
        assert await throttle_ms(peer) == 0
    assert handled == 4


def test_without_quotas_the_handlers_are_the_plain_ones() -> None:
    driven = DrivenBroker()
    assert driven.dispatcher._handlers is driven.handlers
    driven.limit(producer_byte_rate=1000)
    under_quotas = driven.dispatcher._handlers
    exempt = {key for key, handler in driven.handlers.items() if under_quotas[key] is handler}
    assert exempt == {
        ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALTER_PARTITION,
        ApiKey.REGISTER_BROKER, ApiKey.METADATA_FETCH, ApiKey.END_PENDING_TRANSACTIONS,
        *([ApiKey.WRITE_TXN_MARKERS] if ApiKey.WRITE_TXN_MARKERS in HANDLERS else []),
    }
    driven.limit()
    assert driven.dispatcher._handlers is driven.handlers
    assert driven.dispatcher.may_pipeline(b"\0\3", metadata()[4:])


def test_a_quota_that_is_not_a_number_changes_nothing() -> None:
    driven = DrivenBroker()
    driven.limit(producer_byte_rate=1000)
    with pytest.raises(ValueError, match="many"):
        driven.quotas.set("clients", "<default>", {"producer_byte_rate": "many"})
    assert driven.quotas.enforced is not None
    assert driven.quotas.enforced.produced.bounds.find("u", "c") == (("", "c"), 1000)


def test_other_configs_of_a_user_are_no_quotas() -> None:
    driven = DrivenBroker()
    driven.quotas.set("users", "alice", {"SCRAM-SHA-256": "salt=c2FsdA=="})
    assert driven.quotas.enforced is None


@pytest.mark.parametrize("version", [12, 15])
@pytest.mark.parametrize(("replica_id", "is_measured"), [(-1, True), (0, False), (7, False)])
def test_fetches_of_followers_are_not_throttled_and_broker_0_is_one(version: int, replica_id: int, is_measured: bool) -> None:
    quotas = ClientQuotas(broker_config(), DrivenClock())
    quotas.set("clients", "<default>", {"request_percentage": "50"})
    assert quotas.enforced is not None
    ctx = make_context(make_services(client_quotas=quotas), ApiKey.FETCH, version)
    if version < 15:
        request = messages.FetchRequest(replica_id=replica_id, topics=[])
    else:
        request = messages.FetchRequest(replica_state=messages.FetchRequest.ReplicaState(replica_id=replica_id), topics=[])
    seen: list[bool] = []

    def handle(ctx: Context, request: Any) -> Any:
        seen.append(ctx.peer.throttle is not None)
        return messages.FetchResponse()

    handle_throttled(quotas.enforced, handle, ctx, request)
    assert seen == [is_measured]


def test_the_time_of_a_fetch_up_to_its_response_counts_and_later_time_does_not() -> None:
    """A Fetch says how much it reads before its response is there: what the event loop did for it until then is its time."""
    clock = DrivenClock()
    quotas = ClientQuotas(broker_config(), clock)
    quotas.set("clients", "<default>", {"request_percentage": "50"})
    ctx = make_context(replace(make_services(client_quotas=quotas), clock=clock), ApiKey.FETCH, 12)
    ctx.client_id = "test"
    ctx.peer.arrival = 100, clock.monotonic()
    assert quotas.enforced is not None
    throttle = RequestThrottle(quotas.enforced, ctx)
    clock.jump(LONG_S)
    assert throttle.fetched(10) == 500
