"""Requests written as JSON, and answers written for people: names for error codes, marks for what differs from run to run.

The JSON is that of Kafka's converters. A field left out has its default, one that the version lacks is dropped, so that one line serves
many versions. In an answer, a topic's id, a cluster's id, ports and texts of messages become marks; whether there is a text at all stays.
Lists of structures are sorted: Kafka leaves their order open.
"""

from __future__ import annotations

import json
from typing import Any

from klamm.protocol import json_form, messages
from klamm.protocol.compiler import MessageType
from klamm.protocol.errors import ErrorCode
from klamm.protocol.schema import Field, Struct
from klamm.tests.harness.client import KEYS

ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_MARKED = {"clusterId": "<cluster>", "port": "<port>", "brokerEpoch": "<epoch>"}
_NOT_ASKED_FOR = -(1 << 31)
_USUAL = {
    "throttleTimeMs": 0,
    "authorizedOperations": _NOT_ASKED_FOR,
    "topicAuthorizedOperations": _NOT_ASKED_FOR,
    "clusterAuthorizedOperations": _NOT_ASKED_FOR,
}
"""Left out where they say what they nearly always say."""


def request(name: str, version: int, value: dict[str, Any]) -> Any:
    """The request message that `value` means in `version`."""
    kind = messages.message_type(f"{name}Request")
    return _struct(kind, kind.schema.root, value, version)


def _struct(kind: MessageType, struct: Struct, value: dict[str, Any], version: int) -> Any:
    known = {field.name: field for field in struct.fields}
    values: dict[str, Any] = {}
    for name, given in value.items():
        field = known.get(name)
        assert field is not None, f"{struct.name} has no field {name}: {', '.join(known)}"
        if version in field.versions:
            values[field.attribute] = _value(kind, field, given, version)
    return kind.rows[struct.name]._constructor(**values)


def _value(kind: MessageType, field: Field, given: Any, version: int) -> Any:
    if given is None:
        return None
    if field.is_array:
        items = [_one(kind, field, each, version) for each in given]
        return tuple(items) if field.is_numbers else items
    return _one(kind, field, given, version)


def _one(kind: MessageType, field: Field, given: Any, version: int) -> Any:
    if field.struct is not None:
        return _struct(kind, field.struct, given, version)
    return json_form._from_json(kind, field, given, version)


def versions(text: str, name: str) -> list[int]:
    """`v2`, `v0-3`, or `v*` for all versions of an API."""
    api = messages.APIS[KEYS[name]]
    if text == "v*":
        return list(range(api.min_version, api.max_version + 1))
    low, _, high = text.removeprefix("v").partition("-")
    return list(range(int(low), int(high or low) + 1))


def code(number: int) -> str:
    """Name of an error code."""
    return ErrorCode(number).name


def told_text(text: str | None) -> str:
    """Whether there is a message."""
    return "null" if text is None else "empty" if text == "" else "text"


def answer(message: Any, version: int) -> str:
    """An answer as text: its plain fields in one line, then a line for each structure of its lists."""
    value = _mask(json_form.to_json(message, version))
    plain = {name: each for name, each in value.items() if not _is_rows(each)}
    lines = [_line(plain)] if plain else []
    for name, rows in value.items():
        if _is_rows(rows):
            lines += [f"{name}: {_line(row)}" for row in rows]
    return "\n".join(lines) or "{}"


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _mask(value: Any) -> Any:
    if isinstance(value, list):
        items = [_mask(each) for each in value]
        return sorted(items, key=_line) if _is_rows(items) else items
    if not isinstance(value, dict):
        return value
    return {name: _field(name, each) for name, each in value.items() if _USUAL.get(name, ...) != each}


def _field(name: str, value: Any) -> Any:
    if name in ("errorCode", "topicConfigErrorCode", "partitionErrorCode"):
        return code(value)
    if name == "errorMessage":
        return None if value is None else told_text(value)
    if name == "topicId":
        return "zero" if value == ZERO_ID else "<id>"
    if name in _MARKED and value not in (None, -1, 0):
        return _MARKED[name]
    return _mask(value)


def grouped(outcomes: list[tuple[int, str]]) -> str:
    """Outcomes of one request in several versions; neighbours that are alike share a line `v2-4:`."""
    groups: list[tuple[list[int], str]] = []
    for version, text in outcomes:
        if groups and groups[-1][1] == text:
            groups[-1][0].append(version)
        else:
            groups.append(([version], text))
    lines = []
    for members, text in groups:
        label = f"v{members[0]}" if len(members) == 1 else f"v{members[0]}-{members[-1]}"
        lines += [f"{label}: {line}" for line in text.split("\n")]
    return "\n".join(lines)
