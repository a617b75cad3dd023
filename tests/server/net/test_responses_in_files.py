"""Clients that ask for large responses and read nothing, whatever the API: the broker holds few bytes for all of them together, serves
others meanwhile, and a client that reads late gets every response.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.listeners.connection import BUFFERED_BYTES
from klamm.server.listeners.connection_limits import ConnectionLimits
from klamm.server.listeners.flow_control import IN_FILE, UNREAD
from klamm.server.listeners.listener import Listener
from klamm.server.listeners.unread_responses import PIECE_BYTES, ResponseFile
from klamm.server.local.cluster import LocalCluster
from klamm.server.requests.dispatch import Handler
from klamm.tests.harness.waits import eventually
from klamm.tests.server import wire
from klamm.tests.server.net.fake_transport import ask_versions

LIMIT = 2 << 20
SIZE = 1_500_000
CLIENTS, REQUESTS = 12, 4
ROWS = 15_000


async def in_a_while(ctx: Any, request: Any) -> bytes:
    await asyncio.sleep(0)
    return b"x" * SIZE


HANDLERS = {
    "at once": Handler(lambda ctx, request: b"x" * SIZE),
    "cached": Handler(lambda ctx, request: b"x" * SIZE, cached=True),
    "a coroutine": Handler(in_a_while),
}


class SilentClient:
    """Sends requests and reads nothing, until `read`."""

    def __init__(self, peer: wire.Peer, requests: int) -> None:
        self.peer = peer
        self._requests = requests

    @classmethod
    async def connect(cls, port: int, request: Callable[[int], bytes], requests: int = REQUESTS) -> SilentClient:
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.connect(("127.0.0.1", port))
        end.setblocking(False)
        peer = wire.Peer(*await asyncio.open_connection(sock=end, limit=1 << 20))
        cast(asyncio.ReadTransport, peer.writer.transport).pause_reading()
        peer.send(b"".join(map(request, range(requests))))
        return cls(peer, requests)

    def read_on(self) -> None:
        self.peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        cast(asyncio.ReadTransport, self.peer.writer.transport).resume_reading()

    async def read(self) -> list[tuple[int, int]]:
        """Correlation id and size of each response, until the last one or the end of the connection."""
        self.read_on()
        responses: list[tuple[int, int]] = []
        while len(responses) < self._requests and (answer := await self.peer.answer()) is not None:
            responses.append((int.from_bytes(answer[:4], "big"), len(answer)))
        self.peer.close()
        return responses


def ask_metadata(correlation_id: int) -> bytes:
    return wire.request(ApiKey.METADATA, 1, correlation_id, messages.MetadataRequest(topics=None))


@asynccontextmanager
async def listening(handler: Handler, limit: int = LIMIT) -> AsyncIterator[Listener]:
    limits = ConnectionLimits()
    limits.unread.limit = limit
    listener = await wire.listen(wire.make_dispatcher(wire.HANDLERS | {ApiKey.METADATA: handler}), limits)
    yield listener
    await listener.close()


def held(listener: Listener) -> int:
    """Bytes of responses in memory."""
    return sum(each._transport.get_write_buffer_size() for each in listener.connections if each._transport is not None)


async def all_asked(listener: Listener, clients: int = CLIENTS) -> None:
    """No client is served any more, because none of them reads."""
    await eventually(
        lambda: sum(bool(each._flow.stops & (UNREAD | IN_FILE)) and not each.busy for each in listener.connections) == clients,
        "every client has got a response that it does not read",
    )


def file_of(listener: Listener, client: SilentClient) -> ResponseFile | None:
    """The file with the responses to this client, if it has one."""
    address, port = client.peer.writer.get_extra_info("sockname")
    files = [each._output._file for each in listener.connections if each.name == f"{address}:{port}"]
    return files[0] if files else None


async def ask(listener: Listener) -> int:
    """Size of the response to another client."""
    peer = await wire.Peer.connect(listener.port)
    peer.send(ask_metadata(7))
    answer = await asyncio.wait_for(peer.answer(), 20)
    peer.close()
    assert answer is not None
    return len(answer)


@pytest.mark.parametrize("kind", HANDLERS)
async def test_unread_responses_of_all_clients_are_held_up_to_the_limit_and_every_client_gets_all(kind: str) -> None:
    async with listening(HANDLERS[kind]) as listener:
        clients = [await SilentClient.connect(listener.port, ask_metadata) for _ in range(CLIENTS)]
        await all_asked(listener)
        assert held(listener) <= LIMIT + SIZE + CLIENTS * (BUFFERED_BYTES + PIECE_BYTES)
        assert await ask(listener) == SIZE + 4
        for client in clients:
            assert await client.read() == [(n, SIZE + 4) for n in range(REQUESTS)]
        await eventually(lambda: not listener.unread.size and not listener.unread.files, "nothing is left in memory and in files")


async def test_a_connection_that_is_closed_sends_what_is_in_its_file_before() -> None:
    async with listening(HANDLERS["at once"], limit=1) as listener:
        clients = [await SilentClient.connect(listener.port, ask_metadata) for _ in range(3)]
        await all_asked(listener, len(clients))
        assert len(listener.unread.files) == 2
        for connection in listener.connections:
            connection.close()
        for client in clients:
            assert await client.read() in [[(n, SIZE + 4) for n in range(count)] for count in range(1, REQUESTS)]
        await eventually(lambda: not listener.connections and not listener.unread.files, "everything is closed")


async def test_small_responses_to_others_are_written_while_the_limit_is_exceeded() -> None:
    async with listening(HANDLERS["at once"], limit=1) as listener:
        clients = [await SilentClient.connect(listener.port, ask_metadata) for _ in range(3)]
        await all_asked(listener, 3)
        peer = await wire.Peer.connect(listener.port)
        peer.send(ask_versions(3) + ask_metadata(4) + ask_versions(5))
        assert await peer.correlation_ids(3) == [3, 4, 5]
        peer.close()
        for client in clients:
            client.peer.close()


async def test_when_files_exceed_their_limit_the_client_that_has_not_read_for_longest_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(HANDLERS["at once"], limit=1) as listener:
        clients = [await SilentClient.connect(listener.port, ask_metadata) for _ in range(3)]
        await all_asked(listener, len(clients))
        first, slow, silent = clients
        assert list(listener.unread.files) == [file_of(listener, slow), file_of(listener, silent)]
        listener.unread.file_limit = listener.unread.size_of_files
        slow.read_on()
        await eventually(lambda: list(listener.unread.files)[:1] == [file_of(listener, silent)], "the second client has read")
        other = await SilentClient.connect(listener.port, ask_metadata)
        await eventually(lambda: any("has not read its responses" in message for message in caplog.messages), "one client is closed")
        assert file_of(listener, silent) is None
        assert listener.unread.size_of_files <= listener.unread.file_limit
        assert await slow.read() == [(n, SIZE + 4) for n in range(REQUESTS)]
        assert await ask(listener) == SIZE + 4
        for client in (first, silent, other):
            client.peer.close()


async def test_a_client_whose_response_cannot_be_written_to_a_file_is_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async with listening(HANDLERS["at once"], limit=1) as listener:
        monkeypatch.setattr("klamm.server.listeners.unread_responses.TemporaryFile", full)
        clients = [await SilentClient.connect(listener.port, ask_metadata) for _ in range(4)]
        await eventually(lambda: sum("No space left on device" in message for message in caplog.messages) >= 1, "its reason is logged")
        await eventually(lambda: len(listener.connections) < 4, "one is closed")
        peer = await wire.Peer.connect(listener.port)
        peer.send(ask_versions(3))
        assert await peer.correlation_ids(1) == [3]
        peer.close()
        for client in clients:
            client.peer.close()


def list_offsets(number: int) -> bytes:
    kind = messages.ListOffsetsRequest
    rows = [kind.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(4 * ROWS)]
    return wire.request(ApiKey.LIST_OFFSETS, 1, number, kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name="u", partitions=rows)]))


def describe_groups(number: int) -> bytes:
    return wire.request(ApiKey.DESCRIBE_GROUPS, 0, number, messages.DescribeGroupsRequest(groups=[f"g{n:060}" for n in range(ROWS)]))


def describe_configs(number: int) -> bytes:
    kind = messages.DescribeConfigsRequest
    rows = [kind.DescribeConfigsResource(resource_type=2, resource_name=f"t{n:060}", configuration_keys=None) for n in range(ROWS)]
    return wire.request(ApiKey.DESCRIBE_CONFIGS, 1, number, kind(resources=rows))


def metadata(number: int) -> bytes:
    kind = messages.MetadataRequest
    topics = [kind.MetadataRequestTopic(name=f"t{n:060}") for n in range(ROWS)]
    return wire.request(ApiKey.METADATA, 4, number, kind(topics=topics, allow_auto_topic_creation=False))


@pytest.mark.slow
@pytest.mark.parametrize("request_of", [metadata, list_offsets, describe_groups, describe_configs])
async def test_unread_responses_of_a_real_broker_are_held_up_to_the_limit(
    request_of: Callable[[int], bytes], zookeeper: str, chroot: str
) -> None:
    cluster = LocalCluster(1, zookeeper=zookeeper + chroot, config={"klamm.unread.responses.bytes": str(LIMIT)})
    await cluster.start()
    try:
        (listener,) = cluster.brokers[0].listeners
        clients = [await SilentClient.connect(listener.port, request_of) for _ in range(4)]
        await all_asked(listener, len(clients))
        assert held(listener) <= LIMIT + SIZE + len(clients) * (BUFFERED_BYTES + PIECE_BYTES)
        for client in clients:
            responses = await client.read()
            assert [number for number, _ in responses] == list(range(REQUESTS))
    finally:
        await cluster.stop()
