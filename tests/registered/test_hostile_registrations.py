"""Registrations that cannot be, that are of others, that come again and again: each gets its code, nobody else notices (controller 25)."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.tests.harness import requests
from klamm.tests.harness.client import Client
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.waits import eventually_asked
from klamm.tests.registered.hostile import (
    ENDPOINT,
    LEAST,
    MOST,
    OFFLINE,
    ONLINE,
    Impostor,
    alive,
    cpu_s,
    described,
    fresh_id,
    memory_mb,
    slowness,
    stored,
)


@pytest.mark.requirement("RREG-3", "RREG-2")
@pytest.mark.parametrize(
    "fields",
    [
        {"broker_id": -1},
        {"broker_id": LEAST},
        {"endpoints": []},
        {"endpoints": [ENDPOINT(port=9092, host="a", listener="A", security_protocol=0), ENDPOINT(9093, "b", "A", 0)]},
        {"endpoints": [ENDPOINT(port=-1, host="a", listener="A", security_protocol=0)]},
        {"endpoints": [ENDPOINT(port=65536, host="a", listener="A", security_protocol=0)]},
        {"endpoints": [ENDPOINT(port=MOST, host="a", listener="A", security_protocol=0)]},
        {"endpoints": [ENDPOINT(port=9092, host="a", listener="A", security_protocol=4)]},
        {"endpoints": [ENDPOINT(port=9092, host="a", listener="A", security_protocol=-1)]},
        {"endpoints": [ENDPOINT(port=9092, host="a", listener="OTHER", security_protocol=0)]},
        {"rack_id": ""},
        {"rack_id": "a\0b"},
    ],
    ids=lambda fields: next(iter(fields)) if len(str(fields)) < 25 else str(fields)[-40:-3],
)
async def test_a_registration_that_cannot_be_is_refused_and_writes_nothing(cluster: Cluster, fields: dict[str, Any]) -> None:
    one = Impostor(cluster.brokers[0].port, fresh_id())
    before = cluster.tree.children("/cluster/brokers")
    response = await one.register(**fields)
    assert (response.error_code, response.broker_epoch, response.state) == (ErrorCode.INVALID_REQUEST, -1, OFFLINE), response
    assert response.error_message
    log = cluster.brokers[0].log.read_text(errors="replace")
    broker_id = fields.get("broker_id", one.id)
    said = f"the registration of broker {broker_id} from 127.0.0.1 is refused: INVALID_REQUEST, {response.error_message}"
    assert log.count(said) == 1 and (await one.register(**fields)).error_code == ErrorCode.INVALID_REQUEST
    assert cluster.tree.children("/cluster/brokers") == before
    await one.client.close()


@pytest.mark.requirement("RREG-3")
async def test_the_id_of_a_broker_in_zookeeper_is_refused(cluster: Cluster) -> None:
    fake = await cluster.fake()
    for broker_id in (0, fake.id):
        one = Impostor(cluster.brokers[0].port, broker_id)
        response = await one.register()
        assert (response.error_code, response.broker_epoch, response.state) == (ErrorCode.DUPLICATE_BROKER_REGISTRATION, -1, OFFLINE)
        assert stored(cluster, broker_id) == {}
        await one.client.close()
    assert {0, fake.id} <= await alive(cluster)


@pytest.mark.requirement("RREG-8", "RREG-6")
async def test_a_broker_that_never_fetches_stays_fenced_and_gets_no_partition_to_lead(cluster: Cluster, impostor: Impostor) -> None:
    topic = cluster.topic_name()
    assert await cluster.create_code([[impostor.id, 0]], None, topic) in (0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert impostor.id not in await alive(cluster)
    if cluster.tree.assignment(topic):
        assert await cluster.shown_leader(topic) == 0
    # and when its session is over nothing has changed: another one under the same id may register
    next_one = Impostor(cluster.brokers[0].port, impostor.id)

    async def registers() -> bool:
        return (await next_one.register()).error_code == 0

    await eventually_asked(registers, "the session is over")
    assert stored(cluster, impostor.id) | {"settings": None} == {"version": 1, "epoch": 2, "state": "FENCED", "settings": None}
    await next_one.client.close()


async def test_a_broker_that_registers_over_and_over_gets_an_epoch_each_time_and_no_more(cluster: Cluster, impostor: Impostor) -> None:
    process = cluster.brokers[0].process
    assert process is not None
    for _ in range(20):
        await impostor.register()
    held, epoch = memory_mb(process.pid), impostor.epoch
    for _ in range(200):
        assert (await impostor.register()).error_code == 0
    assert impostor.epoch == epoch + 200 == stored(cluster, impostor.id)["epoch"]
    assert memory_mb(process.pid) - held < 16
    assert (await impostor.to_the_end()).state == ONLINE


@pytest.mark.slow
async def test_a_thousand_ids_that_nobody_is_behind_slow_nobody(cluster: Cluster) -> None:
    port = cluster.brokers[0].port
    process = cluster.brokers[0].process
    assert process is not None
    other, question = Client("127.0.0.1", port), requests.metadata([])
    quiet, held = await slowness(other, question, 12), memory_mb(process.pid)
    one = Impostor(port, 0)
    running = asyncio.create_task(slowness(other, question, 12, 300))
    for _ in range(1000):
        one.id = fresh_id()
        assert (await one.register()).error_code == 0
    busy = await running
    loop = asyncio.get_running_loop()
    begin, before = loop.time(), cpu_s(process.pid)
    after = await slowness(other, question, 12, 400)
    used = (cpu_s(process.pid) - before) / (loop.time() - begin)
    grown = memory_mb(process.pid) - held
    print(f"\nquiet {described(quiet)}; busy {described(busy)}; after {described(after)}, CPU {used:.0%}; {grown:.0f} MB more")
    assert grown < 100
    assert statistics.median(busy) < 0.05 and statistics.median(after) < max(0.02, 5 * statistics.median(quiet))
    await one.client.close()
    await other.close()
