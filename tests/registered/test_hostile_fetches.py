"""Brokers by request that lie, forge, hurry or never do what they should: each gets its code, nobody else notices (controller 25)."""

from __future__ import annotations

import asyncio
import statistics
import struct
import time

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness import requests
from klamm.tests.harness.client import Client, ConnectionClosed
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.waits import eventually, eventually_asked
from klamm.tests.registered.hostile import (
    FENCED,
    LEAST,
    LEAST_64,
    MOST,
    MOST_64,
    OFFLINE,
    ONLINE,
    SESSION_TIMEOUT_MS,
    Impostor,
    alive,
    cpu_s,
    described,
    floods,
    fresh_id,
    memory_mb,
    payload,
    slowness,
    stored,
)


async def known_on_every_connection(impostor: Impostor) -> None:
    """It registers once more, with a secret."""
    impostor.secret = b"only broker and controller know it"
    await impostor.register()


@pytest.mark.requirement("RREG-3")
async def test_the_id_of_a_broker_whose_connection_is_open_is_refused_to_others(cluster: Cluster, impostor: Impostor) -> None:
    await impostor.to_the_end()
    thief = Impostor(cluster.brokers[0].port, impostor.id)
    response = await thief.register()
    assert (response.error_code, response.broker_epoch, response.state) == (ErrorCode.DUPLICATE_BROKER_REGISTRATION, -1, ONLINE)
    assert stored(cluster, impostor.id)["epoch"] == impostor.epoch
    assert (await impostor.fetch()).error_code == 0
    await thief.client.close()


@pytest.mark.requirement("RREG-7")
@pytest.mark.parametrize("offset", [LEAST_64, -2, -1, 1, 1_000_000, MOST_64])
async def test_a_broker_that_lies_about_its_offset_is_told_so_and_stays_fenced(cluster: Cluster, impostor: Impostor, offset: int) -> None:
    start = await impostor.fetch()
    lie = start.high_watermark + offset if 0 < offset < MOST_64 else offset
    response = await impostor.fetch(lie)
    assert (response.error_code, response.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, None), response
    assert (response.state, response.log_start_offset, response.result_code) == (FENCED, start.log_start_offset, 0)
    assert stored(cluster, impostor.id)["state"] == "FENCED"
    assert impostor.id not in await alive(cluster)


@pytest.mark.requirement("RREG-9")
async def test_a_fetch_with_the_id_of_another_broker_needs_its_epoch(cluster: Cluster, impostor: Impostor) -> None:
    thief = Impostor(cluster.brokers[0].port, impostor.id)
    for epoch in (-1, 0, impostor.epoch - 1, impostor.epoch + 1, LEAST_64, MOST_64):
        thief.epoch = epoch
        response = await thief.fetch()
        assert (response.error_code, response.records) == (ErrorCode.STALE_BROKER_EPOCH, None), (epoch, response)
    for broker_id in (0, 4999, LEAST, MOST, -2):
        thief.id = broker_id
        response = await thief.fetch()
        assert (response.error_code, response.records) == (ErrorCode.BROKER_ID_NOT_REGISTERED, None), (broker_id, response)
        assert response.state == OFFLINE
    await thief.client.close()


