"""Clients of a cluster work behind a proxy, never see an address of a broker, and a journal has everything that they said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import klamm
from klamm.journal.columns import Direction
from klamm.pipeline.quick.check import check_quickly
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.proxy.proxy import Proxy, ProxyRefused
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.ports import free_port
from klamm.tests.journal.cluster_rows import gaps, rows
from klamm.tests.proxy.clusters import BY_LIBRDKAFKA, address, write_and_read


async def test_clients_work_behind_a_proxy_and_its_journal_has_what_they_said(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 3, 2)])
    await cluster.start()
    proxy = Proxy([("127.0.0.1", free_port()), address(cluster.bootstrap_servers.split(",")[0])], lake=tmp_path, run="one")
    try:
        await proxy.start()
        behind = set(proxy.bootstrap.split(","))
        assert len(behind) == 2 and behind.isdisjoint(cluster.bootstrap_servers.split(","))
        values, known = await asyncio.to_thread(write_and_read, proxy.bootstrap.split(",")[0])
        assert values == [f"{number}".encode() for number in range(30)] and known == behind
    finally:
        await proxy.stop()
        await cluster.stop()
    assert gaps(tmp_path) == {1: 1, 2: 1}  # the number before the first row stands for what came before the proxy
    assert {verdict.rule for verdict in check_quickly(tmp_path).judgement.verdicts} <= BY_LIBRDKAFKA
    frames = rows(tmp_path, "frames")
    said = {(row["api_key"], row["dir"]) for row in frames}
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP):
        assert {(key, Direction.REQUEST_IN), (key, Direction.RESPONSE_OUT)} <= said
    assert {row["listener"] for row in frames} == {"PROXY"} and {row["node_id"] for row in frames} == {1, 2}
    by_seq = {(row["node_id"], row["seq"]): row for row in frames}
    answered = [row for row in frames if row["dir"] == Direction.RESPONSE_OUT]
    assert answered and all(by_seq[row["node_id"], row["cause_seq"]]["correlation_id"] == row["correlation_id"] for row in answered)


async def test_bytes_that_the_proxy_does_not_know_pass_as_they_are() -> None:
    """An unknown API and version, an answer in pieces, and a length that is none."""
    unknown = b"\x00\x00\x00\x0c\x03\xe7\x00\x63\x00\x00\x00\x07\xff\xffab"
    answer = b"\x00\x00\x27\x14" + b"\0\0\0\7" + bytes(range(250)) * 40 + b"\xff\xff\xff\xffrest"
    got: list[bytes] = []

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(4)
        frame = head + await reader.readexactly(int.from_bytes(head, "big"))
        if frame[4:6] == b"\0\3":
            kind: Any = messages.MetadataResponse
            body = kind(brokers=[kind.MetadataResponseBroker(5, "127.0.0.1", server.sockets[0].getsockname()[1])], cluster_id="c")
            writer.write(messages.encode_response(ApiKey.METADATA, 2, 0, messages.encode(body, 2)))
        else:
            got.append(frame)
            for start in range(0, len(answer), 3000):
                writer.write(answer[start : start + 3000])
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(broker, "127.0.0.1", 0)
    proxy = Proxy([server.sockets[0].getsockname()[:2]])
    await proxy.start()
    try:
        reader, writer = await asyncio.open_connection(*address(proxy.bootstrap))
        for start in range(0, len(unknown), 5):
            writer.write(unknown[start : start + 5])
            await writer.drain()
        assert await reader.read() == answer and got == [unknown]
        writer.close()
    finally:
        await proxy.stop()
        server.close()


async def test_a_cluster_that_does_not_respond_is_one_line() -> None:
    with pytest.raises(ProxyRefused, match=r"^no broker of the cluster responds: 127.0.0.1:\d+: "):
        await Proxy([("127.0.0.1", free_port())]).start()


def test_the_name_of_a_run_without_a_journal_is_refused() -> None:
    with pytest.raises(ValueError, match="run is the name of a journal's run: it needs journal"):
        klamm.Proxy("kafka:9092", run="one")
