"""Responses get the addresses of the proxy, wherever there are some, and nothing else of them changes."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.proxy.addresses import AddressedResponse, has_addresses

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
]  # fmt: skip


@pytest.mark.parametrize(("key", "version"), KINDS)
def test_addresses_of_known_brokers_are_replaced(key: int, version: int) -> None:
    def frame(address: tuple[str, int]) -> bytes:
        return messages.encode_response(key, version, 7, messages.encode(made(key, version, *address), version))

    response = AddressedResponse(frame(OLD), key, version)
    assert dict(response.nodes())[1] == OLD
    assert response.with_addresses({1: NEW}) == frame(NEW)
    assert response.with_addresses({}) == response.with_addresses({1: OLD, 9: NEW}) == frame(OLD)


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
