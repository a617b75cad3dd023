"""Faults of each effect on each API, at a broker of a running cluster."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from klamm.control.bodies import FaultBody, decode
from klamm.control.history import error_of
from klamm.control.refusal import Refused
from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.server.apis.handlers import handlers_of
from klamm.server.local.arguments import SeedTopic
from klamm.tests.control.every_api import GROUP, ID, TOPIC, example, topic_of
from klamm.tests.harness.waits import eventually_asked

CONFIG = {
    "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1", "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1", "auto.create.topics.enable": "false",
}
CLIENT = "the client"
NUMBER = 77
ERROR = "CLUSTER_AUTHORIZATION_FAILED"


class Socket:
    """A plain connection: sends one request, and reads what comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, key: ApiKey, version: int, request: Any, number: int = NUMBER) -> None:
        self._writer.write(messages.encode_request(key, version, number, CLIENT, messages.encode(request, version)))

    async def frame(self) -> bytes:
        """The payload of the next frame."""
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)

    async def rest(self) -> bytes:
        """What comes until the broker closes the connection. It is reset, and nothing comes, if the broker had not read everything."""
        try:
            return await self._reader.read()
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connected(cluster: SteeredCluster) -> AsyncIterator[Socket]:
    _, host, port = cluster.addresses[0]
    socket = Socket(*await asyncio.open_connection(host, port))
    try:
        yield socket
    finally:
        socket.close()


@asynccontextmanager
async def running(zookeeper: str, chroot: str, brokers: int = 1) -> AsyncIterator[SteeredCluster]:
    cluster = SteeredCluster(brokers, control_port=None, zookeeper=zookeeper + chroot, config=CONFIG, topics=[SeedTopic(TOPIC, 2, 1)])
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def body(**fields: Any) -> FaultBody:
    import msgspec

    return decode(FaultBody, msgspec.json.encode(fields))


def response_of(key: ApiKey, version: int, payload: bytes) -> Any:
    number, offset = messages.decode_response_header(key, version, payload)
    assert number == NUMBER
    return messages.decode(f"{APIS[key].name}Response", version, payload, offset)[0]


def request_of(cluster: SteeredCluster, key: ApiKey, version: int) -> Any:
    return example(key, version, cluster.brokers[0].metadata.topic_id(TOPIC))


def served(cluster: SteeredCluster) -> list[ApiKey]:
    return [ApiKey(key) for key in handlers_of(cluster.brokers[0].config)]


