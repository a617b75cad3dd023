"""Consumers that ask for much and read nothing: all of them together cost a broker little, and consumers that read get their records."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.broker_server import BrokerServer
from klamm.server.fetch.delayed_fetch import ByteBudget
from klamm.server.listeners.connection import BUFFERED_BYTES
from klamm.server.listeners.unread_responses import PIECE_BYTES, SMALL_RESPONSE_BYTES
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.broker.log.batches import batch
from klamm.tests.harness.waits import eventually
from klamm.tests.server import wire

BATCHES, VALUE_BYTES = 20, 500_000
LIMIT = 4 << 20
CLIENTS = 8


@pytest.fixture(params=["memory", "disk"])
async def broker(request: pytest.FixtureRequest, zookeeper: str, chroot: str, tmp_path: Path) -> AsyncIterator[BrokerServer]:
    """A broker with ten megabytes in topic `t`."""
    cluster = LocalCluster(
        1, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 1, 1)], config={"klamm.unread.responses.bytes": str(LIMIT)},
        data_dir=tmp_path if request.param == "disk" else None,
    )
    await cluster.start()
    (one,) = cluster.brokers
    one.services.fetches.budget = ByteBudget(1)  # one client's records are read from disk at a time
    peer = await wire.Peer.connect(one.advertised[0].port)
    for _ in range(BATCHES):
        kind = messages.ProduceRequest
        row = kind.PartitionProduceData(index=0, records=batch(1, VALUE_BYTES))
        produce = kind(acks=1, timeout_ms=5000, topic_data=[kind.TopicProduceData(name="t", partition_data=[row])])
        peer.send(wire.request(ApiKey.PRODUCE, 8, 1, produce))
        assert await peer.answer() is not None
    peer.close()
    yield one
    await cluster.stop()


def fetch(offset: int, number: int = 1) -> bytes:
    kind = messages.FetchRequest
    part = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 30)
    request = kind(max_wait_ms=0, min_bytes=0, max_bytes=1 << 30, topics=[kind.FetchTopic(topic="t", partitions=[part])])
    return wire.request(ApiKey.FETCH, 4, number, request)


async def fetched(peer: wire.Peer, offset: int) -> tuple[int, int]:
    """Size of a response, and how many of the batches it has."""
    peer.send(fetch(offset))
    answer = await peer.answer()
    assert answer is not None
    response: Any = messages.decode("FetchResponse", 4, answer, 4)[0]
    return len(answer), len(response.responses[0].partitions[0].records) // VALUE_BYTES


def silent(port: int) -> socket.socket:
    """A client that sends three fetches and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(fetch(0) * 3)
    return client


async def test_clients_that_do_not_read_cost_little_and_those_that_read_get_all(broker: BrokerServer) -> None:
    port, unread = broker.advertised[0].port, broker.listeners.limits.unread
    reader = await wire.Peer.connect(port)
    size, batches = await fetched(reader, 0)
    assert size > BATCHES * VALUE_BYTES and batches == BATCHES
    await eventually(lambda: unread.size == 0, "the reader has read it")
    clients = [await asyncio.to_thread(silent, port) for _ in range(CLIENTS)]
    await eventually(lambda: len(connections(broker)) > CLIENTS and unread.size > LIMIT, "all are connected, and one has much")
    assert unread.size <= BATCHES * VALUE_BYTES + CLIENTS * 2 * SMALL_RESPONSE_BYTES
    offset = 0
    while offset < BATCHES:
        size, batches = await fetched(reader, offset)
        assert batches >= 1 and size <= SMALL_RESPONSE_BYTES + BUFFERED_BYTES
        offset += batches
    much = [each._output._counted for each in connections(broker) if each._output._counted > BUFFERED_BYTES + PIECE_BYTES]
    assert len(much) == 1, "of the others little is in memory, if the system's buffers do not take it all"
    for client in clients:
        client.close()
    await eventually(lambda: unread.size == 0, "nothing is counted of clients that are gone")
    assert (await fetched(reader, 0))[1] == BATCHES
    reader.close()


def connections(broker: BrokerServer) -> list[Any]:
    return [connection for listener in broker.listeners for connection in listener.connections]
