"""Whole-request errors: every API served here has one in every version, and a missing CLUSTER_ACTION is one of them."""

from __future__ import annotations

import gzip
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.json_form import to_json
from klamm.server.apis.handlers import HANDLERS
from klamm.server.security.authorizer import Operation, Resource, ResourceType
from klamm.tests.server.apis.throttle_changes import move, set_rates, set_replicas
from klamm.tests.services import DenyAll, make_context, make_services

GOLDEN = Path(__file__).parents[2] / "golden" / "messages.jsonl.gz"
CLUSTER_ACTIONS = [key for key in HANDLERS if messages.APIS[key].cluster_action]


def full_requests() -> dict[tuple[int, int], Any]:
    """A request with every field set, for each API and version served here."""
    found: dict[tuple[int, int], Any] = {}
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            if case["case"] == "full" and case["key"] in HANDLERS and case["name"].endswith("Request"):
                request, _ = messages.decode(case["name"], case["version"], bytes.fromhex(case["hex"]))
                found[case["key"], case["version"]] = request
    return found


FULL = full_requests() | {
    (ApiKey.REASSIGN_PARTITIONS, 0): move([("t", 0, [1, 2])]),
    (ApiKey.ALTER_INTERBROKER_THROTTLED_RATES, 0): set_rates([(1, 2, 3)]),
    (ApiKey.ALTER_INTERBROKER_THROTTLED_REPLICAS, 0): set_replicas([("t", 0, [1])]),
    (ApiKey.ALTER_INTERBROKER_THROTTLED_REPLICAS, 1): set_replicas([("t", 0, ([1], None))]),
    (ApiKey.REGISTER_BROKER, 0): messages.RegisterBrokerRequest(broker_id=1, endpoints=[]),
    (ApiKey.METADATA_FETCH, 0): messages.MetadataFetchRequest(broker_id=1, broker_epoch=1),
    (ApiKey.END_PENDING_TRANSACTIONS, 0): messages.EndPendingTransactionsRequest(1, "t", 0, 3, []),
}
"""By key and version. Apache Kafka has no request of the drafts."""


def error_codes(value: Any) -> Iterator[int]:
    """Every error code in a response's JSON form."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("errorCode", "partitionErrorCode"):
                yield inner
            yield from error_codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from error_codes(inner)


def test_requests_are_there() -> None:
    assert set(FULL) == {(key, v) for key in HANDLERS for v in range(messages.APIS[key].min_version, messages.APIS[key].max_version + 1)}


@pytest.mark.parametrize("key", HANDLERS)
def test_every_request_has_an_error_answer(key: int) -> None:
    for version in range(messages.APIS[key].min_version, messages.APIS[key].max_version + 1):
        has_an_error_answer(key, version)


def has_an_error_answer(key: int, version: int) -> None:
    response = HANDLERS[key].refuse(FULL[key, version], version, ErrorCode.UNKNOWN_SERVER_ERROR)
    name = f"{messages.APIS[key].name}Response"
    decoded, _ = messages.decode(name, version, messages.encode(response, version))
    codes = list(error_codes(to_json(decoded, version)))
    if key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:
        assert codes == []  # its only place for an error is a directory: as Apache Kafka's, the response lists none
    else:
        assert set(codes) == {ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize(("key", "version"), [(key, version) for key, version in FULL if key in CLUSTER_ACTIONS])
async def test_cluster_action_is_needed_between_brokers(key: int, version: int) -> None:
    authorizer = DenyAll()
    services = make_services(authorizer=authorizer)
    request = FULL[key, version]
    if key == ApiKey.UPDATE_METADATA:
        request = request._replace(live_brokers=[])  # a made-up security protocol is a fault of its own
    response = HANDLERS[key].handle(make_context(services, key, version), request)
    if inspect.isawaitable(response):
        response = await response
    name = f"{messages.APIS[key].name}Response"
    decoded, _ = messages.decode(name, version, messages.encode(response, version))
    codes = list(error_codes(to_json(decoded, version)))
    assert set(codes) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    cluster = Resource(ResourceType.CLUSTER, "kafka-cluster")
    if key == ApiKey.WRITE_TXN_MARKERS:  # administrators write markers too, and its codes are those of partitions
        assert authorizer.checked == [(Operation.ALTER, cluster), (Operation.CLUSTER_ACTION, cluster)]
    else:
        assert decoded.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert len(codes) > 1 if key in (4, 5) else len(codes) == 1
        needed = Operation.ALTER if key == ApiKey.UPDATE_FEATURES else Operation.CLUSTER_ACTION  # tools send it, too
        assert authorizer.checked == [(needed, cluster)]
    assert len(services.replicas) == 0
    assert services.metadata.generation == 0
