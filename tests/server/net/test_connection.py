"""Connections: order, one write per read, waiting requests, slow readers, limits, idle ones, faults."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.framing import FrameReader
from klamm.server.apis import controlled_shutdown, produce
from klamm.server.listeners.connection import BUFFERED_BYTES, WRITE_BYTES, ClientConnection
from klamm.server.listeners.connection_limits import ConnectionLimits
from klamm.server.listeners.listener import Listener, bind
from klamm.server.net.log_limit import LINES
from klamm.server.requests.context import CloseConnection
from klamm.server.requests.delayed_response import DelayedResponse
from klamm.server.requests.dispatch import LARGE_REQUEST_BYTES, Handler
from klamm.server.security.authorizer import Principal
from klamm.tests.harness.waits import eventually
from klamm.tests.server import wire
from klamm.tests.server.conftest import Connect, Serve
from klamm.tests.server.net.fake_transport import FakeTransport, ask_versions


def ask_metadata(correlation_id: int) -> bytes:
    return wire.request(3, 1, correlation_id, messages.MetadataRequest(topics=None))


def ask_shutdown(correlation_id: int, broker_id: int = 0) -> bytes:
    return wire.request(7, 3, correlation_id, messages.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=-1))


class Gate:
    """A handler that waits until the test opens it, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.open = asyncio.Event()

    async def handle(self, ctx: Any, request: Any) -> Any:
        self.seen.append(request.broker_id)
        await self.open.wait()
        return messages.ControlledShutdownResponse()


