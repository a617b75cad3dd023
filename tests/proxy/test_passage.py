"""One connection through a proxy: clients that authenticate with SASL, that end their side, and whose broker is newer than the proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from klamm.journal.columns import Flag
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.proxy.proxy import Proxy
from klamm.tests.harness.waits import eventually
from klamm.tests.journal.cluster_rows import rows
from klamm.tests.proxy.clusters import SECRET, Metadata, asked, frame_of, own_port, proxied, response


def large_metadata(number: int) -> bytes:
    topics = [messages.MetadataRequest.MetadataRequestTopic(name=f"topic-{n}" * 9) for n in range(2000)]
    return asked(ApiKey.METADATA, 9, number, messages.MetadataRequest(topics=topics))


async def test_a_client_that_authenticates_stays_behind_the_proxy_with_large_requests_and_its_password_is_in_no_journal(
    tmp_path: Path,
) -> None:
    async with proxied(tmp_path) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        for frame in (
            asked(ApiKey.SASL_HANDSHAKE, 1, 1, messages.SaslHandshakeRequest(mechanism="PLAIN")),
            asked(ApiKey.SASL_AUTHENTICATE, 2, 2, messages.SaslAuthenticateRequest(auth_bytes=SECRET)),
        ):
            writer.write(frame)
            await frame_of(reader)
        request = large_metadata(3)
        assert len(request) > 1 << 16
        writer.write(request)
        found = messages.decode("MetadataResponse", 9, await frame_of(reader), 9)[0]
        assert [row.port for row in found.brokers] == [own_port(proxy)]
        writer.close()
    frames = rows(tmp_path, "frames")
    assert not [row for row in frames if b"password" in row["frame"] or row["flags"] & Flag.RAW_TOKEN]
    assert [row["frame"] for row in frames if row["api_key"] == ApiKey.METADATA and row["dir"] == 0] == [request]


async def test_a_client_that_ends_its_side_gets_the_last_responses() -> None:
    async with proxied() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        writer.write(large_metadata(1) + large_metadata(2))
        writer.write_eof()
        said = await reader.read()
        assert [said[4:8], said[len(said) // 2 + 4 :][:4]] == [b"\0\0\0\1", b"\0\0\0\2"]
        writer.close()


async def test_clients_use_no_version_that_the_proxy_cannot_read() -> None:
    async with proxied() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        writer.write(asked(ApiKey.API_VERSIONS, 3, 1, messages.ApiVersionsRequest(client_software_name="a", client_software_version="1")))
        found = messages.decode("ApiVersionsResponse", 3, await frame_of(reader), 8)[0]
        assert [(row.api_key, row.min_version, row.max_version) for row in found.api_keys] == [(ApiKey.METADATA, 0, 13)]
        writer.close()


async def test_an_address_that_passes_is_an_error_in_the_log_after_sasl_too(caplog: pytest.LogCaptureFixture) -> None:
    async with proxied() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        for frame in (
            asked(ApiKey.SASL_HANDSHAKE, 1, 1, messages.SaslHandshakeRequest(mechanism="PLAIN")),
            asked(ApiKey.SASL_AUTHENTICATE, 2, 2, messages.SaslAuthenticateRequest(auth_bytes=SECRET)),
        ):
            writer.write(frame)
            await frame_of(reader)
        writer.write(b"\0\0\0\x0a\0\3\0\x63\0\0\0\7\xff\xff")
        writer.write_eof()
        await reader.read()
        writer.close()
    assert "a response to version 99 of API 3 passes with the addresses of the brokers" in caplog.text


async def test_an_address_of_ipv6_is_in_brackets() -> None:
    async with proxied(host="::1") as proxy:
        assert proxy.bootstrap == f"[::1]:{own_port(proxy)}"


async def test_a_broker_at_a_name_that_cannot_be_one_closes_the_connections_of_its_clients(caplog: pytest.LogCaptureFixture) -> None:
    async with proxied() as proxy:
        next(iter(proxy._doors.values())).target = ("a" * 70, 70_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        assert await reader.read() == b""
        writer.close()
    assert "broker 5 cannot be reached at " in caplog.text


async def test_a_client_that_does_not_read_holds_its_broker_and_nobody_else() -> None:
    """What waits in the proxy for one connection is bounded, whatever the broker sends."""
    sent = 0

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        frame = await frame_of(reader)
        if frame[4:6] == b"\0\3":
            writer.write(response(frame, Metadata(brokers=[Metadata.MetadataResponseBroker(5, "127.0.0.1", port)])))
            return
        writer.write((2**31 - 1).to_bytes(4, "big") + frame[8:12])  # a response of 2 GB
        while True:
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent += 1 << 20

    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = Proxy([("127.0.0.1", port)])
    await proxy.start()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy), limit=1024)
        writer.write(asked(ApiKey.LIST_GROUPS, 0, 1, messages.ListGroupsRequest()))
        seen: list[int] = []

        def stands() -> bool | None:
            seen.append(sent)
            return (sent > 0 and seen[-20:] == [sent] * 20) or None

        await eventually(stands, "the broker is held")
        assert sent < 64 << 20
        reader, other = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        other.write(asked(ApiKey.METADATA, 9, 1, messages.MetadataRequest(topics=None)))
        found = messages.decode("MetadataResponse", 9, await frame_of(reader), 9)[0]
        assert [row.port for row in found.brokers] == [own_port(proxy)]
        writer.close()
        other.close()
    finally:
        await proxy.stop()
        server.close()


async def test_a_broker_that_does_not_read_holds_its_client_and_nobody_else() -> None:
    """What waits in the proxy for one connection is bounded, whatever the client sends."""

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await frame_of(reader)
        if frame[4:6] == b"\0\3":
            writer.write(response(frame, Metadata(brokers=[Metadata.MetadataResponseBroker(5, "127.0.0.1", port)])))
            writer.close()

    server = await asyncio.start_server(broker, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]
    proxy = Proxy([("127.0.0.1", port)])
    await proxy.start()
    _reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
    writer.write(asked(ApiKey.LIST_GROUPS, 0, 1, messages.ListGroupsRequest()) + b"\x7f\xff\xff\xff")  # then a request of 2 GB
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent += 1 << 20

    sending = asyncio.ensure_future(send())
    seen: list[int] = []

    def stands() -> bool | None:
        seen.append(sent)
        return (sent > 0 and seen[-20:] == [sent] * 20) or None

    try:
        await eventually(stands, "the client is held")
        assert sent < 64 << 20
        other, asking = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        asking.write(asked(ApiKey.METADATA, 9, 1, messages.MetadataRequest(topics=None)))
        assert messages.decode("MetadataResponse", 9, await frame_of(other), 9)[0].brokers[0].port == own_port(proxy)
        asking.close()
    finally:
        sending.cancel()
        writer.close()
        await proxy.stop()
        server.close()


@pytest.mark.parametrize("size", [1, 3, 7, 100, 1 << 20])
async def test_responses_pass_in_whatever_pieces_they_come(size: int) -> None:
    """One without addresses, one with, one after another with addresses, one that is too short to have a correlation id, and a last one."""
    sent = asyncio.Event()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = [await frame_of(reader)]
        if requests[0][4:6] == b"\0\3":
            writer.write(response(requests[0], Metadata(brokers=[Metadata.MetadataResponseBroker(5, "127.0.0.1", port)])))
            return
        requests += [await frame_of(reader) for _ in range(4)]
        known = Metadata(brokers=[Metadata.MetadataResponseBroker(5, "127.0.0.1", port)])
        lists = [response(each, messages.ListGroupsResponse()) for each in (requests[0], requests[4])]
        said = b"".join([lists[0], response(requests[1], known), response(requests[2], known), b"\0\0\0\2ab", lists[1], b"\0\0"])
        writer.transport.set_write_buffer_limits(0)
        for start in range(0, len(said), size):
            writer.write(said[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)
        sent.set()
        writer.close()

    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = Proxy([("127.0.0.1", port)])
    await proxy.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", own_port(proxy))
        for number, key in enumerate((ApiKey.LIST_GROUPS, ApiKey.METADATA, ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.LIST_GROUPS), 1):
            message = messages.MetadataRequest(topics=None) if key is ApiKey.METADATA else messages.ListGroupsRequest()
            writer.write(asked(key, 1 if key is ApiKey.METADATA else 0, number, message))
        frames = [await frame_of(reader) for _ in range(5)]
        assert [frame[4:8] for frame in frames] == [b"\0\0\0\1", b"\0\0\0\2", b"\0\0\0\3", b"ab", b"\0\0\0\5"]
        for frame in frames[1:3]:
            found = messages.decode("MetadataResponse", 1, frame, 8)[0]
            assert [row.port for row in found.brokers] == [own_port(proxy)]
        assert await reader.read() == b"\0\0" and sent.is_set()
        writer.close()
    finally:
        await proxy.stop()
        server.close()
