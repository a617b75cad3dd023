"""Responses in which a fault gives fields other values.

A path has the names of Kafka's message definitions, as the JSON of requests has them: `topics.partitions.leaderId` is this field in each
row. A step in brackets behind the name of an array takes the rows with this value: `apiKeys[apiKey=1].maxVersion`. Values are as in
`protocol/json_form.py`: bytes are base64, rows are objects.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from klamm.protocol.decoding import CODES
from klamm.protocol.json_form import from_json, to_json
from klamm.protocol.messages import message_type
from klamm.protocol.nouns import id_of
from klamm.protocol.schema import Field, Struct

_TYPES = {"bool": bool, "float64": float, "string": str, "uuid": str, "bytes": str, "records": str}
"""Types in JSON; those of all other fields are whole numbers."""
_STEP = re.compile(r"(\w+)(?:\[(\w+)=([^\]]*)\])?")


def with_values(response: Any, version: int, values: Mapping[str, Any]) -> Any:
    """A response with these values. A path that this version or this response does not have changes nothing."""
    shown = to_json(response, version, is_whole=True)
    for path, value in values.items():
        _give(shown, [step.groups() for step in _STEP.finditer(path)], value)
    return from_json(response._type.schema.name, version, shown)


def _give(node: dict[str, Any], steps: list[Any], value: Any) -> None:
    name, key, wanted = steps[0]
    if len(steps) == 1:
        if name in node:
            node[name] = value
        return
    rows: Any = node.get(name) or []
    for row in rows if isinstance(rows, list) else [rows]:
        if key is None or str(row.get(key)) == wanted:
            _give(row, steps[1:], value)


def problem_of(response: str, path: str, value: Any) -> str | None:
    """What is wrong with a path of a response or with the value of the field there; None if nothing is."""
    rows: Struct | None = message_type(response).schema.root
    field: Field | None = None
    for step in path.split("."):
        matched = _STEP.fullmatch(step)
        field = None if rows is None or matched is None else next((each for each in rows.fields if each.name == matched[1]), None)
        if field is None:
            return f"{response} has no field {path}"
        rows = field.struct
    assert field is not None
    kind = f"{'array of ' * field.is_array}{field.type}"
    return None if _is_one(field, value) else f"{path} is of type {kind}, and {json.dumps(value)} is not"


def _is_one(field: Field, value: Any) -> bool:
    if value is None:
        return field.nullable.low <= field.nullable.high
    if field.is_array:
        return isinstance(value, list) and all(_is_element(field, each) for each in value)
    return _is_element(field, value)


def _is_element(field: Field, value: Any) -> bool:
    if field.struct is None:
        return type(value) is _TYPES.get(field.type, int) and _can_be_sent(field.type, value)
    fields = {each.name: each for each in field.struct.fields}
    return isinstance(value, dict) and all(name in fields and _is_one(fields[name], each) for name, each in value.items())


def _can_be_sent(kind: str, value: Any) -> bool:
    """Whether a number is in the range of its type, and a text that stands for bytes is base64."""
    try:
        if kind == "uuid":
            id_of(value)
        elif kind in ("bytes", "records"):
            b64decode(value, validate=True)
        elif kind in CODES:
            struct.pack(f">{CODES[kind]}", value)
    except (ValueError, struct.error):
        return False
    return True
