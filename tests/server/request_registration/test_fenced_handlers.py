"""What a fenced broker responds, and what a listener forgets when its broker is fenced or online again (RREG-6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.apis.handlers import HANDLERS
from klamm.server.request_registration.fenced_handlers import fenced_handlers
from klamm.server.requests.context import CloseConnection
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.tests.server import wire
from klamm.tests.server.conftest import Connect, Serve
from klamm.tests.services import make_services

STAY = {
    "ApiVersions", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition", "AllocateProducerIds",
    "RegisterBroker", "MetadataFetch", "UpdateFeatures", "WriteTxnMarkers", "EndPendingTransactions",
}
WITH_CODE = {
    "ElectLeaders": 1, "AlterPartitionReassignments": 0, "ListPartitionReassignments": 0, "DescribeLogDirs": 3, "DescribeCluster": 0,
    "DescribeAcls": 0, "SaslHandshake": 0, "SaslAuthenticate": 0, "DescribeUserScramCredentials": 0, "ConsumerGroupHeartbeat": 0,
    "DescribeClientQuotas": 0,
    "CreateDelegationToken": 0, "RenewDelegationToken": 0, "ExpireDelegationToken": 0, "DescribeDelegationToken": 0,
}
"""APIs that clients may get BROKER_NOT_AVAILABLE from, with the version since which there is a place for it."""


def outcome(name: str, version: int) -> int | None:
    """The code at the top of what a fenced broker responds to an empty request, None where it closes the connection."""
    dispatcher = Dispatcher(make_services(), fenced_handlers(HANDLERS))
    peer = Peer("PLAINTEXT", "127.0.0.1", ResponseCache())
    key = messages.message_type(f"{name}Request").schema.api_key
    assert key is not None
    payload = messages.encode_request(key, version, 5, "c", messages.encode(getattr(messages, f"{name}Request")(), version))[4:]
    try:
        frame = dispatcher.begin(peer, payload)
    except CloseConnection:
        return None
    assert isinstance(frame, bytes)
    _, offset = messages.decode_response_header(key, version, frame[4:])
    response, _ = messages.decode(f"{name}Response", version, frame[4:], offset)
    return int(response.error_code)


@pytest.mark.requirement("RREG-6")
@pytest.mark.parametrize("api", [APIS[key] for key in HANDLERS if APIS[key].name not in STAY], ids=lambda api: api.name)
def test_fenced_broker_responds_to_clients_with_broker_not_available_or_closes_the_connection(api: Any) -> None:
    since = WITH_CODE.get(api.name)
    for version in range(api.min_version, api.max_version + 1):
        has_code = since is not None and version >= since
        assert outcome(api.name, version) == (ErrorCode.BROKER_NOT_AVAILABLE if has_code else None), version


@pytest.mark.requirement("RREG-6")
def test_fenced_broker_serves_controllers_and_api_versions_as_before() -> None:
    fenced = fenced_handlers(HANDLERS)
    assert {APIS[key].name for key, handler in fenced.items() if handler is HANDLERS[key]} == STAY & {APIS[key].name for key in HANDLERS}
    assert fenced.keys() == HANDLERS.keys()


def metadata(correlation_id: int) -> bytes:
    return wire.request(ApiKey.METADATA, 12, correlation_id, messages.MetadataRequest(topics=None))


def versions(correlation_id: int) -> bytes:
    asked = messages.ApiVersionsRequest(client_software_name="me", client_software_version="1")
    return wire.request(ApiKey.API_VERSIONS, 3, correlation_id, asked)


@pytest.mark.requirement("RREG-6")
async def test_cached_response_is_not_sent_by_a_broker_that_was_fenced_after_it(serve: Serve, connect: Connect) -> None:
    handlers = {ApiKey.METADATA: HANDLERS[ApiKey.METADATA]}
    listener = await serve(handlers)
    online = listener.dispatcher
    peer, other = await connect(listener.port), await connect(listener.port)
    peer.send(metadata(1) + versions(2))
    assert await peer.correlation_ids(2) == [1, 2]
    assert listener.responses_of().by_frame
    listener.dispatch_to(Dispatcher(make_services(), fenced_handlers(wire.HANDLERS | handlers)))
    assert not listener.responses_of().by_frame
    other.send(versions(3) + versions(4))
    assert await other.correlation_ids(2) == [3, 4]
    peer.send(metadata(5))
    assert await peer.answer() is None
    listener.dispatch_to(online)
    other.send(metadata(6))
    assert await other.correlation_ids(1) == [6]


@pytest.mark.requirement("RREG-6")
@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH])
async def test_requests_that_repeat_earlier_ones_of_their_connection_are_refused_by_a_fenced_broker(key: ApiKey) -> None:
    services = make_services()
    peer = Peer("PLAINTEXT", "127.0.0.1", ResponseCache())
    body: Any
    if key is ApiKey.PRODUCE:
        row = messages.ProduceRequest.PartitionProduceData(records=b"")
        topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=[row])
        body = messages.ProduceRequest(acks=1, topic_data=[topic])
    else:
        part = messages.FetchRequest.FetchPartition()
        body = messages.FetchRequest(session_epoch=-1, topics=[messages.FetchRequest.FetchTopic(topic="t", partitions=[part])])
    payload = messages.encode_request(key, 11, 5, "c", messages.encode(body, 11))[4:]
    online, fenced = Dispatcher(services, HANDLERS), Dispatcher(services, fenced_handlers(HANDLERS))
    assert online.begin(peer, payload) == online.begin(peer, payload)
    assert peer.repeated.find(payload) is not None
    with pytest.raises(CloseConnection, match="fenced"):
        fenced.begin(peer, payload)


@pytest.mark.requirement("RREG-6")
async def test_request_that_waits_when_the_broker_is_fenced_gets_its_response_and_the_next_one_is_refused(
    serve: Serve, connect: Connect
) -> None:
    released = asyncio.Event()

    async def wait(ctx: Any, request: Any) -> Any:
        await released.wait()
        return messages.MetadataResponse()

    listener = await serve({ApiKey.METADATA: HANDLERS[ApiKey.METADATA]._replace(handle=wait)})
    peer = await connect(listener.port)
    peer.send(metadata(1) + metadata(2))
    while not listener.requests:  # noqa: ASYNC110 the listener has no event for it
        await asyncio.sleep(0)
    listener.dispatch_to(Dispatcher(make_services(), fenced_handlers(wire.HANDLERS)))
    released.set()
    assert await peer.correlation_ids(1) == [1]
    assert await peer.answer() is None
