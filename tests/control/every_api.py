"""A valid request of each API, for tests that go through all of them."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.records.record import Record, encode_batch
from klamm.protocol.schema import Field, Struct
from klamm.server.faults import message_parts

TOPIC, OTHER, GROUP, ID = "t", "other", "g", "id"
_ON_TOPIC = frozenset(
    (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.ALTER_PARTITION, ApiKey.DESCRIBE_CONFIGS)
)
"""APIs that are used with a topic that exists; the others name one that does not, so that nothing happens to the first."""


def topic_of(key: ApiKey) -> str:
    """The topic that the request of an API names."""
    return TOPIC if key in _ON_TOPIC else OTHER


def example(key: ApiKey, version: int, topic_id: bytes) -> Any:
    """A request that names one topic, partition 0, one group and one transactional id, where the API knows such. `topic_id` is TOPIC's."""
    kind = messages.message_type(f"{APIS[key].name}Request")
    values = {"acks": 1, "timeout_ms": 1000, "replica_id": -1, "max_bytes": 1 << 20, "session_epoch": -1, "resource_type": 2} | _by_api(key)
    if key in _ON_TOPIC:
        values["topic_id"] = topic_id
    return _filled(kind, kind.schema.root, "", version, values, topic_of(key))


def _by_api(key: ApiKey) -> dict[str, Any]:
    if key == ApiKey.PRODUCE:
        return {"transactional_id": None, "records": encode_batch([Record(0, 1_700_000_000_000, None, b"v")])}
    if key in (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS):
        kinds = {"resource_type": 2, "resource_type_filter": 2, "pattern_type_filter": 3, "resource_pattern_type": 3}
        return kinds | {"operation": 3, "permission_type": 3, "principal": "User:a", "host": "*"}
    return {}


def _filled(kind: Any, struct: Struct, container: str, version: int, given: dict[str, Any], topic: str) -> Any:
    values: dict[str, Any] = {}
    for field in struct.fields:
        if version not in field.versions:
            continue
        if field.attribute in given:
            values[field.attribute] = given[field.attribute]
        elif field.struct is not None and field.is_array:
            values[field.attribute] = [_filled(kind, field.struct, field.attribute, version, given, topic)]
        elif field.struct is None and (value := _named(field, container, struct, topic)) is not None:
            values[field.attribute] = [value] if field.is_array and not field.is_numbers else (value,) if field.is_array else value
    return kind.rows[struct.name]._constructor(**values)


def _named(field: Field, container: str, struct: Struct, topic: str) -> Any | None:
    key = message_parts.key_of(field, container, struct)
    if key == "topic":
        return None if field.type == "uuid" else topic
    return {"partition": 0, "group": GROUP, "transactional_id": ID, "coordinator_key": GROUP}.get(str(key))
