"""RegisterBroker and MetadataFetch over the wire, byte by byte: who may send them, who answers, where they are unknown (controller 25)."""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import BROKER_SOFTWARE
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.metadata_records import decode_records
from klamm.server.local.cluster import LocalCluster
from klamm.server.security.authorizer import Operation
from klamm.tests.harness.client import Client, ConnectionClosed
from klamm.tests.server.brokers import request
from klamm.tests.server.registered_brokers import split
from klamm.tests.services import Denying, make_services, respond

ENDPOINT = messages.RegisterBrokerRequest.Endpoint(port=9, host="h", listener="PLAINTEXT", security_protocol=0)
REGISTER = messages.RegisterBrokerRequest(broker_id=9, rack_id=None, endpoints=[ENDPOINT])
FETCH = messages.MetadataFetchRequest(9, 1, -1, 0, 0, 1 << 20, False)
ON = {"registerbroker.enable": "on"}


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


@pytest.fixture
async def cluster(zookeeper: str, chroot: str) -> AsyncIterator[LocalCluster]:
    one = LocalCluster(2, zookeeper=zookeeper + chroot, config=ON)
    await one.start()
    yield one
    await one.stop()


@pytest.mark.requirement("RREG-1")
async def test_both_requests_and_responses_have_the_bytes_of_the_specification_and_unknown_tags_are_ignored(cluster: LocalCluster) -> None:
    controller = split(cluster)[0]
    client = Client(controller.advertised[0].host, controller.advertised[0].port)
    tags = b"\x01\x63\x03tag"  # one tag, number 99, three bytes
    header = b"\x00\x00" + int32(77) + b"\x00\x04mine" + tags  # version, correlation id, client id, tags
    endpoint = int32(65535) + b"\x02h" + b"\x0aPLAINTEXT" + b"\x00\x00" + tags
    answer = await client.frame(b"\x00\x64" + header + int32(9) + b"\x02r" + b"\x02" + endpoint + tags)
    assert answer == int32(77) + b"\x00" + int32(0) + b"\x00\x00" + b"\x00" + int64(1) + b"\x01" + b"\x00"
    body = int32(9) + int64(1) + int32(-1) + int64(0) + int32(0) + int32(1 << 20) + b"\x00" + tags
    answer = await client.frame(b"\x00\x65" + header + body)
    epoch = controller.controller.epoch
    assert answer[:21] == int32(77) + b"\x00" + int32(0) + b"\x00\x00" + b"\x00" + b"\x01" + int32(epoch) + answer[17:21]
    start, end = struct.unpack_from(">qq", answer, 17)
    fetched = messages.decode("MetadataFetchResponse", 0, answer, 5)[0]
    assert start == 0 and (fetched.log_start_offset, fetched.high_watermark) == (start, end) and answer[-1:] == b"\x00"
    assert [offset for offset, _ in decode_records(fetched.records)] == list(range(end))
    body = int32(9) + int64(1) + int32(epoch) + int64(end + 1) + int32(0) + int32(0) + b"\x00\x00"
    answer = await client.frame(b"\x00\x65" + header + body)
    beyond = int32(0) + b"\x00\x01" + b"\x00" + b"\x01" + int32(epoch) + int64(0) + int64(end) + b"\x00" + b"\x00"
    assert answer == int32(77) + b"\x00" + beyond, "OFFSET_OUT_OF_RANGE, null records"
    await client.close()


@pytest.mark.requirement("RREG-2")
async def test_a_broker_that_is_not_the_controller_refuses_both(cluster: LocalCluster) -> None:
    controller, other = split(cluster)
    registered = await request(other, 100, 0, REGISTER)
    assert (registered.error_code, registered.broker_epoch, registered.state) == (ErrorCode.NOT_CONTROLLER, -1, 0)
    fetched = await request(other, 101, 0, FETCH)
    assert fetched == messages.MetadataFetchResponse(0, ErrorCode.NOT_CONTROLLER, 0, -1, -1, -1, -1, None)
    assert (await request(controller, 100, 0, REGISTER)).error_code == 0
    refused = await request(controller, 100, 0, REGISTER._replace(endpoints=[]))
    assert (refused.error_code, refused.broker_epoch, refused.state) == (ErrorCode.INVALID_REQUEST, -1, 1), "the state as it is stored"
    assert refused.error_message == "it has no endpoint"


@pytest.mark.requirement("RREG-2")
async def test_both_need_cluster_action() -> None:
    services = make_services(authorizer=Denying((Operation.CLUSTER_ACTION, "kafka-cluster")))
    registered = await respond(services, REGISTER, 0)
    assert (registered.error_code, registered.broker_epoch, registered.state) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, 0)
    assert registered.error_message == "User:ANONYMOUS needs CLUSTER_ACTION on the cluster"
    fetched = await respond(services, FETCH, 0)
    assert fetched == messages.MetadataFetchResponse(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0, -1, -1, -1, -1, None)


async def offered(cluster: LocalCluster) -> set[int]:
    """Which of the two keys ApiVersions lists to a broker of Klamm."""
    api_versions = messages.ApiVersionsRequest(client_software_name=BROKER_SOFTWARE, client_software_version="1")
    return {row.api_key for row in (await request(cluster.brokers[0], 18, 3, api_versions)).api_keys} & {100, 101}


@pytest.mark.requirement("RREG-19")
async def test_where_the_feature_is_on_both_keys_are_offered(cluster: LocalCluster) -> None:
    assert await offered(cluster) == {100, 101}


@pytest.mark.requirement("RREG-19")
@pytest.mark.parametrize("config", [{}, {"registerbroker.enable": "on", "inter.broker.protocol.version": "2.7"}], ids=["off", "IBP 2.7"])
async def test_where_the_feature_is_off_both_keys_are_unknown(
    zookeeper: str, chroot: str, config: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = LocalCluster(1, zookeeper=zookeeper + chroot, config=config)
    with caplog.at_level(logging.WARNING):
        await cluster.start()
    try:
        assert ("registerbroker.enable has no effect, since inter.broker.protocol.version is below 2.8" in caplog.text) == bool(config)
        assert not await offered(cluster)
        for message in (REGISTER, FETCH):
            client = Client(cluster.brokers[0].advertised[0].host, cluster.brokers[0].advertised[0].port)
            with pytest.raises(ConnectionClosed):
                await client.ask(message, 0)
    finally:
        await cluster.stop()
