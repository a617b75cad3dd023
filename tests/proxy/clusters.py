"""A cluster of one broker that is made for tests of the proxy, what a client sends to it, and clients of librdkafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.proxy.proxy import Proxy

QUICK = {"group.initial.rebalance.delay.ms": 0}
Metadata, Versions = messages.MetadataResponse, messages.ApiVersionsResponse
SECRET = b"\0alice\0a-password-of-alice"


def response(frame: bytes, message: Any) -> bytes:
    """The response with this message to the request in a frame."""
    header, _ = messages.decode_request_header(frame[4:])
    body = messages.encode(message, header.api_version)
    return messages.encode_response(header.api_key, header.api_version, header.correlation_id, body)


async def frame_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big"))


class OneBroker:
    """One broker that responds as Kafka does, to what is asked here."""

    def __init__(self) -> None:
        self.port = 0
        self.host = "127.0.0.1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await frame_of(reader)
                writer.write(self.respond(frame))
        except asyncio.IncompleteReadError:
            writer.close()

    def respond(self, frame: bytes) -> bytes:
        match int.from_bytes(frame[4:6], "big"):
            case ApiKey.METADATA if frame[6:8] == b"\0\x63":
                return b"\0\0\0\4" + frame[8:12]
            case ApiKey.METADATA:
                return response(frame, Metadata(brokers=[Metadata.MetadataResponseBroker(5, self.host, self.port)], cluster_id="c"))
            case ApiKey.API_VERSIONS:
                return response(frame, Versions(api_keys=[Versions.ApiVersion(ApiKey.METADATA, 0, 99)]))
            case ApiKey.SASL_HANDSHAKE:
                return response(frame, messages.SaslHandshakeResponse(mechanisms=["PLAIN"]))
            case ApiKey.SASL_AUTHENTICATE:
                return response(frame, messages.SaslAuthenticateResponse())
            case other:
                raise AssertionError(f"API {other}")


@asynccontextmanager
async def proxied(lake: Path | None = None, host: str = "127.0.0.1") -> AsyncIterator[Proxy]:
    cluster = OneBroker()
    server = await asyncio.start_server(cluster.serve, "127.0.0.1", 0)
    cluster.port = server.sockets[0].getsockname()[1]
    proxy = Proxy([("127.0.0.1", cluster.port)], (host, 0), lake, "one")
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
        server.close()


def own_port(proxy: Proxy) -> int:
    return int(proxy.bootstrap.rpartition(":")[2])


def asked(key: int, version: int, number: int, message: Any) -> bytes:
    return messages.encode_request(key, version, number, "c", messages.encode(message, version))


def write_and_read(bootstrap: str) -> tuple[list[bytes], set[str]]:
    """The values that a group reads after they were written, and the addresses of brokers that the clients know."""
    producer = Producer({"bootstrap.servers": bootstrap})
    values = [f"{number}".encode() for number in range(30)]
    for value in values:
        producer.produce("t", value, partition=int(value) % 3)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    read: list[bytes] = []
    while len(read) < len(values):
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        read.append(message.value() or b"")
    known = {f"{each.host}:{each.port}" for each in consumer.list_topics(timeout=10).brokers.values()}
    consumer.close()
    return sorted(read, key=int), known


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


BY_LIBRDKAFKA = {"K-03"}
"""Rules that librdkafka breaks: its Metadata request for all topics has three bytes behind its body."""
