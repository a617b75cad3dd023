"""Requests that are large: whatever one client asks for, others are served meanwhile, and the answer is the one it always was."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from klamm.benchmarks.stalls import CASES, COORDINATED, Case, Size
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.apis import delete_topics
from klamm.server.broker_server import BrokerServer
from klamm.server.listeners.listener import Listener
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.requests.dispatch import LARGE_REQUEST_BYTES, Handler
from klamm.tests.server import wire
from klamm.tests.server.turns import Turns

SIZE = Size(entries=20_000, partitions=400)
HEARTBEATS = 20_000
LONG = (
    "CreateTopics, many topics",
    "CreatePartitions, many topics",
    "DescribeConfigs, unknown topics",
    "AlterConfigs, unknown topics",
    "IncrementalAlterConfigs, unknown topics",
    "Metadata, unknown topics",
    "DeleteTopics, unknown topics",
    "ElectLeaders, unknown partitions",
    "ElectLeaders, unknown topics",
    "ListPartitionReassignments, unknown",
    "AlterPartitionReassignments, each partition",
    "AlterPartitionReassignments, unknown partitions",
    "Produce, unknown partitions",
    "ReassignPartitions, unknown partitions",
    "AlterInterbrokerThrottledRates, unknown brokers",
    "AlterInterbrokerThrottledReplicas, unknown partitions",
)
LONG_LISTS_OF_GROUPS = tuple(case.name for case in COORDINATED if not case.name.startswith("JoinGroup, a megabyte"))


@pytest.fixture
async def controller(zookeeper: str, chroot: str) -> AsyncIterator[BrokerServer]:
    """The controller of a cluster that has the topics of the benchmark."""
    topics = [SeedTopic(name, partitions, 3) for name, partitions in SIZE.topics.items()]
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, topics=topics)
    await cluster.start()
    yield next(node for node in cluster.brokers if node.controller.is_active)
    await cluster.stop()


def frame(case: Case, size: Size) -> bytes:
    message = case.make(size)
    key = next(api.key for api in messages.APIS.values() if f"{api.name}Request" == type(message).__name__)
    return wire.request(key, case.version, 1, message)


@pytest.mark.parametrize("names", [LONG, pytest.param(LONG_LISTS_OF_GROUPS, marks=pytest.mark.slow)], ids=["cluster", "groups"])
async def test_a_long_list_leaves_the_loop_to_others(controller: BrokerServer, names: tuple[str, ...]) -> None:
    peer = await wire.Peer.connect(controller.advertised[0].port)
    size = SIZE._replace(broker_id=controller.id, broker_epoch=controller.broker_epoch)
    stalls = {}
    cases = {case.name: case for case in CASES}
    for name in names:
        request = frame(cases[name], size)
        async with Turns() as turns:
            peer.send(request)
            assert await peer.answer() is not None, name
        if turns.has_stalled:
            stalls[name] = f"{turns.longest:.3f} of {turns.total:.3f} s"
    peer.close()
    assert stalls == {}


async def test_a_flood_of_heartbeats_leaves_the_loop_to_others(controller: BrokerServer) -> None:
    peer = await wire.Peer.connect(controller.advertised[0].port)
    heartbeat = messages.HeartbeatRequest(group_id="flood", generation_id=1, member_id="m")
    flood = b"".join(wire.request(ApiKey.HEARTBEAT, 4, number, heartbeat) for number in range(HEARTBEATS))
    async with Turns() as turns:
        peer.send(flood)
        assert await peer.correlation_ids(HEARTBEATS) == list(range(HEARTBEATS))
    peer.close()
    assert not turns.has_stalled, f"{turns.longest:.3f} of {turns.total:.3f} s"


LARGE = messages.DeleteTopicsRequest(topic_names=[f"topic-{i}" for i in range(LARGE_REQUEST_BYTES // 8)], timeout_ms=1)


async def test_answers_of_large_and_small_requests_come_in_their_order(
    serve: Callable[..., Awaitable[Listener]], connect: Callable[..., Awaitable[wire.Peer]]
) -> None:
    async def refuse(ctx: Any, request: Any) -> Any:
        row = messages.DeleteTopicsResponse.DeletableTopicResult
        return messages.DeleteTopicsResponse(responses=[row(name=name, error_code=41) for name in request.topic_names])

    listener = await serve({ApiKey.DELETE_TOPICS: Handler(refuse)})
    peer = await connect(listener.port)
    small = messages.MetadataRequest(topics=None)
    requests = [wire.request(3, 1, 0, small), wire.request(20, 5, 1, LARGE), wire.request(3, 1, 2, small), wire.request(20, 5, 3, LARGE)]
    peer.send(b"".join(requests))
    for number in range(4):
        answer = await peer.answer()
        assert answer is not None
        correlation_id, at = messages.decode_response_header(20 if number % 2 else 3, 5 if number % 2 else 1, answer)
        assert correlation_id == number
        if number % 2:
            response, _ = messages.decode("DeleteTopicsResponse", 5, answer, at)
            assert [(row.name, row.error_code) for row in response.responses] == [(name, 41) for name in LARGE.topic_names]


async def test_a_large_request_that_is_cut_closes_its_connection_with_one_line(
    serve: Callable[..., Awaitable[Listener]], connect: Callable[..., Awaitable[wire.Peer]], caplog: pytest.LogCaptureFixture
) -> None:
    listener = await serve({ApiKey.DELETE_TOPICS: Handler(delete_topics.handle)})
    peer = await connect(listener.port)
    whole = wire.request(20, 5, 1, LARGE)
    cut = whole[4:-9]
    with caplog.at_level(logging.INFO):
        peer.send(wire.request(3, 1, 0, messages.MetadataRequest(topics=None)) + len(cut).to_bytes(4, "big") + cut)
        assert await peer.correlation_ids(1) == [0]
        assert await peer.answer() is None
    lines = [record.getMessage() for record in caplog.records if "closing connection" in record.getMessage()]
    assert len(lines) == 1
    assert "DeleteTopicsRequest 5 is cut short" in lines[0]


async def test_a_fault_with_a_large_request_is_answered_for_each_entry(
    serve: Callable[..., Awaitable[Listener]], connect: Callable[..., Awaitable[wire.Peer]]
) -> None:
    def fail(ctx: Any, request: Any) -> Any:
        raise ZeroDivisionError

    listener = await serve({ApiKey.DELETE_TOPICS: Handler(fail, delete_topics.refuse)})
    peer = await connect(listener.port)
    peer.send(wire.request(20, 5, 1, LARGE))
    answer = await peer.answer()
    assert answer is not None
    response, _ = messages.decode("DeleteTopicsResponse", 5, answer, messages.decode_response_header(20, 5, answer)[1])
    assert {row.error_code for row in response.responses} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len(response.responses) == len(LARGE.topic_names)
