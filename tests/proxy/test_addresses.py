"""Responses get the addresses of the proxy, wherever there are some, and nothing else of them changes."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.proxy.addresses import AddressedResponse, has_addresses, with_known_versions

Metadata, Cluster, Find = messages.MetadataResponse, messages.DescribeClusterResponse, messages.FindCoordinatorResponse
Produce, Fetch = messages.ProduceResponse, messages.FetchResponse
OLD, NEW = ("kafka-1", 9092), ("127.0.0.1", 40001)


def made(key: int, version: int, host: str, port: int) -> Any:
    match key:
        case ApiKey.METADATA:
            return Metadata(brokers=[Metadata.MetadataResponseBroker(1, host, port), Metadata.MetadataResponseBroker(2, "kafka-2", 9092)])
        case ApiKey.DESCRIBE_CLUSTER:
            return Cluster(cluster_id="c", brokers=[Cluster.DescribeClusterBroker(1, host, port)])
        case ApiKey.FIND_COORDINATOR:
            return Find(node_id=1, host=host, port=port) if version < 4 else Find(
                coordinators=[Find.Coordinator("g", 1, host, port), Find.Coordinator("h", -1, "", -1, error_code=15)]
            )
        case ApiKey.PRODUCE:
            return Produce(node_endpoints=[Produce.NodeEndpoint(1, host, port)])
        case _:
            return Fetch(node_endpoints=[Fetch.NodeEndpoint(1, host, port)])


KINDS = [
    (int(key), version)
    for key in (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.FIND_COORDINATOR, ApiKey.PRODUCE, ApiKey.FETCH)
    for version in range(APIS[key].max_version + 1) if has_addresses(key, version)
]


@pytest.mark.parametrize(("key", "version"), KINDS)
def test_addresses_of_known_brokers_are_replaced(key: int, version: int) -> None:
    def frame(address: tuple[str, int]) -> bytes:
        return messages.encode_response(key, version, 7, messages.encode(made(key, version, *address), version))

    response = AddressedResponse(frame(OLD), key, version)
    assert dict(response.nodes())[1] == OLD
    assert response.with_addresses({1: NEW}) == frame(NEW)
    assert response.with_addresses({}) == response.with_addresses({1: OLD, 9: NEW}) == frame(OLD)


@pytest.mark.parametrize(("key", "version"), [(key, version) for key, version in KINDS if APIS[key].is_flexible(version)])
def test_what_the_codec_does_not_know_stays(key: int, version: int) -> None:
    """An unknown tagged field after the known ones, and surplus bytes."""

    def frame(address: tuple[str, int]) -> bytes:
        payload = messages.encode_response(key, version, 7, messages.encode(made(key, version, *address), version))[4:]
        tags = 1 if key in (ApiKey.PRODUCE, ApiKey.FETCH) else 0
        if tags:  # the new leaders are the only tagged field: its number is their count
            body = messages.encode(made(key, version, *address), version)
            without = messages.encode(made(key, version, *address)._replace(node_endpoints=[]), version)
            place = len(payload) - len(body) + len(without) - 1
            assert payload[place] == 1
            payload = payload[:place] + b"\2" + payload[place + 1 :]
        else:
            assert payload[-1] == 0
            payload = payload[:-1] + b"\1"
        payload += b"\x64\x03abc" + b"surplus"
        return len(payload).to_bytes(4, "big") + payload

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

    known = [(int(ApiKey.METADATA), 0, 12), (int(ApiKey.PRODUCE), 0, 11), *rows[2:]]
    assert with_known_versions(frame(rows), version) == frame(known)
    with pytest.raises(RemoteProtocolError):
        with_known_versions(frame(rows)[:25], version)


def test_every_response_with_a_port_is_one_of_these() -> None:
    def has_port(struct: Any, version: int) -> bool:
        fields = [field for field in struct.fields if version in field.versions]
        return any(field.attribute == "port" or (field.struct is not None and has_port(field.struct, version)) for field in fields)

    found = [
        (int(key), version)
        for key, api in APIS.items()
        for version in range(api.min_version, api.max_version + 1)
        if has_port(messages.message_type(f"{api.name}Response").schema.root, version) and not (api.cluster_action or api.draft)
    ]
    assert sorted(found) == sorted(KINDS)
