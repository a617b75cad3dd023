"""Messages for an API and a version, made from its schema: every field at one kind of value.

Requests of these cases reach a server that may be in use, so fields that could make it wait, fill its disk or change what is not ours have
limits (`LIMITS`), and no name of theirs is valid for a topic.
"""

from __future__ import annotations

from typing import Any

from klamm.protocol.messages import message_type
from klamm.protocol.schema import Field, Struct

KINDS = {
    "empty": "A request whose strings and arrays are empty and whose numbers have their defaults gets a response",
    "minimum": "A request whose numbers are the smallest of their types gets a response",
    "maximum": "A request whose numbers are the largest of their types, with strings of 255 bytes, gets a response",
    "null": "A request whose nullable fields are null gets a response",
    "boundary": "A request with strings of 127 bytes and arrays of 127 and 128 elements, where compact lengths get longer, gets a response",
    "tags": "Unknown tagged fields are skipped wherever the version allows tags",
    "surplus": "Bytes after the request are ignored",
}
"""Kind of values → the sentence of its cases."""

_RANGES = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_UNSIGNED = {"uint16": 16, "uint32": 32}

LIMITS: dict[str, tuple[Any, Any]] = {
    "acks": (-1, 1),
    "max_wait_ms": (0, 50),
    "max_wait_time": (0, 50),
    "timeout_ms": (0, 500),
    "transaction_timeout_ms": (-1, 2**31 - 1),
    "num_partitions": (-(2**31), 1000),
    "count": (-(2**31), 1000),
    "allow_auto_topic_creation": (False, False),
    "validate_only": (True, True),
    "replica_id": (-1, -1),
    "session_epoch": (-1, -1),
    "session_id": (0, 0),
}
"""Field → its value where numbers are the smallest, and where they are the largest."""


def message(name: str, version: int, kind: str) -> Any:
    """A message whose values are of this kind."""
    made = message_type(name)
    return _row(made, made.schema.root, version, kind)


def _row(made: Any, struct: Struct, version: int, kind: str, number: int = 0) -> Any:
    values = {
        each.attribute: _value(made, each, version, kind, number)
        for each in struct.fields
        if version in each.versions and not (kind == "empty" and each.is_tagged(version))
    }
    return made.rows[struct.name]._constructor(**values)


def _value(made: Any, field: Field, version: int, kind: str, number: int) -> Any:
    limit = LIMITS.get(field.attribute)
    if limit is not None and not field.is_array and field.struct is None:
        return limit[1] if kind in ("maximum", "empty", "null", "boundary") else limit[0]
    if kind == "null" and version in field.nullable:
        return None
    if field.is_array:
        return _array(made, field, version, kind)
    if field.struct is not None:
        return None if kind == "empty" and field.default is None else _row(made, field.struct, version, kind)
    return _scalar(field, version, kind, number)


def _array(made: Any, field: Field, version: int, kind: str) -> Any:
    if kind == "empty":
        return () if field.is_numbers else []
    count = 1 if kind != "boundary" else 127 if field.struct is not None else 128
    if field.struct is not None:
        inner = "boundary strings" if kind == "boundary" else kind  # arrays within arrays would make it too long
        return [_row(made, field.struct, version, inner, number) for number in range(count)]
    items = [_scalar(field, version, kind, number) for number in range(count)]
    return tuple(items) if field.is_numbers else items


def _scalar(field: Field, version: int, kind: str, number: int) -> Any:
    match field.type:
        case "string":
            length = {"maximum": 255, "boundary": 127, "boundary strings": 127, "null": 8, "minimum": 0}.get(kind, 0)
            return f"conform/{number:03}/"[:length].ljust(length, "x")
        case "bytes" | "records":
            return None if field.default is None else b""
        case "uuid":
            return b"\xff" * 16 if kind == "maximum" else bytes(16)
        case "bool":
            return kind == "maximum"
        case "float64":
            return {"minimum": -1.7e308, "maximum": 1.7e308}.get(kind, 0.0)
    if field.type in _UNSIGNED:
        return 2 ** _UNSIGNED[field.type] - 1 if kind == "maximum" else 0
    bits = _RANGES[field.type]
    if kind in ("minimum", "maximum"):
        return -(2**bits) if kind == "minimum" else 2**bits - 1
    default = field.default
    return default if isinstance(default, int) and not field.is_array else 0
