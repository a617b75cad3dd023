"""Converts messages to and from the JSON of Kafka's own converters.

Field names are Kafka's with a small first letter; a uuid is base64url without padding, bytes and records are base64. Fields that the
version does not have are left out, and so are tagged fields with their default value, unless all fields are wanted. It is slow: use it for
tests, faults and debugging.
"""

from __future__ import annotations

import base64
from typing import Any

from klamm.protocol.compiler import MessageType
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.messages import message_type
from klamm.protocol.nouns import id_text
from klamm.protocol.schema import Field, Struct


def to_json(message: Any, version: int, is_whole: bool = False) -> dict[str, Any]:
    """The JSON object of a message; if it is whole, it has all fields of the version."""
    kind: MessageType = message._type
    return _struct_to_json(kind, kind.schema.root, message, version, is_whole)


def from_json(name: str, version: int, value: dict[str, Any]) -> Any:
    """The message of a JSON object. A missing field of the version is refused, unless it is tagged; so is an unknown field.

    The encoder checks whether the values are allowed in this version.
    """
    kind = message_type(name)
    return _struct_from_json(kind, kind.schema.root, value, version)


def _struct_to_json(kind: MessageType, struct: Struct, value: Any, version: int, is_whole: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    defaults = kind.rows[struct.name]._constructor()
    for field in struct.fields:
        if version not in field.versions:
            continue
        given = getattr(value, field.attribute)
        if not is_whole and field.is_tagged(version) and given == getattr(defaults, field.attribute):
            continue
        if given is None:
            result[field.name] = None
        elif field.is_array:
            result[field.name] = [_to_json(kind, field, each, version, is_whole) for each in given]
        else:
            result[field.name] = _to_json(kind, field, given, version, is_whole)
    return result


def _to_json(kind: MessageType, field: Field, value: Any, version: int, is_whole: bool) -> Any:
    if field.struct is not None:
        return _struct_to_json(kind, field.struct, value, version, is_whole)
    if field.type == "uuid":
        return id_text(value)
    if field.type in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value


def _struct_from_json(kind: MessageType, struct: Struct, value: dict[str, Any], version: int) -> Any:
    values: dict[str, Any] = {}
    known = {field.name: field for field in struct.fields}
    for name, given in value.items():
        field = known.get(name)
        if field is None:
            raise LocalProtocolError(f"{struct.name} has no {name}")
        if given is None:
            values[field.attribute] = None
        elif field.is_array:
            items = [_from_json(kind, field, each, version) for each in given]
            values[field.attribute] = tuple(items) if field.is_numbers else items
        else:
            values[field.attribute] = _from_json(kind, field, given, version)
    for field in struct.fields:
        if field.is_plain(version) and field.name not in value:
            raise LocalProtocolError(f"{struct.name} {version} needs {field.name}")
    return kind.rows[struct.name]._constructor(**values)


def _from_json(kind: MessageType, field: Field, value: Any, version: int) -> Any:
    if field.struct is not None:
        return _struct_from_json(kind, field.struct, value, version)
    if field.type == "uuid":
        return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    if field.type in ("bytes", "records"):
        return base64.b64decode(value)
    return value
