"""Converts the input and output of an event to JSON.

A str is JSON already. A callable is called first. NamedTuples and dataclasses become objects, sets become sorted lists, enums their names,
bytes base64url like Kafka's topic ids. Keys that are not strings become strings.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any


def to_json(value: Any) -> str | None:
    """The JSON text of a value; None for None. A value without a JSON form becomes its `repr`."""
    if callable(value) and not isinstance(value, type):
        value = value()
    if value is None or isinstance(value, str):
        return value
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else repr(value)
    if isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Set):
        return sorted((_plain(each) for each in value), key=lambda each: (str(type(each)), each if isinstance(each, int) else str(each)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return repr(value)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, tuple):
        return "-".join(str(_plain(each)) for each in key)
    return str(_plain(key))
