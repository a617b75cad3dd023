"""TLS towards clients and brokers, SASL through the proxy, and what it says when a side speaks another protocol."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import klamm
from klamm.journal.columns import Flag
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.proxy import proxy as proxies
from klamm.proxy.proxy import Proxy, ProxyRefused
from klamm.proxy.tls import BrokerTls, ClientTls
from klamm.server.local.made_security import make_security
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.waits import eventually
from klamm.tests.journal.cluster_rows import gaps, rows
from klamm.tests.proxy.clusters import QUICK, OneBroker, asked, frame_of, own_port, proxied, response


def certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 with its key, and the authority that signed it."""
    make_security(folder, "127.0.0.1", tls=True, mechanism=None, now_ms=time.time_ns() // 1_000_000)
    return folder / "broker.pem", folder / "ca.pem"


@pytest.mark.parametrize(("tls", "sasl"), [
    (True, "SCRAM-SHA-256"), pytest.param(True, None, marks=pytest.mark.slow), pytest.param(False, "PLAIN", marks=pytest.mark.slow),
])
def test_clients_of_a_secured_cluster_work_behind_the_proxy_and_no_journal_has_a_password(
    zookeeper: str, chroot: str, tmp_path: Path, tls: bool, sasl: str | None
) -> None:
    """SASL_SSL, SSL and SASL_PLAINTEXT: the proxy has a certificate of its own, and no password."""
    own, authority = certificates(tmp_path / "proxy")
    with klamm.Cluster(1, zookeeper=zookeeper + chroot, topics=["t:1:1"], tls=tls, sasl=sasl, config=QUICK) as cluster:
        client = cluster.client | ({"ssl.ca.location": str(authority)} if tls else {})
        broker_tls = BrokerTls(Path(cluster.client["ssl.ca.location"])) if tls else None
        with klamm.Proxy(
            cluster.bootstrap_servers, journal=tmp_path / "lake", run="one", broker_tls=broker_tls,
            client_tls=ClientTls(own) if tls else None,
        ) as proxy:
            producer = Producer(client | {"bootstrap.servers": proxy.bootstrap_servers})
            producer.produce("t", b"value")
            assert producer.flush(20) == 0
            consumer = Consumer(client | {"bootstrap.servers": proxy.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"})
            consumer.subscribe(["t"])
            message = consumer.poll(20)
            assert message is not None and message.value() == b"value"
            known = {f"{each.host}:{each.port}" for each in consumer.list_topics(timeout=10).brokers.values()}
            assert known.isdisjoint(cluster.bootstrap_servers.split(","))
            consumer.close()
    frames = rows(tmp_path / "lake", "frames")
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP} <= {row["api_key"] for row in frames}
    assert all(count == 1 for count in gaps(tmp_path / "lake").values())
    if sasl is not None:
        secret = cluster.client["sasl.password"].encode()
        tokens = [row for row in frames if row["api_key"] == ApiKey.SASL_AUTHENTICATE]
        assert tokens and all(row["flags"] & Flag.MASKED for row in tokens if row["dir"] == 0)
        assert not any(secret in row["frame"] for row in frames)


async def test_a_broker_whose_certificate_is_not_trusted_is_one_line(tmp_path: Path) -> None:
    own, authority = certificates(tmp_path / "one")
    _, other = certificates(tmp_path / "other")
    async with secured(own) as port:
        with pytest.raises(ProxyRefused, match=r"its certificate is not accepted: .*unable to get"):
            await Proxy([("127.0.0.1", port)], broker_tls=BrokerTls(other)).start()
        for accepted in (BrokerTls(authority), BrokerTls(other, unverified=True), BrokerTls(authority, any_name=True)):
            proxy = Proxy([("127.0.0.1", port)], broker_tls=accepted)
            await proxy.start()
            await proxy.stop()


async def test_certificates_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    none = tmp_path / "none"
    for tls in ({"client_tls": ClientTls(empty)}, {"broker_tls": BrokerTls(empty)}, {"broker_tls": BrokerTls(certificate=none)}):
        with pytest.raises(ProxyRefused, match="cannot be used: "):
            Proxy([("127.0.0.1", 1)], **tls)


@asynccontextmanager
async def secured(own: Path) -> AsyncIterator[int]:
    """A cluster of one broker with TLS; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    cluster = OneBroker()
    server = await asyncio.start_server(cluster.serve, "127.0.0.1", 0, ssl=context)
    cluster.port = server.sockets[0].getsockname()[1]
    yield cluster.port
    server.close()


async def test_a_client_that_ends_its_side_gets_the_last_responses_of_a_broker_with_tls(tmp_path: Path) -> None:
    """TLS has no end of one side: the proxy keeps its connection to the broker until the responses are there."""
    own, authority = certificates(tmp_path)
    async with secured(own) as port:
        proxy = Proxy([("127.0.0.1", port)], broker_tls=BrokerTls(authority))
        await proxy.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        for number in (1, 2):
            writer.write(asked(ApiKey.METADATA, 9, number, messages.MetadataRequest(topics=None)))
        writer.write_eof()
        assert [(await frame_of(reader))[4:8] for _ in range(2)] == [b"\0\0\0\1", b"\0\0\0\2"]
        assert await reader.read() == b""
        writer.close()
        await proxy.stop()


async def test_tls_that_passes_through_is_not_read_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own, authority = certificates(tmp_path / "one")
    async with secured(own) as port:
        with pytest.raises(ProxyRefused, match=r"it speaks TLS, not Kafka's protocol in plain text|it closes the connection"):
            await Proxy([("127.0.0.1", port)]).start()
        proxy = Proxy([("127.0.0.1", port)], is_blind=True)
        await proxy.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy), ssl=ssl.create_default_context(cafile=authority))
        writer.write(asked(ApiKey.METADATA, 9, 1, messages.MetadataRequest(topics=None)))
        found = messages.decode("MetadataResponse", 9, await frame_of(reader), 9)[0]
        assert [row.port for row in found.brokers] == [port]
        writer.close()
        await proxy.stop()
    assert "frames cannot be read" in caplog.text


@pytest.mark.parametrize(("said", "name"), [(b"GET / HTTP/1.1\r\n\r\n", "HTTP"), (b"\x16\x03\x01\x02\x00" + bytes(512), "TLS")])
async def test_a_client_of_another_protocol_is_one_line_and_its_bytes_pass(
    said: bytes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    got = bytearray()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(4)
        if first == b"\0\0\0\x19" or first[:2] == b"\0\0":
            frame = first + await reader.readexactly(int.from_bytes(first, "big"))
            kind = messages.MetadataResponse
            writer.write(response(frame, kind(brokers=[kind.MetadataResponseBroker(5, "127.0.0.1", port)])))
            return
        got.extend(first)
        while len(got) < len(said):
            got.extend(await reader.read(1000))
        writer.write(b"whatever it says")
        writer.close()

    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = Proxy([("127.0.0.1", port)])
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
    writer.write(said)
    assert await reader.read() == b"whatever it says" and bytes(got) == said
    writer.close()
    await proxy.stop()
    server.close()
    assert [record.getMessage() for record in caplog.records if name in record.getMessage()]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP, not Kafka's protocol"), (b"", "it closes the connection without a response"),
        (b"\x7f\xff\xff\xff", "its response has the length 2147483647"), (b"\xff\xff\xff\xff", "its response has the length -1"),
        (b"\0\0\0\x05\0\0\0\0\x01", "ends|short|bytes"),
    ],
)
async def test_an_upstream_that_is_no_broker_is_one_line(answer: bytes, text: str) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    with pytest.raises(ProxyRefused, match=rf"^no broker of the cluster responds: 127.0.0.1:\d+: .*({text})"):
        await Proxy([server.sockets[0].getsockname()[:2]]).start()
    server.close()


async def metadata(host: str, port: int) -> list[tuple[str, int]]:
    """The addresses that a client is told."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(asked(ApiKey.METADATA, 9, 1, messages.MetadataRequest(topics=None)))
    found = messages.decode("MetadataResponse", 9, await frame_of(reader), 9)[0]
    writer.close()
    return [(row.host, row.port) for row in found.brokers]


async def test_a_proxy_that_listens_on_any_address_names_the_one_that_the_client_has_connected_to() -> None:
    async with proxied(host="0.0.0.0") as proxy:
        for host in ("127.0.0.1", "127.0.0.2"):
            assert await metadata(host, own_port(proxy)) == [(host, own_port(proxy))]
        assert proxy.bootstrap == f"127.0.0.1:{own_port(proxy)}"


async def test_a_proxy_names_the_host_that_it_is_told_to_advertise() -> None:
    cluster = OneBroker()
    server = await asyncio.start_server(cluster.serve, "127.0.0.1", 0)
    cluster.port = server.sockets[0].getsockname()[1]
    proxy = Proxy([("127.0.0.1", cluster.port)], ("0.0.0.0", 0), advertised="kafka.example")
    await proxy.start()
    assert await metadata("127.0.0.1", own_port(proxy)) == [("kafka.example", own_port(proxy))]
    assert proxy.bootstrap == f"kafka.example:{own_port(proxy)}"
    await proxy.stop()
    server.close()


class ManyBrokers(OneBroker):
    """Names more brokers in each response."""

    named = 1

    def respond(self, frame: bytes) -> bytes:
        self.named *= 4
        kind = messages.MetadataResponse
        return response(frame, kind(brokers=[kind.MetadataResponseBroker(node, "127.0.0.1", self.port) for node in range(self.named)]))


async def test_a_cluster_cannot_have_any_number_of_listeners_opened(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proxies, "MOST_BROKERS", 8)
    cluster = ManyBrokers()
    server = await asyncio.start_server(cluster.serve, "127.0.0.1", 0)
    cluster.port = server.sockets[0].getsockname()[1]
    proxy = Proxy([("127.0.0.1", cluster.port)])
    await proxy.start()
    port = int(proxy.bootstrap.split(",")[0].rpartition(":")[2])
    for _ in range(2):
        told = await metadata("127.0.0.1", port)
        assert len({each for each in told if each[1] != cluster.port}) == 8
    assert len(proxy.brokers) == 8
    await proxy.stop()
    server.close()
    assert sum("without the proxy: there are 8 listeners already" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(("listen", "named"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("0.0.0.0", "localhost")])
async def test_a_broker_that_names_the_address_of_the_proxy_is_one_line_and_no_circle(
    listen: str, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by another name: a broker in a container often says that it is at localhost:9092."""
    cluster = OneBroker()
    cluster.host = named
    server = await asyncio.start_server(cluster.serve, "127.0.0.1", 0)
    real, cluster.port = server.sockets[0].getsockname()[1], free_port()
    proxy = Proxy([("127.0.0.1", real)], (listen, cluster.port))
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.port)
    assert await reader.read() == b""
    writer.close()
    await proxy.stop()
    server.close()
    said = [record.getMessage() for record in caplog.records if "the address of this proxy" in record.getMessage()]
    assert said == [f"broker 5 has the address of this proxy, {named}:{cluster.port}: its clients would go round in a circle"]


async def test_a_proxy_that_stops_closes_clients_that_wait_for_a_broker() -> None:
    async with proxied() as proxy:
        begun = asyncio.Event()

        async def never(target: object) -> Any:
            begun.set()
            await asyncio.get_running_loop().create_future()

        proxy.upstream.connect = never  # type: ignore[method-assign]
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        await begun.wait()
        await proxy.stop()
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("host", [".kafka", "kafka\0"])
async def test_a_broker_whose_host_cannot_be_one_is_one_line(host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own, _ = certificates(tmp_path)
    async with secured(own) as port:
        proxy = Proxy([("127.0.0.1", port)], broker_tls=BrokerTls(unverified=True))
        await proxy.start()
        next(iter(proxy._doors.values())).target = (host, port)
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        assert await reader.read() == b""
        writer.close()
        await proxy.stop()
    loud = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(loud) == 1 and loud[0].startswith("broker 5 cannot be reached at")


async def test_a_broker_that_leaves_is_one_line_and_one_that_comes_back_elsewhere_is_found(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster = OneBroker()
    first = await asyncio.start_server(cluster.serve, "127.0.0.1", 0)
    cluster.port = first.sockets[0].getsockname()[1]
    proxy = Proxy([("127.0.0.1", cluster.port)])
    await proxy.start()
    door = next(iter(proxy._doors.values()))
    stays, held = await asyncio.open_connection("127.0.0.1", own_port(proxy))
    ask = asked(ApiKey.METADATA, 9, 1, messages.MetadataRequest(topics=None))
    held.write(ask)
    await frame_of(stays)
    first.close()
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        assert await reader.read() == b""
        writer.close()
    second = await asyncio.start_server(cluster.serve, "127.0.0.1", 0)
    cluster.port = second.sockets[0].getsockname()[1]
    held.write(ask)  # over a connection that the old one still has
    await frame_of(stays)
    assert door.target == ("127.0.0.1", cluster.port)
    assert await metadata("127.0.0.1", own_port(proxy)) == [("127.0.0.1", own_port(proxy))]
    held.close()
    await proxy.stop()
    second.close()
    texts = [record.getMessage() for record in caplog.records]
    assert sum("cannot be reached at" in text for text in texts) == 1 and any("can be reached again" in text for text in texts)


async def test_a_journal_whose_disk_is_full_ends_and_clients_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with proxied(tmp_path) as proxy:
        door = next(iter(proxy._doors.values()))
        assert door.journal is not None
        await asyncio.to_thread(door.journal._disk.end, "No space left on device")
        for _ in range(3):
            assert await metadata("127.0.0.1", own_port(proxy)) == [("127.0.0.1", own_port(proxy))]
        await eventually(lambda: (door.journal is not None and door.journal.has_ended) or None, "the journal ends")
    said: list[Any] = [record.getMessage() for record in caplog.records if "No space left on device" in record.getMessage()]
    assert len(said) == 1