async def the_error(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        assert error_of(response_of(key, version, await socket.frame())) == ERROR
    return True


async def a_delay(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        before = cluster.brokers[0].clock.monotonic()
        socket.send(key, version, request_of(cluster, key, version))
        response_of(key, version, await socket.frame())
        assert cluster.brokers[0].clock.monotonic() - before >= 0.005
    return True


async def nothing(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    (fault,) = cluster.faults
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        await fault.reached()
        socket.send(ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest(), NUMBER + 1)
        cluster.faults.remove(fault.number)
        assert await socket.rest() == b"", "neither this request nor a later one has a response; the end of the fault closes the connection"
    return True


async def closed_before(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        assert await socket.rest() == b""
    return True


async def closed_amid(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        data = await socket.rest()
        assert 4 < len(data) < 4 + int.from_bytes(data[:4], "big")
    return True


async def closed_after(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        data = await socket.rest()
        assert len(data) == 4 + int.from_bytes(data[:4], "big")
        response_of(key, version, data[4:])
    return True


async def corrupt(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        payload = await socket.frame()
        response_of(key, version, payload[:4] + bytes(byte ^ 0xFF for byte in payload[4:]))
    return True


async def truncated(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        assert len(await socket.frame()) == 5
    return True


async def other_number(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        assert int.from_bytes((await socket.frame())[:4], "big") == NUMBER + 5
    return True


async def lost(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        socket.send(ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest(), NUMBER + 1)
        assert int.from_bytes((await socket.frame())[:4], "big") == NUMBER + 1, "the connection goes on"
    return True


async def throttled(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    fields = messages.message_type(f"{APIS[key].name}Response").schema.root.fields
    if not any(field.attribute == "throttle_time_ms" for field in fields):
        return False
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        assert response_of(key, version, await socket.frame()).throttle_time_ms == 321
    return True


async def with_tags(cluster: SteeredCluster, key: ApiKey, version: int) -> bool:
    api, at = APIS[key], 4
    if not api.is_flexible(version):
        return False
    async with connected(cluster) as socket:
        socket.send(key, version, request_of(cluster, key, version))
        payload = await socket.frame()
        response_of(key, version, payload)
        if api.response_header_version(version) == 1:
            assert payload[at : at + len(TAG)] == TAG
        root = messages.message_type(f"{api.name}Response").schema.root
        assert payload.endswith(TAG) or any(field.is_tagged(version) for field in root.fields)
    return True


Reaction = Callable[[SteeredCluster, ApiKey, int], Coroutine[Any, Any, bool]]
TAG = b"\x01\xe7\x07\x05klamm"
EFFECTS: dict[str, tuple[dict[str, Any], Reaction]] = {
    "error": ({"error": ERROR}, the_error),
    "delay": ({"delay_ms": 5}, a_delay),
    "drop": ({"drop": True}, nothing),
    "close before": ({"close": "before"}, closed_before),
    "close amid": ({"close": "amid"}, closed_amid),
    "close after": ({"close": "after"}, closed_after),
    "corrupt": ({"corrupt": True}, corrupt),
    "truncate": ({"truncate": 5}, truncated),
    "correlation id": ({"correlation_id": 5}, other_number),
    "lose the response": ({"lose_response": True}, lost),
    "throttle time": ({"throttle_time_ms": 321}, throttled),
    "values": ({"values": {"throttleTimeMs": 321}}, throttled),
    "unknown tags": ({"unknown_tags": True}, with_tags),
}


@pytest.mark.parametrize("effect", EFFECTS)
async def test_an_effect_happens_to_each_api(zookeeper: str, chroot: str, effect: str) -> None:
    given, happens = EFFECTS[effect]
    async with running(zookeeper, chroot) as cluster:
        for key in served(cluster):
            api = APIS[key]
            for direction in ("request", "response"):
                wanted = {"api": api.name, "client_id": CLIENT, "direction": direction}
                try:
                    number = (await cluster.control.add_fault(body(filter=wanted, effect=given, first=1)))["id"]
                except Refused:
                    assert not await happens(cluster, key, api.max_version), f"{api.name} can carry this"
                    continue
                fault = cluster.faults[number]
                try:
                    async with asyncio.timeout(30):
                        assert await happens(cluster, key, api.max_version)
                except Exception as error:
                    raise AssertionError(f"{api.name}, {direction}: {error!r}") from error
                assert fault.hits == 1, api.name
                await cluster.control.delete_faults()


BY_NAME = """
Produce topic
Fetch topic
ListOffsets topic
Metadata topic
LeaderAndIsr topic
StopReplica topic
UpdateMetadata topic
CreateTopics topic
DeleteTopics topic
InitProducerId transactional_id
OffsetForLeaderEpoch topic
DeleteRecords topic
CreateAcls topic
DescribeConfigs topic
AlterConfigs topic
CreatePartitions topic
ElectLeaders topic
IncrementalAlterConfigs topic
AlterPartitionReassignments topic
AlterPartition topic
AlterReplicaLogDirs topic
DescribeProducers topic
FindCoordinator group
JoinGroup group
SyncGroup group
Heartbeat group
LeaveGroup group
OffsetCommit topic group
OffsetFetch topic group
OffsetDelete topic group
DescribeGroups group
DeleteGroups group
ConsumerGroupHeartbeat group
ConsumerGroupDescribe group
AddPartitionsToTxn topic transactional_id
AddOffsetsToTxn group transactional_id
EndTxn transactional_id
WriteTxnMarkers topic
EndPendingTransactions topic
TxnOffsetCommit topic group transactional_id
DescribeTransactions transactional_id
ReassignPartitions topic
AlterInterbrokerThrottledReplicas topic
"""


async def coordinated(cluster: SteeredCluster) -> None:
    """Wait until the broker coordinates the group and the transactional id."""
    group = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    transactional = messages.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
    for request in (group, transactional):
        await answered(cluster, ApiKey.FIND_COORDINATOR, request)
    for key in (ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.INIT_PRODUCER_ID):
        await answered(cluster, key, request_of(cluster, key, APIS[key].max_version))


async def answered(cluster: SteeredCluster, key: ApiKey, request: Any) -> None:
    async def is_answered() -> bool:
        return not str(error_of(await asked(cluster, key, request))).startswith(("COORDINATOR_", "NOT_COORDINATOR"))

    await eventually_asked(is_answered, f"{APIS[key].name} is answered by a coordinator")


async def asked(cluster: SteeredCluster, key: ApiKey, request: Any) -> Any:
    async with connected(cluster) as socket:
        socket.send(key, APIS[key].max_version, request)
        return response_of(key, APIS[key].max_version, await socket.frame())


async def test_an_error_is_where_the_filter_says_and_nowhere_else(zookeeper: str, chroot: str) -> None:
    """Each API whose requests name a topic, a group or a transactional id gets the error by that name, and not by another."""
    seen: dict[str, list[str]] = {}
    async with running(zookeeper, chroot) as cluster:
        await coordinated(cluster)
        for key in served(cluster):
            api, request = APIS[key], request_of(cluster, key, APIS[key].max_version)
            for name, value in (("topic", topic_of(key)), ("group", GROUP), ("transactional_id", ID)):
                try:
                    number = (await cluster.control.add_fault(body(filter={"api": api.name, name: value}, effect={"error": ERROR})))["id"]
                except Refused:
                    continue
                response = await asked(cluster, key, request)
                if cluster.faults[number].hits and error_of(response) == ERROR:
                    seen.setdefault(api.name, []).append(name)
                await cluster.control.delete_faults()
                await cluster.control.add_fault(body(filter={"api": api.name, name: "else"}, effect={"error": ERROR}))
                assert error_of(await asked(cluster, key, request)) != ERROR, f"{api.name} by another {name}"
                await cluster.control.delete_faults()
    assert {name: names for name, *names in map(str.split, BY_NAME.strip().splitlines())} == seen
