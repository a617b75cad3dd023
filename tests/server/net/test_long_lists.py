"""A request with a long list, whatever its API, leaves the loop to others: each array of each API in turn."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.primitives import FEW_TAGS, write_uvarint
from klamm.server.apis.handlers import HANDLERS
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.server import wire
from klamm.tests.server.net.long_lists import LongList, long_lists
from klamm.tests.server.turns import Turns

ENTRIES = 30_000
STALLED_ONCE = (
    (ApiKey.ADD_PARTITIONS_TO_TXN, ("transactions",)),
    (ApiKey.WRITE_TXN_MARKERS, ("markers",)),
    (ApiKey.CREATE_TOPICS, ("topics",)),
    (ApiKey.CREATE_PARTITIONS, ("topics",)),
    (ApiKey.DELETE_TOPICS, ("topics",)),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, ("topics",)),
    (ApiKey.FIND_COORDINATOR, ("coordinator_keys",)),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ("topics", "partitions", "replicas")),
)
RESPONSE_S = 20


@pytest.fixture
async def ports(zookeeper: str, chroot: str) -> AsyncIterator[list[int]]:
    """The controller's port and that of another broker."""
    topics = [SeedTopic("n0", 1, 1), SeedTopic("n1", 1, 1)]
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, topics=topics, config={"auto.create.topics.enable": "false"})
    await cluster.start()
    brokers = sorted(cluster.brokers, key=lambda broker: not broker.controller.is_active)
    yield [broker.advertised[0].port for broker in brokers]
    await cluster.stop()


def newest_and_oldest(key: int) -> tuple[int, ...]:
    api = messages.APIS[key]
    return tuple(dict.fromkeys((api.max_version, api.min_version)))


async def stalls(port: int, lists: Iterable[LongList]) -> dict[str, str]:
    """The requests during which the loop did nothing else for long."""
    stalled = {}
    for each in lists:
        request = wire.request(each.api.key, each.version, 1, each.message(ENTRIES))
        peer = await wire.Peer.connect(port)
        async with Turns() as turns:
            peer.send(request)
            async with asyncio.timeout(RESPONSE_S):
                await peer.answer()
        peer.close()
        if turns.has_stalled:
            stalled[str(each)] = f"{turns.longest:.3f} of {turns.total:.3f} s"
    return stalled


async def test_lists_that_once_stalled_all_clients_leave_the_loop_to_others(ports: list[int]) -> None:
    lists = [
        each
        for key, path in STALLED_ONCE
        for each in long_lists(messages.APIS[key], newest_and_oldest(key)[:1])
        if each.path == path and not each.is_full and (each.is_same or key == ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    ]
    assert {each.api.key for each in lists} == {key for key, _ in STALLED_ONCE}
    assert [await stalls(port, lists) for port in ports] == [{}, {}]


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: messages.APIS[key].name)
async def test_each_long_list_of_each_api_leaves_the_loop_to_others(ports: list[int], key: int) -> None:
    lists = list(long_lists(messages.APIS[key], newest_and_oldest(key)))
    for port in ports if lists else ():
        assert await stalls(port, lists) == {}


def header_with_tags(tags: int, key: int = ApiKey.API_VERSIONS, version: int = 3, field: bytes = b"\1\0") -> bytes:
    return struct.pack(">hhihc", key, version, 1, 1, b"x") + write_uvarint(tags) + field * tags


def test_tagged_fields_of_a_header_are_skipped_and_many_of_them_only_if_the_caller_has_the_time() -> None:
    for tags in (FEW_TAGS, FEW_TAGS + 1, 100_000):
        header = header_with_tags(tags)
        assert messages.decode_request_header(header)[1] == len(header)
        assert messages.decode_request_header(header, FEW_TAGS)[1] == (len(header) if tags <= FEW_TAGS else -1)
    with pytest.raises(RemoteProtocolError, match="cut short"):
        messages.decode_request_header(header_with_tags(100_000)[:-1])


@pytest.mark.parametrize(("version", "field"), [(3, b"\1\0"), (3, b"\xff\1\0"), (99, b"\7\1x")])
async def test_a_header_with_many_tagged_fields_gets_its_response_and_leaves_the_loop_to_others(
    ports: list[int], version: int, field: bytes
) -> None:
    """As in Kafka: only the frame limits their number."""
    body = messages.encode(messages.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    payload = header_with_tags(600_000, version=version, field=field) + body
    peer = await wire.Peer.connect(ports[0])
    async with Turns() as turns:
        peer.send(len(payload).to_bytes(4, "big") + payload)
        async with asyncio.timeout(RESPONSE_S):
            answer = await peer.answer()
        assert answer is not None and answer[:4] == b"\0\0\0\1" and answer[4:6] == (b"\0\0" if version == 3 else b"\0\x23")
    assert not turns.has_stalled, f"{turns.longest:.3f} of {turns.total:.3f} s"
    cut = payload[: -len(body) - 1]
    peer.send(len(cut).to_bytes(4, "big") + cut)
    assert await peer.answer() is None


async def test_a_body_with_many_tagged_fields_gets_its_response_and_leaves_the_loop_to_others(ports: list[int]) -> None:
    body = messages.encode(messages.MetadataRequest(topics=[]), 12)
    assert body[-1:] == b"\0"
    payload = header_with_tags(0, ApiKey.METADATA, 12) + body[:-1] + write_uvarint(600_000) + b"\x50\0" * 600_000
    peer = await wire.Peer.connect(ports[0])
    async with Turns() as turns:
        peer.send(len(payload).to_bytes(4, "big") + payload)
        async with asyncio.timeout(RESPONSE_S):
            assert (await peer.answer() or b"")[:4] == b"\0\0\0\1"
    assert not turns.has_stalled, f"{turns.longest:.3f} of {turns.total:.3f} s"
    peer.close()


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: messages.APIS[key].name)
def test_each_long_list_of_each_api_is_read_as_it_was_written(key: int) -> None:
    """Runs of equal rows have ways of their own through the decoder, rows without bytes too."""
    api = messages.APIS[key]
    for version in range(api.min_version, api.max_version + 1):
        for each in long_lists(api, (version,)):
            message = each.message(6)
            encoded = messages.encode(message, version)
            decoded, end = messages.decode(f"{api.name}Request", version, encoded)
            assert (messages.encode(decoded, version), end) == (encoded, len(encoded)), str(each)
