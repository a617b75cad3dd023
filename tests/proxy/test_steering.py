"""Faults and the history of a proxy: requests of clients to a cluster that is not ours meet them as those of our brokers do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

import klamm
from klamm.control.bodies import EffectBody, FaultBody, FilterBody
from klamm.control.client import ControlClient, ControlFailed
from klamm.control.refusal import Refused
from klamm.control.verbs.proxy_verbs import PROXY_ROUTES, ProxyControl
from klamm.control.verbs.routes import ROUTES
from klamm.control.verbs.steered_proxy import SteeredProxy
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.proxy.proxy import ProxyRefused
from klamm.testing.proxies.blocking_proxy import BlockingProxy
from klamm.tests.harness.waits import eventually
from klamm.tests.journal.cluster_rows import rows
from klamm.tests.proxy.clusters import QUICK, OneBroker, asked, frame_of, own_port


@asynccontextmanager
async def steered(lake: Path | None = None, **options: Any) -> AsyncIterator[tuple[SteeredProxy, OneBroker]]:
    cluster = OneBroker()
    server = await asyncio.start_server(cluster.serve, "127.0.0.1", 0)
    cluster.port = server.sockets[0].getsockname()[1]
    proxy = SteeredProxy([("127.0.0.1", cluster.port)], ("127.0.0.1", 0), lake, "one", **options)
    await proxy.start()
    try:
        yield proxy, cluster
    finally:
        await proxy.stop()
        server.close()


async def connected(proxy: SteeredProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", own_port(proxy))


def metadata(number: int) -> bytes:
    return asked(ApiKey.METADATA, 9, number, messages.MetadataRequest(topics=None))


async def add(proxy: SteeredProxy, **effect: Any) -> int:
    direction = effect.pop("direction", "request")
    limits = {name: effect.pop(name) for name in ("first", "after") if name in effect}
    body = FaultBody(filter=FilterBody(api="Metadata", direction=direction), effect=EffectBody(**effect), **limits)
    number: int = (await proxy.control.add_fault(body))["id"]
    return number


async def test_a_request_is_hit_wherever_its_bytes_end_and_those_around_it_pass_in_order() -> None:
    """Requests in pieces, some before the fault is added; the second is hit, the others are not."""
    stream = metadata(1) + metadata(2) + metadata(3) + asked(ApiKey.API_VERSIONS, 0, 4, messages.ApiVersionsRequest())
    async with steered() as (proxy, _):
        for first in (1, 3, 5, 20, len(metadata(1))):
            reader, writer = await connected(proxy)
            writer.write(stream[:first])
            await asyncio.sleep(0)
            number = await add(proxy, throttle_time_ms=77, first=1, after=1)
            for start in range(first, len(stream), 7):
                writer.write(stream[start : start + 7])
                await writer.drain()
            frames = [await frame_of(reader) for _ in range(4)]
            assert [int.from_bytes(frame[4:8], "big") for frame in frames] == [1, 2, 3, 4]
            throttled = [messages.decode("MetadataResponse", 9, frame, 9)[0].throttle_time_ms for frame in frames[:3]]
            hit = 77 in throttled
            assert sorted(throttled) == [0, 0, 77 if hit else 0] and hit == (proxy.control.fault_numbered(number).hits == 1)
            await proxy.control.delete_fault(number)
            writer.close()


@pytest.mark.parametrize("effect", [{"throttle_time_ms": 1}, {"values": {"controllerId": 9}}])
async def test_a_request_that_cannot_be_read_passes_by_faults_that_need_its_response_as_a_message(effect: dict[str, Any]) -> None:
    async with steered() as (proxy, _):
        number = await add(proxy, **effect)
        reader, writer = await connected(proxy)
        writer.write(messages.encode_request(ApiKey.METADATA, 99, 1, "c", b""))
        assert (await frame_of(reader))[4:8] == (1).to_bytes(4, "big")
        assert proxy.control.fault_numbered(number).hits == 0
        writer.close()


@pytest.mark.parametrize("length", range(-5, 0))
async def test_a_negative_length_passes_while_there_are_faults(length: int) -> None:
    """Also one that says that the frame ends before its length, or with it."""
    async with steered() as (proxy, _):
        await add(proxy, throttle_time_ms=1)
        reader, writer = await connected(proxy)
        writer.write(length.to_bytes(4, "big", signed=True))
        writer.write_eof()
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    ("effect", "rest"),
    [
        ({"close": "before"}, b""), ({"close": "before", "direction": "response"}, b""),
        ({"close": "amid"}, None), ({"close": "after"}, None),
    ],
)
async def test_a_fault_closes_the_connection_of_the_client(effect: dict[str, Any], rest: bytes | None) -> None:
    async with steered() as (proxy, _):
        await add(proxy, **effect)
        reader, writer = await connected(proxy)
        writer.write(metadata(1) + metadata(2))
        said = await reader.read()
        whole = 4 + int.from_bytes(said[:4], "big") if said else 0
        assert said == rest if rest is not None else len(said) == (whole if effect["close"] == "after" else whole // 2)
        writer.close()


async def test_a_response_may_be_late_corrupt_cut_or_lost_and_the_next_one_is_whole() -> None:
    async with steered() as (proxy, _):
        reader, writer = await connected(proxy)
        writer.write(metadata(1))
        whole = await frame_of(reader)
        for effect, expected in (
            ({"corrupt": True}, whole[:4] + b"\0\0\0\2" + bytes(byte ^ 0xFF for byte in whole[8:])),
            ({"correlation_id": 5}, whole[:4] + b"\0\0\0\7" + whole[8:]),
            ({"truncate": 10}, b"\0\0\0\x0a" + b"\0\0\0\2" + whole[8:14]),
            ({"lose_response": True}, b""), ({"delay_ms": 1}, whole[:4] + b"\0\0\0\2" + whole[8:]),
        ):
            number = await add(proxy, **effect, first=1)
            writer.write(metadata(2) + metadata(3))
            if expected:
                assert await frame_of(reader) == expected
            assert await frame_of(reader) == whole[:4] + b"\0\0\0\3" + whole[8:]
            assert (await proxy.control.fault(number))["hits"] == 1
            await proxy.control.delete_fault(number)
        writer.close()


async def test_a_dropped_request_hangs_until_its_client_goes_or_the_fault_is_removed_and_the_broker_never_has_it(tmp_path: Path) -> None:
    async with steered(tmp_path) as (proxy, _):
        number = await add(proxy, drop=True, first=2)
        (_, first), (reader, second) = await connected(proxy), await connected(proxy)
        first.write(metadata(1))
        second.write(metadata(1))
        await proxy.control.fault(number, hits=2)
        assert len(proxy._passages) == 2
        first.close()
        await eventually(lambda: len(proxy._passages) == 1 or None, "the connection of the client that went ends")
        await proxy.control.delete_fault(number)
        assert await reader.read() == b""
        second.close()
        shown = (await proxy.control.requests(api="Metadata"))["requests"]
        assert [row["response"] for row in shown] == [None, None]
    assert not [row for row in rows(tmp_path, "frames") if row["api_key"] == ApiKey.METADATA]


async def test_secrets_are_not_in_the_history_and_tokens_meet_no_fault() -> None:
    async with steered() as (proxy, _):
        await proxy.control.add_fault(FaultBody(effect=EffectBody(corrupt=True), filter=FilterBody(api="Metadata")))
        reader, writer = await connected(proxy)
        for frame in (
            asked(ApiKey.SASL_HANDSHAKE, 1, 1, messages.SaslHandshakeRequest(mechanism="PLAIN")),
            asked(ApiKey.SASL_AUTHENTICATE, 2, 2, messages.SaslAuthenticateRequest(auth_bytes=b"\0alice\0a-password")),
        ):
            writer.write(frame)
            await frame_of(reader)
        writer.close()
        text = json.dumps(await proxy.control.requests())
        assert "SaslAuthenticate" in text and b"a-password".hex() not in text and "a-password" not in text


async def test_a_proxy_that_cannot_start_listens_nowhere() -> None:
    proxy = SteeredProxy([("127.0.0.1", 1)], control_port=0)
    with pytest.raises(ProxyRefused):
        await proxy.start()
    assert proxy.control_url is not None
    with pytest.raises(ControlFailed, match="cannot reach the control API"):
        await asyncio.to_thread(ControlClient(proxy.control_url).get, "faults")


def test_the_table_of_verbs_is_that_of_the_control_api_and_what_a_proxy_cannot_do_is_refused_by_name() -> None:
    assert [(route.method, route.path) for route in PROXY_ROUTES] == [(route.method, route.path) for route in ROUTES]
    can = {route.act.__name__ for route in PROXY_ROUTES if route.act.__name__ != "refuse"}
    assert can == {"faults", "add_fault", "fault", "delete_faults", "delete_fault", "requests", "reset"}
    for route, own in zip(ROUTES, PROXY_ROUTES, strict=True):
        if own.act.__name__ in can:
            assert (route.body, route.query, route.names) == (own.body, own.query, own.names), route.path


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"filter": FilterBody(principal="User:a")}, "a proxy does not know principal of a request"),
        ({"filter": FilterBody(from_broker=1)}, "does not know from_broker"), ({"filter": FilterBody(broker=9)}, "there is no broker 9"),
        ({"effect": EffectBody(slow_disk_ms=5)}, "a proxy has no disks"), ({"effect": EffectBody()}, "the effect is empty"),
    ],
)
async def test_a_fault_that_a_proxy_cannot_have_is_refused(wanted: dict[str, Any], text: str) -> None:
    async with steered() as (proxy, _):
        with pytest.raises(Refused, match=text):
            await proxy.control.add_fault(FaultBody(**({"effect": EffectBody(drop=True)} | wanted)))


def test_a_program_steers_it_over_http(zookeeper: str, chroot: str) -> None:
    with klamm.Cluster(1, zookeeper=zookeeper + chroot) as cluster, klamm.Proxy(cluster.bootstrap_servers, control_port=0) as proxy:
        assert proxy.control_url is not None
        client = ControlClient(proxy.control_url)
        number = client.post("faults", body={"filter": {"api": "Metadata"}, "effect": {"delay_ms": 1}})["id"]
        Producer({"bootstrap.servers": proxy.bootstrap_servers}).list_topics(timeout=10)
        assert client.get("faults", number, hits=1)["hits"] >= 1
        assert client.get("requests", api="Metadata")["requests"][0]["api"] == "Metadata"
        assert client.delete("faults")["deleted"] == 1 and client.get("faults")["faults"] == []
        with pytest.raises(ControlFailed, match=r"a proxy cannot do POST /clock/freeze \(.*\): it has no brokers"):
            client.post("clock", "freeze")


@pytest.fixture
def proxied(zookeeper: str, chroot: str) -> Iterator[BlockingProxy]:
    with klamm.Cluster(2, zookeeper=zookeeper + chroot, topics=["orders:3:1", "other:1:1"], config=QUICK) as cluster:
        with klamm.Proxy(cluster.bootstrap_servers) as proxy:
            yield proxy


def test_a_client_meets_errors_of_a_part_of_its_requests_and_the_rest_is_done(proxied: BlockingProxy) -> None:
    """An error for one partition: a retriable one that the client survives, then one that it reports; other partitions are written."""
    producer = Producer({"bootstrap.servers": proxied.bootstrap_servers, "linger.ms": 50, "retry.backoff.ms": 10})
    with proxied.fault(api="Produce", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER", first=2) as fault:
        for partition in range(3):
            producer.produce("orders", b"value", partition=partition)
        assert producer.flush(20) == 0 and fault.hits == 2
        fault.wait(2)
        assert {hit.api for hit in fault.last} == {"Produce"}  # type: ignore[union-attr]
    refused = proxied.requests(api="Produce", error="NOT_LEADER_OR_FOLLOWER")
    assert len(refused) == 2 and refused[0].response.responses[0].name == "orders"
    failed: list[Any] = []
    with proxied.fault(api="Produce", topic="orders", error="INVALID_RECORD"):
        producer.produce("orders", b"value", partition=0, on_delivery=lambda error, _: failed.append(error))
        producer.produce("other", b"value", partition=0, on_delivery=lambda error, _: failed.append(error))
        producer.flush(20)
    assert sorted(str(each and each.name()) for each in failed) == ["INVALID_RECORD", "None"]
    proxied.clear()
    consumer = Consumer({"bootstrap.servers": proxied.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read = [message.partition() for _ in range(3) if (message := consumer.poll(20)) is not None and message.error() is None]
    assert sorted(str(each) for each in read) == ["0", "1", "2"]
    consumer.close()


def test_a_coordinator_that_is_not_available_and_a_late_response_are_what_the_client_sees(proxied: BlockingProxy) -> None:
    with proxied.fault(api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", first=1) as refused:
        consumer = Consumer({"bootstrap.servers": proxied.bootstrap_servers, "group.id": "g2", "auto.offset.reset": "earliest"})
        consumer.subscribe(["other"])
        consumer.poll(0.1)
        refused.wait(1)
    begun = time.monotonic()
    with proxied.fault(api="ListOffsets", delay_ms=300):
        consumer.get_watermark_offsets(klamm_partition("other"), timeout=10)
        assert time.monotonic() - begun >= 0.3
    with proxied.fault(api="ListOffsets", error="TOPIC_AUTHORIZATION_FAILED"), pytest.raises(KafkaException):
        consumer.get_watermark_offsets(klamm_partition("other"), timeout=2)
    consumer.close()


def klamm_partition(topic: str) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(topic, 0)


async def test_the_face_for_asyncio_has_the_same_methods(zookeeper: str, chroot: str) -> None:
    async with klamm.Cluster(1, zookeeper=zookeeper + chroot) as cluster, klamm.Proxy(cluster.bootstrap_servers) as proxy:
        with await proxy.fault(api="Metadata", delay_ms=1) as fault:
            await asyncio.to_thread(lambda: Producer({"bootstrap.servers": proxy.bootstrap_servers}).list_topics(timeout=10))
            await fault.wait()
        assert (await proxy.requests(api="Metadata"))[0].api == "Metadata"
        await proxy.clear()
    assert ProxyControl.reset.__doc__