class SlowTransport(FakeTransport):
    """Holds what is written until `drain`."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: ClientConnection | None = None
        self.reading = True
        self.closed = False
        self.drained = b""

    def write(self, data: bytes) -> None:
        super().write(data)
        if sum(map(len, self.writes)) > BUFFERED_BYTES and self.connection is not None:
            self.connection.pause_writing()

    def drain(self) -> None:
        self.drained += b"".join(self.writes)
        self.writes = []
        assert self.connection is not None
        self.connection.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True


async def test_answers_of_one_read_leave_in_one_write() -> None:
    dispatcher = wire.make_dispatcher(wire.HANDLERS)
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), FakeTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(b"".join(ask_versions(n) if n % 2 else ask_metadata(n) for n in range(16)))
    assert len(transport.writes) == 1
    connection.data_received(ask_metadata(16) + ask_metadata(17)[:9])
    connection.data_received(ask_metadata(17)[9:])
    assert len(transport.writes) == 3
    await listener.close()


@pytest.mark.parametrize("seed", range(20))
async def test_answers_do_not_depend_on_how_the_bytes_arrive(seed: int) -> None:
    """Known and new requests, mixed, cut anywhere."""
    dice = random.Random(seed)
    dispatcher = wire.make_dispatcher(wire.HANDLERS | {3: Handler(wire.empty_metadata, cached=seed % 2 == 0)})
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), FakeTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    asks = (ask_versions, ask_metadata, lambda n: wire.request(18, 0, n, messages.ApiVersionsRequest(), "x" * dice.randrange(5)))
    stream = b"".join(dice.choice(asks)(n) for n in range(200))
    while stream:
        size = dice.choice((1, 7, 8, 29, 58, 500, 2000))
        connection.data_received(stream[:size])
        stream = stream[size:]
        if dice.random() < 0.1:
            dispatcher.metadata.generation += 1
    answers = FrameReader().feed(b"".join(transport.writes))
    assert [int.from_bytes(answer[:4], "big") for answer in answers] == list(range(200))
    await listener.close()


async def test_known_requests_wait_for_a_slow_reader_too() -> None:
    dispatcher = wire.make_dispatcher({3: Handler(lambda ctx, request: b"x" * 50_000, cached=True)})
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), SlowTransport()
    transport.connection = connection
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(ask_metadata(0))
    connection.data_received(b"".join(map(ask_metadata, range(1, 500))))
    assert sum(map(len, transport.writes)) < BUFFERED_BYTES + 2 * WRITE_BYTES
    assert not transport.reading
    while not transport.reading:
        transport.drain()
    transport.drain()
    assert len(transport.drained) == 500 * 50_008
    await listener.close()


async def test_the_rest_of_a_frame_is_never_a_known_request() -> None:
    """A client id may hold the very bytes of a request that was answered before."""
    dispatcher = wire.make_dispatcher(wire.HANDLERS)
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), FakeTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    known = ask_versions(1)
    connection.data_received(known)
    odd = wire.request(3, 1, 2, messages.MetadataRequest(topics=None), f"x{known.decode()}")
    cut = odd.index(known)
    connection.data_received(known + odd[:cut])
    connection.data_received(odd[cut:])
    answers = FrameReader().feed(b"".join(transport.writes))
    assert [int.from_bytes(answer[:4], "big") for answer in answers] == [1, 1, 2]
    await listener.close()


async def test_a_slow_answer_counts_as_use() -> None:
    gate = Gate()
    dispatcher = wire.make_dispatcher({7: Handler(gate.handle)})
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), SlowTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection._time = lambda: 1000.0
    connection.data_received(ask_shutdown(1))
    connection._time = lambda: 2000.0
    gate.open.set()
    await eventually(lambda: transport.writes, "the answer is written")
    assert connection.last_used == 2000.0
    await listener.close()


async def test_what_comes_while_a_request_waits_is_answered_after_it() -> None:
    """A transport may hand over what it had read before it was told to pause."""
    gate = Gate()
    dispatcher = wire.make_dispatcher(wire.HANDLERS | {7: Handler(gate.handle)})
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), SlowTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(ask_shutdown(1))
    connection.data_received(ask_versions(2))
    assert transport.writes == []
    gate.open.set()
    await eventually(lambda: transport.writes, "the answers are written")
    answers = FrameReader().feed(b"".join(transport.writes))
    assert [int.from_bytes(answer[:4], "big") for answer in answers] == [1, 2]
    await listener.close()


async def test_requests_that_may_be_pipelined_are_under_way_together_and_answered_in_order(serve: Serve, connect: Connect) -> None:
    begun: list[int] = []
    together = asyncio.Event()

    def handle(ctx: Any, request: Any) -> Any:
        begun.append(request.broker_id)
        return DelayedResponse(respond(request))

    async def respond(request: Any) -> Any:
        if len(begun) == 3:
            together.set()
        await together.wait()
        for _ in range(10 - request.broker_id):
            await asyncio.sleep(0)
        return messages.ControlledShutdownResponse()

    listener = await serve({7: Handler(handle, pipelined=True)})
    peer = await connect(listener.port)
    peer.send(ask_shutdown(1, 1) + ask_shutdown(2, 2) + ask_shutdown(3, 3) + ask_versions(4))
    assert await peer.correlation_ids(4) == [1, 2, 3, 4]
    assert begun == [1, 2, 3]


class Pipelined:
    """A pipelined handler whose requests wait until the test lets them go; `mode` by broker id says what else happens."""

    def __init__(self, **modes: str) -> None:
        self.begun: list[int] = []
        self.responses: dict[int, asyncio.Event] = {}
        self.effects: dict[int, asyncio.Event] = {}
        self.modes = {int(name[1:]): mode for name, mode in modes.items()}

    def handle(self, ctx: Any, request: Any) -> Any:
        mode = self.modes.get(request.broker_id, "")
        self.begun.append(request.broker_id)
        if mode == "at once":
            return messages.ControlledShutdownResponse()
        if mode == "closes":
            raise CloseConnection("not today")
        pending = self.wait(request.broker_id)
        if mode == "effect later":
            return self.take_effect(request.broker_id, pending)
        return pending if mode == "no effect" else DelayedResponse(pending)

    async def take_effect(self, number: int, pending: Coroutine[Any, Any, Any]) -> DelayedResponse:
        await self.effects.setdefault(number, asyncio.Event()).wait()
        return DelayedResponse(pending)

    async def wait(self, number: int) -> Any:
        gate = self.responses.setdefault(number, asyncio.Event())
        await gate.wait()
        return messages.ControlledShutdownResponse()

    async def has_begun(self, *numbers: int) -> None:
        await eventually(lambda: self.begun == list(numbers), f"{numbers} are begun")
        await eventually(lambda: all(n in self.responses or n in self.modes for n in numbers), "they wait")

    def let_go(self, number: int) -> None:
        self.responses[number].set()


async def test_a_pipelined_request_that_comes_later_is_begun_while_others_wait(serve: Serve, connect: Connect) -> None:
    pipelined = Pipelined(_3="at once")
    peer = await connect((await serve({7: Handler(pipelined.handle, pipelined=True)})).port)
    for number in (1, 2, 3):
        peer.send(ask_shutdown(number, number))
        await pipelined.has_begun(*range(1, number + 1))
    pipelined.let_go(2)
    pipelined.let_go(1)
    assert await peer.correlation_ids(3) == [1, 2, 3]


async def test_behind_a_request_without_effect_nothing_is_begun_before_its_response(serve: Serve, connect: Connect) -> None:
    pipelined = Pipelined(_2="no effect")
    peer = await connect((await serve({7: Handler(pipelined.handle, pipelined=True)})).port)
    peer.send(ask_shutdown(1, 1))
    await pipelined.has_begun(1)
    peer.send(ask_shutdown(2, 2) + ask_shutdown(3, 3))
    await pipelined.has_begun(1, 2)
    pipelined.let_go(1)
    assert await peer.correlation_ids(1) == [1]
    assert pipelined.begun == [1, 2]
    pipelined.let_go(2)
    assert await peer.correlation_ids(1) == [2]
    await pipelined.has_begun(1, 2, 3)
    pipelined.let_go(3)
    assert await peer.correlation_ids(1) == [3]


async def test_behind_a_request_that_takes_effect_later_the_next_is_begun_at_that_moment(serve: Serve, connect: Connect) -> None:
    pipelined = Pipelined(_1="effect later")
    peer = await connect((await serve({7: Handler(pipelined.handle, pipelined=True)})).port)
    peer.send(ask_shutdown(1, 1) + ask_shutdown(2, 2))
    await eventually(lambda: 1 in pipelined.effects, "1 is under way")
    assert pipelined.begun == [1]
    pipelined.effects[1].set()
    await pipelined.has_begun(1, 2)
    pipelined.let_go(2)
    pipelined.let_go(1)
    assert await peer.correlation_ids(2) == [1, 2]


async def test_the_next_request_is_begun_when_the_one_before_ends_without_an_effect_of_its_own(serve: Serve, connect: Connect) -> None:
    pipelined = Pipelined(_2="no effect")
    peer = await connect((await serve({7: Handler(pipelined.handle, pipelined=True)})).port)
    peer.send(ask_shutdown(1, 1) + ask_shutdown(2, 2) + ask_shutdown(3, 3))
    await pipelined.has_begun(1, 2)
    pipelined.let_go(2)
    await pipelined.has_begun(1, 2, 3)
    pipelined.let_go(1)
    pipelined.let_go(3)
    assert await peer.correlation_ids(3) == [1, 2, 3]


@pytest.mark.parametrize("api_key", [0, 56])
async def test_a_large_request_takes_effect_before_the_small_ones_behind_it(api_key: int, serve: Serve, connect: Connect) -> None:
    effects: list[int] = []

    def handle(ctx: Any, request: Any) -> Any:
        effects.append(ctx.correlation_id)
        return messages.ProduceResponse() if api_key == 0 else messages.AlterPartitionResponse()

    def ask(correlation_id: int, size: int) -> bytes:
        if api_key == 0:
            topic = messages.ProduceRequest.TopicProduceData
            part: Any = messages.ProduceRequest.PartitionProduceData
            asked: Any = messages.ProduceRequest(acks=1, topic_data=[topic(name="t", partition_data=[part(index=0, records=bytes(size))])])
            version = 9
        else:
            names = messages.AlterPartitionRequest.TopicData
            part = messages.AlterPartitionRequest.PartitionData
            rows = [part(partition_index=i, new_isr=[1, 2, 3]) for i in range(size // 30 + 1)]
            asked, version = messages.AlterPartitionRequest(topics=[names(topic_name="t", partitions=rows)]), 1
        return wire.request(api_key, version, correlation_id, asked)

    peer = await connect((await serve({api_key: Handler(handle, pipelined=True)})).port)
    sizes = [LARGE_REQUEST_BYTES + 5_000, 10, 10, LARGE_REQUEST_BYTES * 2, 10]
    peer.send(b"".join(ask(number, size) for number, size in enumerate(sizes)))
    assert await peer.correlation_ids(5) == [0, 1, 2, 3, 4]
    assert effects == [0, 1, 2, 3, 4]


async def test_another_request_waits_for_the_pipelined_ones_before_it(serve: Serve, connect: Connect) -> None:
    pipelined = Pipelined()
    peer = await connect((await serve({7: Handler(pipelined.handle, pipelined=True)})).port)
    peer.send(ask_shutdown(1, 1) + ask_versions(2) + ask_shutdown(3, 3))
    await pipelined.has_begun(1)
    pipelined.let_go(1)
    assert await peer.correlation_ids(2) == [1, 2]
    await pipelined.has_begun(1, 3)
    pipelined.let_go(3)
    assert await peer.correlation_ids(1) == [3]


async def test_a_pipelined_request_that_closes_the_connection_is_begun_once_and_after_the_responses_before_it(
    serve: Serve, connect: Connect
) -> None:
    pipelined = Pipelined(_2="closes")
    peer = await connect((await serve({7: Handler(pipelined.handle, pipelined=True)})).port)
    peer.send(ask_shutdown(1, 1) + ask_shutdown(2, 2) + ask_shutdown(3, 3))
    await pipelined.has_begun(1, 2)
    pipelined.let_go(1)
    assert await peer.correlation_ids(1) == [1]
    assert await peer.answer() is None
    assert pipelined.begun == [1, 2]


async def test_behind_a_request_that_closes_the_connection_nothing_is_begun_when_earlier_ones_end(serve: Serve, connect: Connect) -> None:
    pipelined = Pipelined(_3="closes")
    peer = await connect((await serve({7: Handler(pipelined.handle, pipelined=True)})).port)
    peer.send(b"".join(ask_shutdown(number, number) for number in (1, 2, 3, 4)))
    await pipelined.has_begun(1, 2, 3)
    pipelined.let_go(1)
    assert await peer.correlation_ids(1) == [1]
    pipelined.let_go(2)
    assert await peer.correlation_ids(1) == [2]
    assert await peer.answer() is None
    assert pipelined.begun == [1, 2, 3]


async def test_a_half_closed_connection_gets_all_responses_and_is_closed_then(serve: Serve, connect: Connect) -> None:
    pipelined = Pipelined()
    listener = await serve({7: Handler(pipelined.handle, pipelined=True)})
    peer = await connect(listener.port)
    peer.send(ask_shutdown(1, 1) + ask_shutdown(2, 2) + ask_versions(3)[:-1])
    await pipelined.has_begun(1, 2)
    peer.writer.write_eof()
    (connection,) = listener.connections
    await eventually(lambda: connection._is_half_closed, "the broker knows")
    pipelined.let_go(2)
    pipelined.let_go(1)
    assert await peer.correlation_ids(2) == [1, 2]
    assert await peer.answer() is None
    await eventually(lambda: not listener.connections, "the connection is closed")


async def test_requests_that_wait_when_the_client_ends_are_begun_all_the_same() -> None:
    gate = Gate()
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), wire.make_dispatcher({7: Handler(gate.handle)}), ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), SlowTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(b"".join(ask_shutdown(number, number) for number in (1, 2, 3)))
    assert connection.eof_received()
    gate.open.set()
    await eventually(lambda: transport.closed, "the connection is closed")
    assert gate.seen == [1, 2, 3]
    assert len(transport.writes) == 3
    assert not connection.eof_received()
    await listener.close()


async def test_a_client_that_is_gone_is_not_refused(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()

    async def handle(ctx: Any, request: Any) -> Any:
        await gate.handle(ctx, request)
        raise CloseConnection("not today")

    dispatcher = wire.make_dispatcher({7: Handler(handle)})
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection = ClientConnection(listener, asyncio.get_running_loop())
    connection.connection_made(SlowTransport())  # type: ignore[arg-type]
    connection.data_received(ask_shutdown(1))
    connection.connection_lost(None)
    gate.open.set()
    await eventually(lambda: not connection.busy, "the request is done")
    assert "not today" not in caplog.text
    await listener.close()


async def test_a_request_that_comes_right_before_the_end_has_begun_when_it_is_given_up() -> None:
    gate = Gate()
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), wire.make_dispatcher({7: Handler(gate.handle)}), ConnectionLimits())
    connection = ClientConnection(listener, asyncio.get_running_loop())
    connection.connection_made(SlowTransport())  # type: ignore[arg-type]
    connection.data_received(ask_shutdown(1, broker_id=7))
    await listener.close()
    assert gate.seen == [7]
    assert not listener.requests


async def test_a_connection_that_is_held_is_served_when_it_is_admitted() -> None:
    dispatcher = wire.make_dispatcher(wire.HANDLERS)
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), SlowTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.hold()
    connection.data_received(ask_versions(1))
    assert transport.writes == []
    connection.admit()
    assert len(transport.writes) == 1
    await listener.close()


async def test_held_connection_that_is_admitted_at_once_is_read() -> None:
    dispatcher = wire.make_dispatcher(wire.HANDLERS)
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits())
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), SlowTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.hold()
    connection.admit()
    await asyncio.sleep(0)
    assert transport.reading
    await listener.close()


async def test_answers_come_in_the_order_of_requests(serve: Serve, connect: Connect) -> None:
    gate = Gate()
    listener = await serve({7: Handler(gate.handle)})
    peer = await connect(listener.port)
    peer.send(ask_versions(0) + ask_shutdown(1, 11) + ask_metadata(2) + ask_shutdown(3, 12) + ask_versions(4))
    assert await peer.correlation_ids(1) == [0]
    assert gate.seen == [11]  # the second one waits for the first
    gate.open.set()
    assert await peer.correlation_ids(4) == [1, 2, 3, 4]
    assert gate.seen == [11, 12]


async def test_waiting_request_holds_up_nobody_else(serve: Serve, connect: Connect) -> None:
    gate = Gate()
    listener = await serve({7: Handler(gate.handle)})
    waiting, other = await connect(listener.port), await connect(listener.port)
    waiting.send(ask_shutdown(1) + ask_versions(2))
    other.send(ask_versions(3))
    assert await other.correlation_ids(1) == [3]
    gate.open.set()
    assert await waiting.correlation_ids(2) == [1, 2]


async def answered_elsewhere(peer: wire.Peer, correlation_id: int = 1) -> None:
    """A request on another connection, sent now, has its response: the listener has looked at what came before it."""
    peer.send(ask_versions(correlation_id))
    assert await peer.correlation_ids(1) == [correlation_id]


async def test_nothing_more_is_read_while_a_request_waits(serve: Serve, connect: Connect) -> None:
    gate = Gate()
    listener = await serve({7: Handler(gate.handle)})
    peer = await connect(listener.port)
    peer.send(ask_shutdown(1))
    await eventually(lambda: gate.seen, "the request is handled")
    (connection,) = listener.connections
    for n in range(2, 2002):
        peer.send(ask_metadata(n))
    await answered_elsewhere(await connect(listener.port))
    assert connection._flow.waiting == 0
    gate.open.set()
    assert await peer.correlation_ids(2001) == list(range(1, 2002))


async def test_request_goes_on_when_its_client_is_gone(serve: Serve, connect: Connect) -> None:
    gate, done = Gate(), asyncio.Event()

    async def handle(ctx: Any, request: Any) -> Any:
        response = await gate.handle(ctx, request)
        done.set()
        return response

    listener = await serve({7: Handler(handle)})
    peer = await connect(listener.port)
    peer.send(ask_shutdown(1))
    await eventually(lambda: gate.seen, "the request is handled")
    (connection,) = listener.connections
    connection.abort()
    gate.open.set()
    await asyncio.wait_for(done.wait(), 10)
    await eventually(lambda: not listener.connections, "the connection is gone")


async def test_slow_reader_is_not_served_beyond_the_limit(serve: Serve, connect: Connect) -> None:
    served = 0
    size = 100_000
    requests = 3000

    def large(ctx: Any, request: Any) -> Any:
        nonlocal served
        served += 1
        return messages.MetadataResponse(topics=[messages.MetadataResponse.MetadataResponseTopic(name="x" * 30_000)] * 4)

    listener = await serve({3: Handler(large)})
    peer = await connect(listener.port)
    for n in range(requests):
        peer.send(ask_metadata(n))
    await asyncio.sleep(0.2)
    while True:  # until nothing moves any more
        before = served
        await asyncio.sleep(0.1)
        if served == before:
            break
    (connection,) = listener.connections
    buffered = connection._transport.get_write_buffer_size()  # type: ignore[union-attr]
    assert buffered <= BUFFERED_BYTES + WRITE_BYTES + 2 * size
    assert served < requests / 4
    other = await connect(listener.port)
    other.send(ask_versions(7))
    assert await other.correlation_ids(1) == [7]
    assert await peer.correlation_ids(requests) == list(range(requests))
    assert served == requests


async def test_answer_may_be_missing(serve: Serve, connect: Connect) -> None:
    listener = await serve({7: Handler(lambda ctx, request: None)})
    peer = await connect(listener.port)
    peer.send(ask_shutdown(1) + ask_versions(2))
    assert await peer.correlation_ids(1) == [2]


async def test_encoded_answer_is_sent_as_it_is(serve: Serve, connect: Connect) -> None:
    listener = await serve({7: Handler(lambda ctx, request: b"\x00\x08\x01\x00")})
    peer = await connect(listener.port)
    peer.send(ask_shutdown(5))
    assert await peer.answer() == b"\x00\x00\x00\x05\x00\x00\x08\x01\x00"


@pytest.mark.parametrize("waits", [False, True])
async def test_fault_is_answered_and_logged(serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture, waits: bool) -> None:
    def at_once(ctx: Any, request: Any) -> Any:
        raise KeyError("something is wrong here")

    async def later(ctx: Any, request: Any) -> Any:
        await asyncio.sleep(0)
        raise KeyError("something is wrong here")

    listener = await serve({7: Handler(later if waits else at_once, controlled_shutdown.refuse)})
    peer = await connect(listener.port)
    with caplog.at_level(logging.WARNING):
        peer.send(ask_shutdown(1) + ask_versions(2))
        answer = await peer.answer()
    assert answer is not None
    response, _ = messages.decode("ControlledShutdownResponse", 3, answer, 5)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await peer.correlation_ids(1) == [2]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "something is wrong here" in caplog.text


@pytest.mark.parametrize("waits", [False, True])
async def test_an_api_error_of_a_handler_is_the_result_of_the_whole_request(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    def at_once(ctx: Any, request: Any) -> Any:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "another broker")

    async def later(ctx: Any, request: Any) -> Any:
        await asyncio.sleep(0)
        raise ApiError(ErrorCode.NOT_CONTROLLER, "another broker")

    def refused(request: Any, version: int, code: ErrorCode, message: str | None = None) -> Any:
        told.append(message)
        return controlled_shutdown.refuse(request, version, code, message)

    told: list[str | None] = []
    listener = await serve({7: Handler(later if waits else at_once, refused)})
    peer = await connect(listener.port)
    with caplog.at_level(logging.WARNING):
        peer.send(ask_shutdown(1))
        answer = await peer.answer()
    assert answer is not None
    assert messages.decode("ControlledShutdownResponse", 3, answer, 5)[0].error_code == ErrorCode.NOT_CONTROLLER
    assert told == ["another broker"]
    assert caplog.records == []


async def test_fault_of_a_request_that_wants_no_answer_closes_the_connection(serve: Serve, connect: Connect) -> None:
    """A producer with acks=0 would never hear of it otherwise."""

    def broken(ctx: Any, request: Any) -> Any:
        raise KeyError("something is wrong here")

    listener = await serve({0: Handler(broken, produce.refuse)})
    peer = await connect(listener.port)
    peer.send(wire.request(0, 9, 1, messages.ProduceRequest(acks=0, topic_data=[])))
    assert await peer.answer() is None


async def test_answer_that_cannot_be_encoded_is_a_fault(serve: Serve, connect: Connect) -> None:
    def unencodable(ctx: Any, request: Any) -> Any:
        return messages.ControlledShutdownResponse(error_code=70_000)

    listener = await serve({7: Handler(unencodable, controlled_shutdown.refuse)})
    peer = await connect(listener.port)
    peer.send(ask_shutdown(1))
    answer = await peer.answer()
    assert answer is not None
    assert messages.decode("ControlledShutdownResponse", 3, answer, 5)[0].error_code == -1


@pytest.mark.parametrize("waits", [False, True])
async def test_handler_closes_its_own_connection(serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture, waits: bool) -> None:
    def at_once(ctx: Any, request: Any) -> Any:
        raise CloseConnection("not today")

    async def later(ctx: Any, request: Any) -> Any:
        await asyncio.sleep(0)
        raise CloseConnection("not today")

    listener = await serve({7: Handler(later if waits else at_once, controlled_shutdown.refuse)})
    peer, other = await connect(listener.port), await connect(listener.port)
    peer.send(ask_versions(1) + ask_shutdown(2) + ask_versions(3))
    assert await peer.correlation_ids(1) == [1]
    assert await peer.answer() is None
    other.send(ask_versions(4))
    assert await other.correlation_ids(1) == [4]
    assert [r.getMessage().endswith("not today") for r in caplog.records] == [True]


async def test_answers_are_kept_for_one_state_of_the_cache(serve: Serve, connect: Connect) -> None:
    calls: list[int] = []

    def handle(ctx: Any, request: Any) -> Any:
        calls.append(ctx.services.metadata.generation)
        return messages.MetadataResponse(controller_id=ctx.services.metadata.generation)

    def bump(ctx: Any, request: Any) -> Any:
        ctx.services.metadata.generation += 1
        return messages.ControlledShutdownResponse()

    listener = await serve({3: Handler(handle, cached=True), 7: Handler(bump)})
    peer = await connect(listener.port)
    answers: dict[int, bytes | None] = {}
    for first, ask in enumerate((ask_metadata, ask_metadata, ask_shutdown, ask_metadata, ask_metadata), 1):
        peer.send(ask(first))
        answers[first] = await peer.answer()
    assert calls == [0, 1]
    controllers = {n: messages.decode("MetadataResponse", 1, answers[n] or b"", 4)[0].controller_id for n in (1, 2, 4, 5)}
    assert controllers == {1: 0, 2: 0, 4: 1, 5: 1}
    assert [int.from_bytes((answers[n] or b"")[:4], "big") for n in (1, 2, 3, 4, 5)] == [1, 2, 3, 4, 5]


async def test_answers_that_depend_on_more_are_not_kept(serve: Serve, connect: Connect) -> None:
    calls = 0

    def handle(ctx: Any, request: Any) -> Any:
        nonlocal calls
        calls += 1
        ctx.cacheable = False
        return messages.MetadataResponse()

    listener = await serve({3: Handler(handle, cached=True)})
    peer = await connect(listener.port)
    for correlation_id in (1, 2):
        peer.send(ask_metadata(correlation_id))
        assert await peer.correlation_ids(1) == [correlation_id]
    assert calls == 2


async def test_too_many_connections_of_one_address(serve: Serve, connect: Connect) -> None:
    listener = await serve(limits=ConnectionLimits(max_per_ip=2))
    first, second = await connect(listener.port), await connect(listener.port)
    for peer in (first, second):
        peer.send(ask_versions(1))
        assert await peer.correlation_ids(1) == [1]
    third = await connect(listener.port)
    assert await third.answer() is None
    first.close()
    await eventually(lambda: len(listener.connections) == 1, "the connection is gone")
    fourth = await connect(listener.port)
    fourth.send(ask_versions(2))
    assert await fourth.correlation_ids(1) == [2]


async def test_limit_of_one_address_can_be_overridden(serve: Serve, connect: Connect) -> None:
    listener = await serve(limits=ConnectionLimits(per_ip_overrides={"127.0.0.1": 1}))
    first = await connect(listener.port)
    first.send(ask_versions(1))
    assert await first.correlation_ids(1) == [1]
    assert await (await connect(listener.port)).answer() is None


async def test_one_connection_too_many_waits_for_another_to_leave(serve: Serve, connect: Connect) -> None:
    listener = await serve(limits=ConnectionLimits(max_connections=1))
    first, second = await connect(listener.port), await connect(listener.port)
    second.send(ask_versions(2))
    first.send(ask_versions(1))
    assert await first.correlation_ids(1) == [1]
    answered = asyncio.ensure_future(second.correlation_ids(1))
    await answered_elsewhere(first, 3)
    assert not answered.done()
    first.close()
    assert await answered == [2]


async def test_idle_connection_is_closed(serve: Serve, connect: Connect) -> None:
    listener = await serve(max_idle_ms=50)
    peer = await connect(listener.port)
    peer.send(ask_versions(1))
    assert await peer.correlation_ids(1) == [1]
    assert await peer.answer() is None


async def test_connection_with_a_waiting_request_is_not_idle(serve: Serve, connect: Connect) -> None:
    gate = Gate()
    listener = await serve({7: Handler(gate.handle)}, max_idle_ms=20)
    peer = await connect(listener.port)
    peer.send(ask_shutdown(1))
    await asyncio.sleep(0.1)
    gate.open.set()
    assert await peer.correlation_ids(1) == [1]


async def test_a_half_closed_connection_whose_requests_wait_is_idle(serve: Serve, connect: Connect) -> None:
    """Its client may be gone, and a request may wait for weeks: nothing else would end the connection."""
    pipelined = Pipelined()
    listener = await serve({7: Handler(pipelined.handle, pipelined=True)}, max_idle_ms=20)
    peer = await connect(listener.port)
    peer.send(ask_shutdown(1, 1))
    await pipelined.has_begun(1)
    peer.writer.write_eof()
    await eventually(lambda: not listener.connections, "the connection is closed")
    assert len(listener.requests) == 1, "the request goes on"
    pipelined.let_go(1)


async def test_closing_the_listener_ends_everything(serve: Serve, connect: Connect) -> None:
    gate = Gate()
    given_up: list[int] = []

    async def handle(ctx: Any, request: Any) -> Any:
        try:
            return await gate.handle(ctx, request)
        except asyncio.CancelledError:
            given_up.append(request.broker_id)
            raise

    listener = await serve({7: Handler(handle)})
    peer, idle = await connect(listener.port), await connect(listener.port)
    peer.send(ask_shutdown(1))
    await eventually(lambda: gate.seen, "the request is handled")
    await listener.close()
    assert given_up == [0]
    assert not listener.requests
    assert await peer.answer() is None
    assert await idle.answer() is None
    with pytest.raises(OSError):
        await connect(listener.port)


async def test_same_port_cannot_be_bound_twice() -> None:
    first = bind("127.0.0.1", 0)
    with pytest.raises(OSError):
        bind("127.0.0.1", first.getsockname()[1])
    first.close()


def loopbacks() -> dict[str, str]:
    """What to bind, and where to connect to then."""
    found = {"": "127.0.0.1", "127.0.0.1": "127.0.0.1", "localhost": "localhost"}
    with socket.socket(socket.AF_INET6) as probe:
        if probe.connect_ex(("::1", 1)) == errno.ECONNREFUSED:
            found["::1"] = "::1"
    return found


@pytest.mark.parametrize("host", loopbacks())
async def test_hosts_that_can_be_bound(host: str) -> None:
    dispatcher = wire.make_dispatcher(wire.HANDLERS)
    listener = Listener("PLAINTEXT", bind(host, 0), dispatcher, ConnectionLimits())
    await listener.serve()
    reader, writer = await asyncio.open_connection(loopbacks()[host], listener.port)
    writer.write(ask_versions(1))
    assert await wire.Peer(reader, writer).correlation_ids(1) == [1]
    (connection,) = listener.connections
    assert connection.peer.host in ("127.0.0.1", "::1")
    writer.close()
    await listener.close()


async def test_bad_connections_cost_ten_lines_and_a_count(serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    listener = await serve()
    for _ in range(25):
        peer = await connect(listener.port)
        peer.send(b"\xff" * 8)
        assert await peer.answer() is None
    assert len(caplog.records) == LINES
    await listener.close()
    assert caplog.records[-1].getMessage() == "listener PLAINTEXT: 15 more lines like this were suppressed"


@pytest.mark.parametrize(
    ("begin", "hint"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "begins like TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "begins like HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "begins like HTTP"),
    ],
)
async def test_client_of_another_protocol_is_told_from_nonsense(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture, begin: bytes, hint: str
) -> None:
    peer = await connect((await serve()).port)
    peer.send(begin)
    assert await peer.answer() is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert hint in line


async def test_a_connection_may_have_a_dispatcher_and_a_principal_of_its_own(serve: Serve, connect: Connect) -> None:
    listener = await serve({3: Handler(wire.empty_metadata, cached=True)})
    mine, other = await connect(listener.port), await connect(listener.port)
    for peer in (mine, other):
        peer.send(ask_versions(1) + ask_metadata(2))
        assert await peer.correlation_ids(2) == [1, 2]
    assert listener.responses_of().by_frame
    (connection,) = (one for one in listener.connections if one.name.endswith(f":{mine.writer.get_extra_info('sockname')[1]}"))
    seen: list[str] = []

    def handle(ctx: Any, request: Any) -> Any:
        seen.append(ctx.peer.principal.name)
        return wire.empty_metadata(ctx, request)

    connection.identify(Principal("User", "alice"))
    connection.dispatch_to(wire.make_dispatcher(wire.HANDLERS | {3: Handler(handle, cached=True)}))
    for number in (3, 4):
        mine.send(ask_metadata(number))
        assert await mine.correlation_ids(1) == [number]
        other.send(ask_metadata(number))
        assert await other.correlation_ids(1) == [number]
    assert seen == ["alice"], "once by the handler, once from the cache of alice; the other connection never"


async def test_an_error_of_a_handler_is_not_what_the_next_same_request_gets(serve: Serve, connect: Connect) -> None:
    problems: list[Exception] = [RuntimeError("once")]

    def handle(ctx: Any, request: Any) -> Any:
        if problems:
            raise problems.pop()
        return messages.MetadataResponse(controller_id=7)

    def refuse(request: Any, version: int, code: Any, message: str | None = None) -> Any:
        return messages.MetadataResponse(controller_id=8)

    peer = await connect((await serve({3: Handler(handle, refuse, cached=True)})).port)
    for number, controller_id in ((1, 8), (2, 7), (3, 7)):
        peer.send(ask_metadata(number))
        payload = await peer.answer()
        assert payload is not None
        assert messages.decode("MetadataResponse", 1, payload, 4)[0].controller_id == controller_id
