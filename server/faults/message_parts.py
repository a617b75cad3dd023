"""The parts of messages that a filter names: topics, partitions, groups, transactional ids.

A request of many partitions is split into the part that a filter matches and the rest; a response is changed where it is about the part,
and two responses to the parts of a request become one. All this follows from the definitions of the messages, by the names of their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.exchanges.error_codes import is_error_code
from klamm.protocol.nouns import ZERO_UUID
from klamm.protocol.schema import Field, Struct
from klamm.seams.value_class import dataclass

KEYS = ("topic", "partition", "group", "transactional_id")
"""What a filter can name inside messages."""

_TEXT = "error_message"
_TOPIC_ARRAYS = frozenset(
    ("topics", "topic_data", "responses", "results", "topic_results", "topic_states", "forgotten_topics_data")
) | frozenset(("v3_and_below_topics", "results_by_topic_v3_and_below"))
_SCALARS = {
    "topic": "topic", "topic_name": "topic", "topic_id": "topic",
    "index": "partition", "partition": "partition", "partition_index": "partition", "partition_id": "partition",
    "group_id": "group",
    "transactional_id": "transactional_id", "v3_and_below_transactional_id": "transactional_id", "key": "coordinator_key",
}
_ARRAYS = {
    "partitions": "partition", "partition_indexes": "partition", "topic_names": "topic",
    "groups": "group", "groups_names": "group", "group_ids": "group", "transactional_ids": "transactional_id",
    "coordinator_keys": "coordinator_key",
}
_TOPIC_RESOURCE = 2
_UNKNOWN = {
    "leader_id": -1, "leader_epoch": -1, "high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1, "base_offset": -1,
    "log_append_time_ms": -1, "offset": -1, "timestamp": -1, "end_offset": -1, "committed_offset": -1, "committed_leader_epoch": -1,
    "node_id": -1, "port": -1, "records": b"",
}
"""What a row with an error has in these fields. Records are empty, not null, as in the responses of Kafka's replica manager: librdkafka
cannot read null.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The values of the parts, by their keys; a topic also has its id, zero if it has none."""

    values: Mapping[str, Any]
    topic_id: bytes = ZERO_UUID

    def is_one(self, key: str, value: Any) -> bool:
        """Whether a field of a message has the wanted value."""
        if value.__class__ is bytes:
            return bool(value != ZERO_UUID and value == self.topic_id)
        return bool(value is not None and value == self.values[key])

    def without(self, keys: frozenset[str]) -> Wanted:
        """What is still wanted when these are found."""
        return Wanted({key: value for key, value in self.values.items() if key not in keys}, self.topic_id)


def key_of(field: Field, container: str, struct: Struct) -> str | None:
    """The key that a field is about; None for other fields. `container` is the attribute of the array in which the structure stands."""
    if field.struct is not None:
        return None
    if field.is_array:
        return _ARRAYS.get(field.attribute)
    if field.attribute == "name":
        return "topic" if container in _TOPIC_ARRAYS else None
    if field.attribute == "resource_name":
        return "topic" if any(each.attribute == "resource_type" for each in struct.fields) else None
    if field.attribute in ("index", "partition") and field.type != "int32":
        return None
    return _SCALARS.get(field.attribute)


def names(message: str, keys: frozenset[str], version: int | None = None) -> bool:
    """Whether a message has fields for all these keys, on one path; with a version, whether that version has."""
    return _names(messages.message_type(message).schema.root, "", keys, version)


@cache
def _names(struct: Struct, container: str, keys: frozenset[str], version: int | None) -> bool:
    fields = [field for field in struct.fields if version is None or version in field.versions]
    found = {key_of(field, container, struct) for field in fields if not field.is_array}
    left = keys - found
    if not left:
        return True
    if any(field.is_array and {key_of(field, container, struct)} == left for field in fields):
        return True
    rows = [(field.struct, field.attribute) for field in fields if field.is_array and field.struct is not None]
    return any(_names(row, array, frozenset(left), version) for row, array in rows)


def carries(response: str, keys: frozenset[str]) -> bool:
    """Whether a response has an error code for what these keys name."""
    return _carries(messages.message_type(response).schema.root, "", keys)


@cache
def _carries(struct: Struct, container: str, keys: frozenset[str]) -> bool:
    left = keys - {key_of(field, container, struct) for field in struct.fields if not field.is_array}
    if not left and any(is_error_code(field) for field in struct.fields):
        return True
    return any(
        _carries(field.struct, field.attribute, frozenset(left)) for field in struct.fields if field.is_array and field.struct is not None
    )


def split(request: Any, version: int, wanted: Wanted) -> tuple[Any | None, Any | None]:
    """A request without what is not wanted, and without what is: None for one of them that has nothing left."""
    return _split(request, request._type.schema.root, "", version, wanted)


def _split(node: Any, struct: Struct, container: str, version: int, wanted: Wanted) -> tuple[Any | None, Any | None]:
    found = _found(node, struct, container, version, wanted)
    if found is None:
        return None, node
    left = wanted.without(found)
    if not left.values:
        return node, None
    matched: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for field in struct.fields:
        values = getattr(node, field.attribute) if field.is_array and version in field.versions else None
        if not values:
            continue
        if field.struct is not None:
            if not _names(field.struct, field.attribute, frozenset(left.values), version):
                continue
            pairs = [_split(each, field.struct, field.attribute, version, left) for each in values]
            ours, others = [pair[0] for pair in pairs if pair[0] is not None], [pair[1] for pair in pairs if pair[1] is not None]
        elif {key := key_of(field, container, struct)} == set(left.values) and key is not None:
            ours, others = [each for each in values if left.is_one(key, each)], [each for each in values if not left.is_one(key, each)]
        else:
            continue
        matched[field.attribute] = tuple(ours) if field.is_numbers else ours
        rest[field.attribute] = tuple(others) if field.is_numbers else others
    if not any(matched.values()):
        return None, node
    return node._replace(**matched), node._replace(**rest) if any(rest.values()) else None


def _found(node: Any, struct: Struct, container: str, version: int, wanted: Wanted) -> frozenset[str] | None:
    """The keys that a structure has itself with their wanted values; None if it has another value for one."""
    found: set[str] = set()
    others: set[str] = set()
    for field in struct.fields:
        key = None if field.is_array or version not in field.versions else key_of(field, container, struct)
        if key is None or key not in wanted.values:
            continue
        if field.attribute == "resource_name" and node.resource_type != _TOPIC_RESOURCE:
            return None
        value = getattr(node, field.attribute)
        (found if wanted.is_one(key, value) else others).add(key)
    return None if others - found else frozenset(found)


def says_all(request: Any, version: int, wanted: Wanted) -> bool:
    """Whether a request is about all topics, groups or ids, because it names none."""
    left = wanted.values.keys()
    for field in request._type.schema.root.fields:
        if field.is_array and version in field.versions and not getattr(request, field.attribute):
            inner = frozenset(left)
            if field.struct is not None and _names(field.struct, field.attribute, inner, version):
                return True
            if field.struct is None and key_of(field, "", request._type.schema.root) in left:
                return True
    return False


def change(response: Any, version: int, wanted: Wanted, code: ErrorCode, text: str | None) -> tuple[Any, bool]:
    """A response with this error where it is about the wanted parts, and whether it is about them."""
    return _change(response, response._type.schema.root, "", version, wanted, code, text)


def _change(
    node: Any, struct: Struct, container: str, version: int, wanted: Wanted, code: ErrorCode, text: str | None
) -> tuple[Any, bool]:
    found = _found(node, struct, container, version, wanted)
    if found is None:
        return node, False
    left = wanted.without(found)
    if not left.values:
        return _fail(node, struct, container, version, code, text)
    changes: dict[str, Any] = {}
    for field in struct.fields:
        values = getattr(node, field.attribute) if field.is_array and field.struct is not None and version in field.versions else None
        if values:
            assert field.struct is not None
            pairs = [_change(each, field.struct, field.attribute, version, left, code, text) for each in values]
            if any(is_changed for _, is_changed in pairs):
                changes[field.attribute] = [each for each, _ in pairs]
    return (node._replace(**changes), True) if changes else (node, False)


def _fail(node: Any, struct: Struct, container: str, version: int, code: ErrorCode, text: str | None) -> tuple[Any, bool]:
    """A structure with an error: its own, without anything but its names, or that of each row below it."""
    own = next((field.attribute for field in struct.fields if is_error_code(field) and version in field.versions), None)
    if own is None:
        changes = {}
        for field in struct.fields:
            values = getattr(node, field.attribute) if field.is_array and field.struct is not None else None
            if values:
                assert field.struct is not None
                pairs = [_fail(each, field.struct, field.attribute, version, code, text) for each in values]
                if any(is_changed for _, is_changed in pairs):
                    changes[field.attribute] = [each for each, _ in pairs]
        return (node._replace(**changes), True) if changes else (node, False)
    values = {field.attribute: getattr(node, field.attribute) for field in struct.fields if _is_kept(field, container, struct)}
    values |= {field.attribute: _UNKNOWN[field.attribute] for field in struct.fields if field.attribute in _UNKNOWN}
    values[own] = code
    if any(field.attribute == _TEXT for field in struct.fields):
        values[_TEXT] = text
    return type(node)._constructor(**values), True


def _is_kept(field: Field, container: str, struct: Struct) -> bool:
    """Whether a row with an error has this field as it was: names, and the replicas of Metadata."""
    return key_of(field, container, struct) is not None or field.attribute in (
        "resource_type", "is_internal", "replica_nodes", "isr_nodes", "offline_replicas", "key", "member_id", "producer_id",
    )


def merge(real: Any, other: Any) -> Any:
    """The response to a whole request from the responses to its parts. What stands once is taken from `real`."""
    return _merge(real, other, real._type.schema.root, "")


def _merge(real: Any, other: Any, struct: Struct, container: str) -> Any:
    changes: dict[str, Any] = {}
    for field in struct.fields:
        if not field.is_array or field.struct is None:
            continue
        ours, theirs = getattr(real, field.attribute), getattr(other, field.attribute)
        if not theirs:
            continue
        name = _name(field.struct, field.attribute)
        rows = list(ours or ())
        known = {name(row): place for place, row in enumerate(rows)}
        for row in theirs:
            place = known.get(name(row))
            if place is None:
                rows.append(row)
            else:
                rows[place] = _merge(rows[place], row, field.struct, field.attribute)
        changes[field.attribute] = rows
    return real._replace(**changes) if changes else real


def _name(struct: Struct, container: str) -> Callable[[Any], tuple[Any, ...]]:
    """What tells one row of an array from another."""
    attributes = [field.attribute for field in struct.fields if not field.is_array and key_of(field, container, struct) is not None]
    return lambda row: tuple(getattr(row, attribute) for attribute in attributes) if attributes else (id(row),)