@pytest.mark.requirement("RREG-25", "RREG-10")
@pytest.mark.parametrize("secret", [b"", b"only broker and controller know it"], ids=["without a secret", "with a secret"])
async def test_a_stranger_with_the_right_epoch_can_neither_stop_a_broker_nor_be_heard_in_its_place(cluster: Cluster, secret: bytes) -> None:
    broker = Impostor(cluster.brokers[0].port, fresh_id(), secret)
    await broker.register()
    await broker.to_the_end()
    thief = Impostor(cluster.brokers[0].port, broker.id)
    thief.epoch = broker.epoch
    for fields in ({}, {"want_shut_down": True}, {"secret": b"guessed"}, {"secret": b"guessed", "want_shut_down": True}):
        response = await thief.fetch(**fields)
        assert (response.error_code, response.records, response.result_code) == (ErrorCode.STALE_BROKER_EPOCH, None, 0), response
    for version in (2, 3):  # by this request other brokers stop
        answer = await cluster.ask(requests.controlled_shutdown(broker.id, broker.epoch, version), version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert stored(cluster, broker.id)["state"] == "ONLINE"
    response = await broker.fetch()
    assert (response.error_code, response.state) == (0, ONLINE)
    await asyncio.gather(thief.client.close(), broker.client.close())


@pytest.mark.requirement("RREG-25", "RREG-8")
async def test_a_stranger_with_the_right_epoch_does_not_keep_a_dead_broker_online(cluster: Cluster) -> None:
    broker = Impostor(cluster.brokers[0].port, fresh_id(), b"only broker and controller know it")
    await broker.register()
    await broker.to_the_end()
    await broker.client.close()
    thief = Impostor(cluster.brokers[0].port, broker.id, b"guessed")
    thief.epoch = broker.epoch

    async def is_fenced() -> bool:
        assert (await thief.fetch()).error_code == ErrorCode.STALE_BROKER_EPOCH
        return bool(stored(cluster, broker.id)["state"] == "FENCED")

    await eventually_asked(is_fenced, "fenced")
    back = Impostor(cluster.brokers[0].port, broker.id, broker.secret)
    back.epoch = broker.epoch
    assert (await back.to_the_end()).state == ONLINE
    assert stored(cluster, broker.id)["epoch"] == broker.epoch, "it did not have to register again"
    await asyncio.gather(thief.client.close(), back.client.close())


@pytest.mark.requirement("RREG-8")
async def test_a_broker_that_stops_fetching_is_fenced_and_may_come_back(cluster: Cluster, impostor: Impostor) -> None:
    """Not before its session is over; how soon after that is tested on driven clocks, since a controller that stood still waits longer."""
    began = time.monotonic()
    await impostor.to_the_end()
    assert stored(cluster, impostor.id)["state"] == "ONLINE"
    await eventually(lambda: stored(cluster, impostor.id)["state"] == "FENCED", "fenced")
    assert time.monotonic() - began > SESSION_TIMEOUT_MS / 1000
    response = await impostor.to_the_end()
    assert response.state == ONLINE and stored(cluster, impostor.id)["epoch"] == impostor.epoch


@pytest.mark.parametrize("max_bytes", [LEAST, -1, 0, 1, MOST])
async def test_absurd_numbers_of_bytes_give_one_whole_batch_at_least(cluster: Cluster, impostor: Impostor, max_bytes: int) -> None:
    response = await impostor.fetch(max_bytes=max_bytes)
    assert response.error_code == 0 and response.records, response
    assert struct.unpack_from(">q", response.records)[0] == 0, "from the first record on"


@pytest.mark.parametrize("max_wait_ms", [LEAST, -1, 0, MOST])
async def test_absurd_waits_end_after_the_heartbeat_interval_at_most(cluster: Cluster, impostor: Impostor, max_wait_ms: int) -> None:
    response = await impostor.to_the_end()
    async with asyncio.timeout(SESSION_TIMEOUT_MS / 1000):
        while (response := await impostor.fetch(response.high_watermark, max_wait_ms=max_wait_ms)).records:
            pass  # others of this file are fenced meanwhile
    assert response.error_code == 0 and response.records == b""


@pytest.mark.parametrize("controller_epoch", [LEAST, -2, 0, MOST])
async def test_epochs_of_no_controller_are_refused(cluster: Cluster, impostor: Impostor, controller_epoch: int) -> None:
    response = await impostor.fetch(controller_epoch=controller_epoch)
    newer = controller_epoch > cluster.tree.controller_epoch()
    assert response.error_code == (ErrorCode.NOT_CONTROLLER if newer else ErrorCode.FENCED_LEADER_EPOCH), response
    assert response.records is None and stored(cluster, impostor.id)["state"] == "FENCED"


async def test_requests_that_end_too_early_close_their_connection_alone(cluster: Cluster, impostor: Impostor) -> None:
    for message in (messages.MetadataFetchRequest(broker_id=1), messages.RegisterBrokerRequest(broker_id=1, endpoints=[])):
        whole = payload(message)
        for size in range(10, len(whole)):
            client = Client("127.0.0.1", cluster.brokers[0].port)
            with pytest.raises(ConnectionClosed):
                await client.frame(whole[:size])
    assert (await impostor.fetch()).error_code == 0


async def test_a_broker_that_fetches_in_a_tight_loop_is_slowed_and_others_are_not(cluster: Cluster, impostor: Impostor) -> None:
    await known_on_every_connection(impostor)
    response = await impostor.to_the_end()
    other, question = Client("127.0.0.1", cluster.brokers[0].port), requests.metadata([])
    quiet = await slowness(other, question, 12)
    process = cluster.brokers[0].process
    assert process is not None
    end, before = asyncio.Event(), cpu_s(process.pid)
    frame = payload(
        messages.MetadataFetchRequest(
            broker_id=impostor.id,
            broker_epoch=impostor.epoch,
            controller_epoch=response.controller_epoch,
            fetch_offset=response.high_watermark,
            max_wait_ms=0,
            max_bytes=1 << 20,
            want_shut_down=False,
            secret=impostor.secret,
        )
    )
    loop = asyncio.get_running_loop()
    begin = loop.time()
    running = [asyncio.create_task(floods(cluster.brokers[0].port, frame, end)) for _ in range(8)]
    busy = await slowness(other, question, 12)
    end.set()
    answered, lasted = sum(await asyncio.gather(*running)), loop.time() - begin
    used = (cpu_s(process.pid) - before) / lasted
    print(f"\nquiet {described(quiet)}; busy {described(busy)}; {answered / lasted:.0f} fetches/s; CPU {used:.0%}")
    assert answered < 8 * (100 + 20 * lasted) + 100, "each connection has some fetches at once, and 20 a second"
    assert statistics.median(busy) < max(0.02, 5 * statistics.median(quiet))
    await other.close()


async def test_connections_that_close_while_their_fetch_waits_leave_nothing_behind(cluster: Cluster, impostor: Impostor) -> None:
    await known_on_every_connection(impostor)
    response = await impostor.to_the_end()
    request = messages.MetadataFetchRequest(
        broker_id=impostor.id,
        broker_epoch=impostor.epoch,
        controller_epoch=response.controller_epoch,
        fetch_offset=response.high_watermark,
        max_wait_ms=MOST,
        max_bytes=1 << 20,
        want_shut_down=False,
        secret=impostor.secret,
    )
    frame = payload(request)
    process = cluster.brokers[0].process
    assert process is not None

    async def one() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", cluster.brokers[0].port)
        writer.write(struct.pack(">i", len(frame)) + frame)
        await writer.drain()
        writer.close()

    for _ in range(5):
        await asyncio.gather(*(one() for _ in range(100)))
    held = memory_mb(process.pid)
    for _ in range(10):
        await asyncio.gather(*(one() for _ in range(100)))
    assert memory_mb(process.pid) - held < 16
    await impostor.to_the_end()
    await cluster.create([[0]])  # appends to the log: whoever waited is called
    assert (await impostor.to_the_end()).error_code == 0
