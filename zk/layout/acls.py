"""Paths and bytes of the znodes of ACLs (layout 1.5, 3.11).

Literal patterns are at `/kafka-acl/<Type>/<name>`, prefixed ones at `/kafka-acl-extended/prefixed/<Type>/<name>`. Each kind has its own
notifications: a text such as `TOPIC:foo`, or JSON. As in Apache Kafka an unreadable znode of ACLs is an error: to ignore an ACL that denies
something would allow it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from klamm.protocol.security.acls import (
    LITERAL,
    OPERATION_NAMES,
    PATTERN_TYPES,
    PERMISSION_NAMES,
    PREFIXED,
    RESOURCE_TYPES,
    UNKNOWN,
    Entry,
    Pattern,
    capitals,
    is_principal,
)
from klamm.zk.layout.json_values import Unreadable, int32, json_text, parse_json
from klamm.zk.layout.paths import may_be_in_path

ROOTS: Mapping[int, str] = {LITERAL: "/kafka-acl", PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES: Mapping[int, str] = {LITERAL: "/kafka-acl-changes", PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_NAME = "acl_changes_"

STARTUP_PATHS = (*CHANGES.values(), *(f"{root}/{name}" for root in ROOTS.values() for name in RESOURCE_TYPES.values()))
"""Created by the authorizer at the start of its broker, with null data, and with their parents."""


def acl_path(pattern: Pattern) -> str:
    return f"{ROOTS[pattern.pattern_type]}/{RESOURCE_TYPES[pattern.resource_type]}/{pattern.name}"


def encode_acls(entries: Iterable[Entry]) -> bytes:
    """The bytes of a pattern's znode."""
    rows = [
        {
            "principal": entry.principal,
            "permissionType": PERMISSION_NAMES[entry.permission],
            "host": entry.host,
            "operation": OPERATION_NAMES[entry.operation],
        }
        for entry in entries
    ]
    return json_text({"acls": rows, "version": 1})


def decode_acls(data: bytes | None) -> tuple[Entry, ...]:
    """The entries of a pattern; none if the data is not JSON at all. Raises Unreadable."""
    if not data:
        return ()
    content = parse_json(data)
    if content is None and data.strip() not in (b"", b"null"):
        return ()
    try:
        if int32(content["version"]) != 1:
            raise ValueError(f"version {content['version']!r}")
        if not isinstance(content["acls"], list):
            raise ValueError("no list of ACLs")
        return tuple(dict.fromkeys(map(_entry, content["acls"])))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{data[:200]!r} are not ACLs: {error}") from None


def _entry(row: Mapping[str, str]) -> Entry:
    texts = [row[name] for name in ("principal", "host", "operation", "permissionType")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{row!r} has a value that is not a text")
    principal, host, operation, permission = texts
    if not is_principal(principal):
        raise ValueError(f"{principal!r} is not a principal")
    if "ANY" in (operation.upper(), permission.upper()):
        raise ValueError(f"{row!r} is a filter")
    return Entry(principal, host, _number(OPERATION_NAMES, operation), _number(PERMISSION_NAMES, permission))


def _number(names: Mapping[int, str], name: str) -> int:
    """The number of a name whatever its case; UNKNOWN if there is none, as for DESCRIBE_CONFIGS."""
    return next((number for number, each in names.items() if name.upper() == each.upper()), UNKNOWN)


def encode_acl_change(pattern: Pattern) -> bytes:
    """The bytes of a notification."""
    kind = capitals(RESOURCE_TYPES[pattern.resource_type])
    if pattern.pattern_type == LITERAL:
        return f"{kind}:{pattern.name}".encode()
    pattern_type = capitals(PATTERN_TYPES[pattern.pattern_type])
    return json_text({"version": 1, "resourceType": kind, "name": pattern.name, "patternType": pattern_type})


_OF_CHANGE = {"version", "resourceType", "name", "patternType"}


def _check_version(version: Any) -> None:
    """As Apache Kafka reads it: a number, also as a text, or none, and not a later version. Raises ValueError, TypeError."""
    if isinstance(version, bool):
        raise TypeError("version is a boolean")
    if version not in (None, "") and int(version) > 1:
        raise ValueError(f"version {version!r}")


def _text(value: Any) -> str:
    """A text; a number or a boolean becomes one as in Java. Raises TypeError."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (list, dict)):
        raise TypeError(f"{value!r} is not a text")
    return json.dumps(value)


def decode_acl_change(pattern_type: int, data: bytes | None) -> Pattern:
    """The pattern that a notification of literal or prefixed patterns names. Raises Unreadable."""
    try:
        if pattern_type == LITERAL:
            kind, colon, name = (data or b"").decode().partition(":")
        else:
            content = parse_json(data)
            _check_version(content.get("version"))
            if not content.keys() <= _OF_CHANGE:
                raise ValueError("unknown properties")
            kind, colon, name = content["resourceType"], ":", _text(content["name"])
            pattern_type = next(number for number, each in PATTERN_TYPES.items() if capitals(each) == content["patternType"])
        resource_type = next((number for number, each in RESOURCE_TYPES.items() if capitals(each) == kind.upper()), UNKNOWN)
        pattern = Pattern(resource_type, name, pattern_type)
        if not colon or not may_be_in_path(name) or UNKNOWN in (pattern.resource_type, pattern.pattern_type):
            raise ValueError("no resource")
    except (AttributeError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise Unreadable(f"{(data or b'')[:200]!r} is not a change of ACLs: {error}") from None
    return pattern
