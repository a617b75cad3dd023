"""Fetch requests that differ in their offset only have the same responses as from the handler, without being decoded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.server.fetch.repeated_fetch import RepeatedFetch
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.requests.handlers import HANDLERS
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


@pytest.mark.parametrize("version", range(4, 18))
async def test_a_repeated_request_has_the_response_of_the_handler(version: int) -> None:
    world = await world_with_records()
    repeated = RepeatedFetch(world.services)
    plain = Dispatcher(world.services, {FETCH: HANDLERS[FETCH]._replace(repeated=None)})
    for offset in (*range(10), 3, 10, 11, -1, 2**62):
        for size in (1, 400, 1 << 20):
            payload = frame(fetch({"t": [part(0, offset, max_bytes=size)]}, version=version), version)
            response = repeated(world.peer, payload)
            assert (response is not None) == (version >= 10 and 0 <= offset <= 10)
            if response is not None:
                assert response == plain.begin(world.peer, payload)


@pytest.mark.parametrize(
    "fields",
    [
        {"session": (0, 0)}, {"session": (5, -1)}, {"isolation_level": 1}, {"replica_id": 2}, {"forget": {"t": [1]}}, {"topics": 2},
        {"last": 0},
    ],
)
async def test_other_requests_are_left_to_the_handler(fields: dict[str, Any]) -> None:
    world = await world_with_records()
    fields = dict(fields)
    partitions = [part(0, 1, last=fields.pop("last", -1))]
    topics = {"t": partitions} if fields.pop("topics", 1) == 1 else {"t": partitions, "u": [part()]}
    assert RepeatedFetch(world.services)(world.peer, frame(fetch(topics, version=12, **fields), 12)) is None


async def test_a_change_of_the_partition_is_seen_at_once() -> None:
    world = await world_with_records()
    repeated = RepeatedFetch(world.services)
    payload = frame(fetch({"t": [part(0, 9)]}), 17)
    assert repeated(world.peer, payload) is not None
    world.host("t", epoch=1, leader=2, replicas=(2,), isr=(2,))
    world.delete("t", 0)
    assert repeated(world.peer, payload) is None
    for cut in range(len(payload)):
        assert repeated(world.peer, payload[:cut]) is None


async def test_a_topic_that_the_metadata_cache_does_not_know_any_more_is_left_to_the_handler() -> None:
    world = await world_with_records()
    repeated = RepeatedFetch(world.services)
    payload = frame(fetch({"t": [part(0, 9)]}, version=12), 12)
    assert repeated(world.peer, payload) is not None
    known = messages.UpdateMetadataRequest
    gone = known.UpdateMetadataPartitionState(partition_index=0, leader=-2, leader_epoch=-2, isr=(), replicas=(), offline_replicas=())
    named = known.UpdateMetadataTopicState(topic_name="t", topic_id=topic_id("t"), partition_states=[gone])
    world.replicas.handle_update_metadata(update(named, brokers=world.brokers()), 1)
    assert world.replica("t").log_end_offset == 10, "the replica is there still"
    assert repeated(world.peer, payload) is None


async def test_a_request_that_waits_is_left_to_the_handler_until_there_are_records() -> None:
    world = await world_with_records()
    dispatcher = Dispatcher(world.services, HANDLERS)
    payload = frame(fetch({"t": [part(0, 10)]}, max_wait_ms=10_000), 17)
    task: asyncio.Future[Any] = asyncio.ensure_future(dispatcher.begin(world.peer, payload))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await world.append("t")
    response = await task
    assert response == dispatcher.begin(world.peer, payload)
    assert isinstance(response, bytes) and response[4:8] == CORRELATION_ID.to_bytes(4, "big")
