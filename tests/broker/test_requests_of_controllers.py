"""Whatever a controller sends, in any version: a broker answers it or closes the connection, and then it has changed nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.broker.metadata_cache import MetadataCache
from klamm.protocol import messages
from klamm.protocol.errors import ApiError
from klamm.server.apis import leader_and_isr, stop_replica, update_metadata
from klamm.server.requests.context import CloseConnection
from klamm.server.requests.services import Services
from klamm.tests.broker.update_metadata import broker, partition, topic, update
from klamm.tests.protocol import strategies
from klamm.tests.services import make_context, make_services

HANDLERS = {4: leader_and_isr, 5: stop_replica, 6: update_metadata}
VERSIONS = [(key, version) for key in HANDLERS for version in range(messages.APIS[key].min_version, messages.APIS[key].max_version + 1)]
NUMBERS = st.sampled_from((-2, -1, 0, 1, 2, 7))
STRINGS = st.sampled_from(("", "PLAINTEXT", "t", "u"))
IDS = st.sampled_from((bytes(16), bytes(15) + b"\x01", bytes(15) + b"\x02"))


@pytest.fixture(scope="module", autouse=True)
def few_values() -> Any:
    """Numbers, names and ids meet each other, within one request and from one to the next."""
    few = {"int8": NUMBERS, "int16": NUMBERS, "int32": NUMBERS, "int64": NUMBERS, "string": STRINGS, "uuid": IDS}
    with pytest.MonkeyPatch.context() as patch:
        for kind, values in few.items():
            patch.setitem(strategies.NUMBERS, kind, values)
        strategies.message.cache_clear()
        yield
    strategies.message.cache_clear()


def everything(services: Services) -> Any:
    """What the broker knows, to be compared."""
    cache = services.metadata
    topics = {name: (topic.topic_id, dict(topic.partitions)) for name, topic in cache.topics.items()}
    hosted = [(t, p, r.role, r.leader_epoch, r.topic_id, r.leader, r.isr, r.partition_epoch) for t, p, r in services.replicas]
    return cache.brokers, cache.controller_id, topics, dict(cache.topic_ids), cache.generation, services.replicas.controller_epoch, hosted


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_it_is_done_whole_or_not_at_all(data: st.DataObject) -> None:
    cache = MetadataCache(1)
    services = make_services(metadata=cache)
    for key, version in data.draw(st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=4)):
        name = messages.APIS[key].name
        request = data.draw(strategies.message(f"{name}Request", version))
        request, _ = messages.decode(f"{name}Request", version, messages.encode(request, version))
        before = everything(services)
        try:
            response = HANDLERS[key].handle(make_context(services, key, version), request)
        except (ApiError, CloseConnection):
            assert everything(services) == before
        else:
            assert messages.encode(response, version)


async def test_who_waits_for_a_topic_looks_again_before_update_metadata_is_answered() -> None:
    cache = MetadataCache(1)
    services = make_services(metadata=cache, broker_epoch=7)
    waiting = asyncio.ensure_future(services.purgatory.wait(["t"], lambda: cache.leader("t", 0) == 2, 60_000))
    for leader in (1, 2):
        await asyncio.sleep(0)
        assert not waiting.done()
        assert update_metadata.handle(make_context(services, 6, 8), update(topic("t", 1, partition(0, leader)))).error_code == 0
    await asyncio.sleep(0)
    assert waiting.done()
    assert waiting.result()


@pytest.mark.requirement("R183-14")
@pytest.mark.parametrize("version", range(9))
async def test_who_waits_for_a_partition_looks_again_when_it_is_named_in_any_version(version: int) -> None:
    cache = MetadataCache(1)
    services = make_services(metadata=cache, broker_epoch=7)
    told: list[Any] = []

    def look(named: Any) -> bool:
        told.append({name: list(indexes) for name, indexes in named.items()})
        return cache.leader("t", 1) == 2

    waiting = asyncio.ensure_future(services.purgatory.wait_for_partitions({"t": [0, 1], "u": [0]}, look, 60_000))
    await asyncio.sleep(0)
    rows = [partition(index, 2, topic_name="t") for index in (1, 2)]
    named: dict[str, Any] = {"topic_states": [topic("t", 0, *rows)]} if version >= 5 else {"ungrouped_partition_states": rows}
    request = messages.UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=7, live_brokers=[broker(1)], **named)
    received, _ = messages.decode("UpdateMetadataRequest", version, messages.encode(request, version))
    assert update_metadata.handle(make_context(services, 6, version), received).error_code == 0
    await asyncio.sleep(0)
    assert told == [{"t": [0, 1], "u": [0]}, {"t": [1]}]
    assert waiting.done() and waiting.result()
