"""A tap sees every frame of every kind of connection, with its connection, direction, time and cause."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.exchanges.connections import ConnectionKind, ControllerEvent, RequestId
from klamm.server.lifecycle.seams import Seams
from klamm.server.listeners.connection import ClientConnection
from klamm.server.listeners.connection_limits import ConnectionLimits
from klamm.server.listeners.listener import Listener, bind
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.net.channels import Channels
from klamm.server.net.tap import BrokerTap, Direction, Frame
from klamm.server.requests.dispatch import Handler
from klamm.tests.harness.waits import eventually
from klamm.tests.server import wire
from klamm.tests.server.scripted import ScriptedBroker

RECEIVED, SENT = Direction.RECEIVED, Direction.SENT


class Frames:
    """A tap that keeps what it sees."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def frame(self, frame: Frame) -> None:
        self.frames.append(frame)

    @property
    def ways(self) -> list[tuple[Direction, bytes]]:
        return [(frame.direction, frame.payload) for frame in self.frames]


class Transport:
    """As much of a transport as a connection needs; keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1234)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        pass

    abort = close


def ask_versions(correlation_id: int) -> bytes:
    return wire.request(18, 3, correlation_id, messages.ApiVersionsRequest())


def split(data: bytes) -> list[bytes]:
    payloads = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        payloads.append(data[4:end])
        data = data[end:]
    return payloads


async def connection_with(tap: Frames, handlers: dict[int, Handler]) -> tuple[Listener, ClientConnection, Transport]:
    clock = itertools.count(10.0)
    dispatcher = wire.make_dispatcher(handlers)
    listener = Listener(
        "PLAINTEXT", bind("127.0.0.1", 0), dispatcher, ConnectionLimits(), tap=BrokerTap(tap, 3, lambda: next(clock))
    )
    connection, transport = ClientConnection(listener, asyncio.get_running_loop()), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return listener, connection, transport


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_client_frames_are_seen_however_they_arrive_and_cached_responses_too(size: int) -> None:
    tap = Frames()
    listener, connection, transport = await connection_with(tap, wire.HANDLERS)
    stream = b"".join(map(ask_versions, range(5)))
    for start in range(0, len(stream), size):
        connection.data_received(stream[start : start + size])
    connection.data_received(ask_versions(5) + ask_versions(6))
    assert listener.responses_of().by_frame, "the last ones were cached"
    received = [payload for direction, payload in tap.ways if direction is RECEIVED]
    assert received == split(stream + ask_versions(5) + ask_versions(6))
    assert [payload for direction, payload in tap.ways if direction is SENT] == split(transport.written)
    assert len(split(transport.written)) == 7
    assert [frame.time_s for frame in tap.frames] == [10.0 + n for n in range(14)]
    await listener.close()


async def test_response_has_its_request_as_cause_and_a_clients_request_none() -> None:
    tap = Frames()
    listener, connection, _ = await connection_with(tap, wire.HANDLERS)
    connection.data_received(ask_versions(77))
    request, response = tap.frames
    info = request.connection
    assert (info.broker_id, info.kind, info.peer) == (3, ConnectionKind.ACCEPTED, "127.0.0.1:1234")
    assert response.connection is info
    assert request.cause is None
    assert response.cause == RequestId(info.id, 77)
    await listener.close()


async def test_response_that_had_to_wait_is_seen_when_it_is_sent() -> None:
    opened = asyncio.Event()

    async def handle(ctx: Any, request: Any) -> Any:
        await opened.wait()
        return messages.MetadataResponse()

    tap = Frames()
    listener, connection, _ = await connection_with(tap, {3: Handler(handle)})
    connection.data_received(wire.request(3, 12, 1, messages.MetadataRequest()))
    assert [frame.direction for frame in tap.frames] == [RECEIVED]
    opened.set()
    await eventually(lambda: len(tap.frames) == 2, "the response is sent")
    await listener.close()


async def test_what_a_tap_raises_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Frames):
        def frame(self, frame: Frame) -> None:
            raise ValueError("no space left")

    listener, connection, transport = await connection_with(Broken(), wire.HANDLERS)
    with caplog.at_level(logging.ERROR):
        connection.data_received(ask_versions(1))
    assert len(split(transport.written)) == 1
    assert [record.getMessage() for record in caplog.records] == ["a tap raised an exception"] * 2
    await listener.close()


async def test_bytes_behind_a_bad_length_are_not_shown() -> None:
    tap = Frames()
    connection = BrokerTap(tap, 1, lambda: 0.0).connection(ConnectionKind.ACCEPTED, "peer:1")
    connection.received(b"\0\0\0\1a\xff\xff\xff\xff\0\0\0\1b")
    connection.received(b"\0\0\0\1c")
    assert tap.ways == [(RECEIVED, b"a")]


def test_response_too_short_for_a_correlation_id_has_no_cause() -> None:
    tap = Frames()
    one = BrokerTap(tap, 1, lambda: 0.0).connection(ConnectionKind.CHANNEL, "peer:1")
    one.received(b"\0\0\0\3abc")
    assert [(frame.payload, frame.cause) for frame in tap.frames] == [(b"abc", None)]


async def test_channel_shows_requests_with_their_event_and_responses_with_their_request() -> None:
    broker = ScriptedBroker()
    await broker.start()
    tap = Frames()
    channels = Channels(17, tap=BrokerTap(tap, 17, asyncio.get_running_loop().time))
    try:
        channels.add_broker(2, "127.0.0.1", broker.port)
        body = messages.encode(messages.UpdateMetadataRequest(controller_id=17), 8)
        for event in (41, 42):
            channels.send(2, 6, 8, body, lambda response: None, event=event)
        await broker.received(1)
        broker.answer(0)
        await broker.received(2)
        broker.answer(1)
        await eventually(lambda: len(tap.frames) == 4, "two requests and two responses")
    finally:
        channels.close()
        await broker.stop()
    info = tap.frames[0].connection
    assert (info.broker_id, info.kind, info.peer) == (17, ConnectionKind.CHANNEL, f"127.0.0.1:{broker.port}")
    assert [frame.direction for frame in tap.frames] == [SENT, RECEIVED, SENT, RECEIVED]
    assert [frame.cause for frame in tap.frames] == [ControllerEvent(41), RequestId(info.id, 0), ControllerEvent(42), RequestId(info.id, 1)]


def test_connections_of_a_broker_have_different_ids() -> None:
    frames = Frames()
    tap = BrokerTap(frames, 1, lambda: 0.0)
    for _ in range(3):
        tap.connection(ConnectionKind.ACCEPTED, "127.0.0.1:1").received(b"\0\0\0\1a")
    assert len({frame.connection.id for frame in frames.frames}) == 3


async def test_tap_of_a_local_cluster_sees_clients_channels_and_requests_to_the_controller(zookeeper: str, chroot: str) -> None:
    """And both ends of a connection between two brokers see the same frames."""
    tap = Frames()
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 2, 2)], seams=Seams(tap=tap))
    await cluster.start()
    try:
        controller = cluster.controller_id
        await cluster.stop_broker(3 - controller)
    finally:
        await cluster.stop()
    by_kind: dict[ConnectionKind, list[Frame]] = {kind: [] for kind in ConnectionKind}
    for frame in tap.frames:
        by_kind[frame.connection.kind].append(frame)
    assert {frame.connection.broker_id for frame in tap.frames} == {1, 2}

    def payloads(kind: ConnectionKind, direction: Direction) -> list[bytes]:
        return [frame.payload for frame in by_kind[kind] if frame.direction is direction]

    ours = by_kind[ConnectionKind.CHANNEL] + by_kind[ConnectionKind.TO_CONTROLLER]
    responded = {frame.cause for frame in ours if frame.direction is RECEIVED}

    def has_response(frame: Frame) -> bool:
        return RequestId(frame.connection.id, int.from_bytes(frame.payload[4:8], "big")) in responded

    assert {payload[1] for payload in payloads(ConnectionKind.CHANNEL, SENT)} >= {4, 6}, "LeaderAndIsr and UpdateMetadata"
    assert {payload[1] for payload in payloads(ConnectionKind.TO_CONTROLLER, SENT)} >= {7}, "ControlledShutdown"
    received = payloads(ConnectionKind.ACCEPTED, RECEIVED)
    assert all(frame.payload in received for frame in ours if frame.direction is SENT and has_response(frame))
    assert any(payload[1] == 19 for payload in received), "CreateTopics of the client that makes the first topics"
    for frame in by_kind[ConnectionKind.ACCEPTED]:
        assert (frame.cause is None) == (frame.direction is RECEIVED)


async def test_request_can_be_followed_from_its_frame_over_its_event_to_the_frames_that_it_caused(
    zookeeper: str, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of decisions names the connection and the correlation id of a request; requests to brokers name the event."""
    tap = Frames()
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 1, 2)], seams=Seams(tap=tap))
    await cluster.start()
    try:
        with caplog.at_level(logging.DEBUG, "klamm.controller"):
            await cluster.stop_broker(3 - cluster.controller_id)
    finally:
        await cluster.stop()
    sent = next(f for f in tap.frames if f.connection.kind is ConnectionKind.TO_CONTROLLER and f.direction is SENT)
    request = next(f for f in tap.frames if f.connection.kind is ConnectionKind.ACCEPTED and f.payload == sent.payload)
    line = next(line for line in caplog.messages if f"request ControlledShutdown 0 of connection {request.connection.id}" in line)
    event = int(line.split("event ", 1)[1].split()[0])
    caused = [f for f in tap.frames if f.cause == ControllerEvent(event)]
    assert {f.payload[1] for f in caused} >= {4, 6}, "LeaderAndIsr to the new leader, UpdateMetadata to all"
