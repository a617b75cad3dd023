"""Whole-request errors: every API served here has one in every version, and a missing CLUSTER_ACTION is one of them."""

from __future__ import annotations

import gzip
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.json_form import to_json
from klamm.server import faults
from klamm.server.context import Context, Operation, Resource, ResourceType
from klamm.server.dispatch import HANDLERS
from klamm.server.purgatory import Purgatory

GOLDEN = Path(__file__).parents[1] / "golden" / "messages.jsonl.gz"
UPDATE_METADATA = 6
CLUSTER_ACTIONS = [4, 5, UPDATE_METADATA, 7, 56, 67]


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


FULL = full_requests()


def error_codes(value: Any) -> Iterator[int]:
    """Every error code in a response's JSON form."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "errorCode":
                yield inner
            yield from error_codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from error_codes(inner)


def test_requests_are_there() -> None:
    assert set(FULL) == {(key, v) for key in HANDLERS for v in range(messages.APIS[key].min_version, messages.APIS[key].max_version + 1)}


@pytest.mark.parametrize(("key", "version"), FULL)
def test_every_request_has_an_error_answer(key: int, version: int) -> None:
    response = faults.response(key, version, FULL[key, version])
    name = f"{messages.APIS[key].name}Response"
    decoded, _ = messages.decode(name, version, messages.encode(response, version))
    codes = list(error_codes(to_json(decoded, version)))
    assert codes
    assert set(codes) == {ErrorCode.UNKNOWN_SERVER_ERROR}


class DenyAll:
    """Denies, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Operation, Resource]] = []

    def authorize(self, principal: Any, operation: Operation, resource: Resource) -> bool:
        self.asked.append((operation, resource))
        return False


@pytest.mark.parametrize(("key", "version"), [(key, version) for key, version in FULL if key in CLUSTER_ACTIONS])
async def test_cluster_action_is_needed_between_brokers(key: int, version: int) -> None:
    metadata = MetadataCache(1)
    hosted = ReplicaManager(1, metadata)
    node: Any = SimpleNamespace(
        authorizer=DenyAll(), metadata=metadata, hosted=hosted, purgatory=Purgatory(), broker_epoch=1, controller=None
    )
    request = FULL[key, version]
    if key == UPDATE_METADATA:
        request = request._replace(live_brokers=[])  # a made-up security protocol is a fault of its own
    response = HANDLERS[key].handle(Context(node, key, version), request)
    if inspect.iscoroutine(response):
        response = await response
    name = f"{messages.APIS[key].name}Response"
    decoded, _ = messages.decode(name, version, messages.encode(response, version))
    codes = list(error_codes(to_json(decoded, version)))
    assert set(codes) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert decoded.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert len(codes) > 1 if key in (4, 5) else len(codes) == 1
    assert node.authorizer.asked == [(Operation.CLUSTER_ACTION, Resource(ResourceType.CLUSTER, "kafka-cluster"))]
    assert len(hosted) == 0
    assert metadata.generation == 0
