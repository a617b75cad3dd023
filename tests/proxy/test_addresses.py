"""Responses get the addresses of the proxy, wherever there are some, and nothing else of them changes."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol import messages, schema
from klamm.protocol.apis import APIS, ApiKey, Draft
from klamm.protocol.compiler import MessageType
from klamm.protocol.errors import RemoteProtocolError
from klamm.proxy.addresses import KINDS, AddressedResponse, definition, has_addresses, highest_versions, with_known_versions

OLD, NEW = ("kafka-1", 9092), ("127.0.0.1", 40001)
TYPES = {key: MessageType(definition(key), __name__) for key in KINDS}
"""The messages in all versions that are known, those of later releases too."""
FRAMES = [(key, version) for key in KINDS for version in range(definition(key).valid.high + 1) if has_addresses(key, version)]
_DESCRIBE_QUORUM = 55
FLEXIBLE = [(key, version) for key, version in FRAMES if version in definition(key).flexible]


def made(key: int, version: int, host: str, port: int) -> Any:
    kind: Any = TYPES[key].top
    match key:
        case ApiKey.METADATA:
            return kind(brokers=[kind.MetadataResponseBroker(1, host, port), kind.MetadataResponseBroker(2, "kafka-2", 9092)])
        case ApiKey.DESCRIBE_CLUSTER:
            return kind(cluster_id="c", brokers=[kind.DescribeClusterBroker(1, host, port)])
        case ApiKey.FIND_COORDINATOR:
            return kind(node_id=1, host=host, port=port) if version < 4 else kind(
                coordinators=[kind.Coordinator("g", 1, host, port), kind.Coordinator("h", -1, "", -1, error_code=15)]
            )
        case ApiKey.PRODUCE:
            topic = kind.TopicProduceResponse("t", partition_responses=[kind.PartitionProduceResponse(0, 6)])
            return kind(responses=[topic], node_endpoints=[kind.NodeEndpoint(1, host, port)])
        case ApiKey.FETCH:
            topic = kind.FetchableTopicResponse(partitions=[kind.PartitionData(0, 6, 9, records=b"records", aborted_transactions=None)])
            return kind(responses=[topic], node_endpoints=[kind.NodeEndpoint(1, host, port)])
        case 78:
            rows = kind.PartitionData(0, 6, records=b"records", acquired_records=[kind.AcquiredRecords(1, 2, 1)])
            return kind(responses=[kind.ShareFetchableTopicResponse(partitions=[rows])], node_endpoints=[kind.NodeEndpoint(1, host, port)])
        case _:
            topic = kind.ShareAcknowledgeTopicResponse(partitions=[kind.PartitionData(0, 6)])
            return kind(responses=[topic], node_endpoints=[kind.NodeEndpoint(1, host, port)])


def encoded(key: int, version: int, message: Any) -> bytes:
    """The payload of a response."""
    return b"\0\0\0\7" + (b"\0" if version in definition(key).flexible else b"") + TYPES[key].encoder(version)(message)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize(("key", "version"), FRAMES)
def test_addresses_of_known_brokers_are_replaced(key: int, version: int) -> None:
    def frame(address: tuple[str, int]) -> bytes:
        return framed(encoded(key, version, made(key, version, *address)))

    response = AddressedResponse(frame(OLD), key, version)
    assert dict(response.nodes())[1] == OLD
    assert response.with_addresses({1: NEW}) == frame(NEW)
    assert response.with_addresses({}) == response.with_addresses({1: OLD, 9: NEW}) == frame(OLD)


@pytest.mark.parametrize(("key", "version"), FRAMES)
def test_a_response_that_ends_early_is_one_error_and_never_a_loop(key: int, version: int) -> None:
    whole = framed(encoded(key, version, made(key, version, *OLD)))
    for end in range(8, len(whole)):
        for rest in (b"", b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff"):  # lengths and counts of 2 GB
            try:
                AddressedResponse(whole[:end] + rest, key, version)
            except RemoteProtocolError as problem:
                assert str(problem).startswith(("its addresses cannot be read", "a variable-length", "a tagged field"))


def test_what_follows_the_addresses_is_not_looked_at() -> None:
    """A response to Metadata may have a hundred thousand partitions; decoding these would hold all other connections."""
    payload = encoded(ApiKey.METADATA, 12, made(ApiKey.METADATA, 12, *OLD))
    response = AddressedResponse(framed(payload[:-2] + b"anything" * 1000), ApiKey.METADATA, 12)
    changed = encoded(ApiKey.METADATA, 12, made(ApiKey.METADATA, 12, *NEW))
    assert response.with_addresses({1: NEW}) == framed(changed[:-2] + b"anything" * 1000)


@pytest.mark.parametrize(("key", "version"), FLEXIBLE)
def test_what_the_codec_does_not_know_stays(key: int, version: int) -> None:
    """An unknown tagged field after the known ones, and surplus bytes."""

    def frame(address: tuple[str, int]) -> bytes:
        payload = encoded(key, version, made(key, version, *address))
        if key in (ApiKey.PRODUCE, ApiKey.FETCH):  # the new leaders are the only tagged field: its number is their count
            without = encoded(key, version, made(key, version, *address)._replace(node_endpoints=[]))
            place = len(without) - 1
            assert payload[place] == 1
            payload = payload[:place] + b"\2" + payload[place + 1 :]
        else:
            assert payload[-1] == 0
            payload = payload[:-1] + b"\1"
        return framed(payload + b"\x64\x03abc" + b"surplus")

    changed = AddressedResponse(frame(OLD), key, version).with_addresses({1: ("a-host-with-a-long-name." * 8, 40001)})
    assert changed == frame(("a-host-with-a-long-name." * 8, 40001))


@pytest.mark.parametrize("version", range(5))
def test_clients_are_told_no_version_that_cannot_be_read(version: int) -> None:
    Versions = messages.ApiVersionsResponse
    rows = [(int(key), 0, 99) for key in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.JOIN_GROUP)] + [
        (int(ApiKey.FETCH), 4, 13), (int(ApiKey.FIND_COORDINATOR), 50, 60)
    ]

    def frame(rows: list[tuple[int, int, int]]) -> bytes:
        body = messages.encode(Versions(api_keys=[Versions.ApiVersion(*row) for row in rows]), version)
        return messages.encode_response(ApiKey.API_VERSIONS, version, 7, body)

    known = [(int(ApiKey.METADATA), 0, 13), (int(ApiKey.PRODUCE), 0, 13), *rows[2:]]
    assert with_known_versions(frame(rows), version, highest_versions()) == frame(known)
    with pytest.raises(RemoteProtocolError):
        with_known_versions(frame(rows)[:25], version, highest_versions())


@pytest.mark.parametrize(("known", "level"), [(11, 1), (12, 2)])
def test_clients_are_told_no_level_of_a_feature_that_needs_a_later_version(known: int, level: int) -> None:
    """A producer that sees transaction.version 2 does not add partitions to its transaction, and Produce 11 does not either."""
    Versions = messages.ApiVersionsResponse

    def frame(level: int, produce: int) -> bytes:
        finalized = [("group.version", 1), ("transaction.version", level), ("metadata.version", 27)]
        message = Versions(
            api_keys=[Versions.ApiVersion(ApiKey.PRODUCE, 0, produce)], finalized_features_epoch=5,
            supported_features=[Versions.SupportedFeatureKey("transaction.version", 0, 2)],
            finalized_features=[Versions.FinalizedFeatureKey(name, high, 0) for name, high in finalized],
        )
        return messages.encode_response(ApiKey.API_VERSIONS, 4, 7, messages.encode(message, 4))

    assert with_known_versions(frame(2, 13), 4, {int(ApiKey.PRODUCE): known}) == frame(level, known)
    assert with_known_versions(frame(1, 13), 4, {int(ApiKey.PRODUCE): known}) == frame(1, known)


def test_every_response_with_a_port_of_a_broker_is_one_of_these() -> None:
    """Of the definitions of all releases that we have. Those of the quorum of KRaft are between controllers, those of
    streams groups are addresses of applications."""

    def has_port(struct: Any, version: int) -> bool:
        fields = [field for field in struct.fields if version in field.versions]
        return any(field.attribute == "port" or (field.struct is not None and has_port(field.struct, version)) for field in fields)

    names = {path.stem for path in schema.kafka_folder().glob("*Response.json")} | {f"{api.name}Response" for api in APIS.values()}
    found = []
    for name in names | {kind.message for kind in KINDS.values()}:
        high = schema.load(name).valid.high
        defined = schema.load(name, schema.Versions(0, high))
        found += [(defined.api_key, version) for version in range(high + 1) if has_port(defined.root, version)]
    of_applications = {ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE}
    drafts = {int(key) for key, api in APIS.items() if api.draft not in (None, Draft.KAFKA_4)}
    others = {_DESCRIBE_QUORUM, *drafts, *map(int, of_applications), *(int(key) for key, api in APIS.items() if api.cluster_action)}
    assert sorted(each for each in found if each[0] not in others) == sorted(FRAMES)
