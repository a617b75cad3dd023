"""Fetch requests of one connection that differ in their offset only have the responses of requests that the codec decodes."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.server.apis.handlers import HANDLERS
from klamm.server.metrics.metrics import Metrics
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.update_metadata import update
from klamm.tests.server.fetch.fetch_world import FETCH, World, fetch, part, topic_id

CORRELATION_ID = 0x12345678


def frame(request: Any, version: int) -> bytes:
    return messages.encode_request(FETCH, version, CORRELATION_ID, "client", messages.encode(request, version))[4:]


async def world_with_records() -> World:
    world = World()
    world.host("t", 2)
    await world.append("t", *[batch(1, 100) for _ in range(10)])
    return world


def fresh() -> Peer:
    """A client whose requests have not been seen yet."""
    return Peer("PLAINTEXT", "127.0.0.1", ResponseCache())


@pytest.mark.parametrize("version", range(4, 18))
async def test_a_repeated_request_has_the_response_of_the_first_one(version: int) -> None:
    world = await world_with_records()
    dispatcher = Dispatcher(world.services, HANDLERS)
    for size in (1, 400, 1 << 20):
        for offset in (*range(10), 3, 10, 11, -1, 2**62):
            payload = frame(fetch({"t": [part(0, offset, max_bytes=size)]}, version=version), version)
            response = dispatcher.begin(world.peer, payload)
            assert isinstance(response, bytes)
            assert response == dispatcher.begin(fresh(), payload)
            assert world.peer.repeated.find(payload) is not None


async def test_a_repeated_fetch_counts_once_in_the_metrics() -> None:
    world = await world_with_records()
    counted: list[tuple[bool, int]] = []
    metrics = Metrics(lambda by_follower, rows: counted.append((by_follower, len(rows))))
    world.services = dataclasses.replace(world.services, metrics=metrics)
    dispatcher = Dispatcher(world.services, HANDLERS)
    for offset in (3, 4):
        dispatcher.begin(world.peer, frame(fetch({"t": [part(0, offset)]}), 17))
    assert counted == [(False, 1), (False, 1)]


async def test_a_change_of_the_partition_is_seen_at_once() -> None:
    world = await world_with_records()
    dispatcher = Dispatcher(world.services, HANDLERS)
    payload = frame(fetch({"t": [part(0, 9)]}), 17)
    before = dispatcher.begin(world.peer, payload)
    world.host("t", epoch=1, leader=2, replicas=(2,), isr=(2,))
    world.delete("t", 0)
    after = dispatcher.begin(world.peer, payload)
    assert after == dispatcher.begin(fresh(), payload)
    assert after != before


async def test_a_topic_that_the_metadata_cache_does_not_know_any_more_is_unknown() -> None:
    world = await world_with_records()
    dispatcher = Dispatcher(world.services, HANDLERS)
    payload = frame(fetch({"t": [part(0, 9)]}, version=12), 12)
    before = dispatcher.begin(world.peer, payload)
    known = messages.UpdateMetadataRequest
    gone = known.UpdateMetadataPartitionState(partition_index=0, leader=-2, leader_epoch=-2, isr=(), replicas=(), offline_replicas=())
    named = known.UpdateMetadataTopicState(topic_name="t", topic_id=topic_id("t"), partition_states=[gone])
    world.replicas.handle_update_metadata(update(named, brokers=world.brokers()), 1)
    assert world.replica("t").log_end_offset == 10, "the replica is there still"
    after = dispatcher.begin(world.peer, payload)
    assert after == dispatcher.begin(fresh(), payload)
    assert after != before


async def test_a_repeated_request_waits_until_there_are_records() -> None:
    world = await world_with_records()
    dispatcher = Dispatcher(world.services, HANDLERS)
    payload = frame(fetch({"t": [part(0, 10)]}, max_wait_ms=10_000), 17)
    world.peer.repeated.learn(payload, *decoded(payload))
    task: asyncio.Future[Any] = asyncio.ensure_future(dispatcher.begin(world.peer, payload))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await world.append("t")
    response = await task
    assert response == dispatcher.begin(fresh(), payload)
    assert isinstance(response, bytes) and response[4:8] == CORRELATION_ID.to_bytes(4, "big")


def decoded(payload: bytes) -> tuple[messages.RequestHeader, Any]:
    header, start = messages.decode_request_header(payload)
    return header, messages.decode("FetchRequest", header.api_version, payload, start)[0]
