"""Changes of ACLs, drawn from a source: requests of the super user, and znodes that somebody else writes; something is odd about some."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from klamm.protocol.security.acls import ALL, ALLOW, DENY, LITERAL, OPERATIONS, PREFIXED, RESOURCE_TYPES, capitals
from klamm.tests.permissions.steps import ADDRESSES, ADMIN, Put, Sent, Step

_T, _G, _C, _X, _TOKEN, _USER = 2, 3, 4, 5, 6, 7
_PATTERN_NAMES: Mapping[int, tuple[str, ...]] = {
    _T: ("*", "t", "t", "ta", "tab", "u", "ua", "T", "tn", "unix", "td", "x"),
    _G: ("*", "g", "g", "ga", "h", "gn"),
    _C: ("kafka-cluster",) * 9 + ("*", "kafka", "k"),
    _X: ("*", "x", "x", "xa", "y"),
    _TOKEN: ("*", "id"),
    _USER: ("*", "User:al", "User:bo", "User:", "al"),
}
_ODD_NAMES = ("", "a/b", "ä b", "*", ".", "..", "kafka-cluster", "t" * 300, "\0", "t:u")
_OPERATIONS_OF: Mapping[int, tuple[int, ...]] = {
    _T: (3, 4, 5, 6, 7, 8, 10, 11), _G: (3, 6, 8), _C: (5, 7, 8, 9, 10, 11, 12), _X: (4, 8), _TOKEN: (8,), _USER: (13, 14),
}
_HOSTS = ("*", "*", "*", "127.0.0.1", "127.0.0.2")
_ODD_HOSTS = ("", "localhost", "127.0.0.0/8", "::1", " 127.0.0.1", "10.0.0.1")
_PRINCIPALS = ("User:al", "User:al", "User:bo", "User:*", "User:*")
_ODD_PRINCIPALS = ("", "al", "User:", ":al", "Group:al", "user:al", "User:al ", "*", "*:*", "Group:*", "User:ANONYMOUS", "User:a:b", ":")
_ODD_NUMBERS = (1, 1, 0, 2, 99, -1, 3, 4)


def _resource_type(source: random.Random) -> int:
    return source.choice((_T, _T, _T, _T, _G, _G, _C, _C, _X, _X, _TOKEN, _USER))


def _one_acl(source: random.Random, odd: float) -> dict[str, Any]:
    """A creation of CreateAcls; something is odd about a share of them."""
    resource_type = _resource_type(source)
    of_type = _OPERATIONS_OF[resource_type]
    made: dict[str, Any] = {
        "resourceType": resource_type,
        "resourceName": source.choice(_PATTERN_NAMES[resource_type]),
        "resourcePatternType": source.choice((LITERAL, LITERAL, PREFIXED)),
        "principal": source.choice(_PRINCIPALS),
        "host": source.choice(_HOSTS),
        "operation": source.choice((*of_type, *of_type, *of_type, ALL, ALL, ALL, *OPERATIONS)),
        "permissionType": source.choice((ALLOW, ALLOW, ALLOW, DENY)),
    }
    if source.random() < odd:
        key = source.choice(tuple(made))
        odd_values = {"resourceName": _ODD_NAMES, "principal": _ODD_PRINCIPALS, "host": _ODD_HOSTS}
        made[key] = source.choice(odd_values.get(key, _ODD_NUMBERS))
    return made


def changed(source: random.Random) -> Iterator[Step]:
    chance = source.random()
    if chance < 0.7:
        odd = source.choice((0, 0, 0.1, 0.4))
        creations = [_one_acl(source, odd) for _ in range(source.choice((1, 3, 6, 10)))]
        if source.random() < 0.1:
            creations += creations[:2]
        yield Sent(ADMIN, ADDRESSES[0], "CreateAcls", source.choice((0, 1, 2, 3, 3, 3)) if source.random() < 0.3 else 3, {
            "creations": creations,
        })
    else:
        for _ in range(source.choice((1, 1, 2))):
            yield _put(source)
        if source.random() < 0.3:
            yield Sent(ADMIN, ADDRESSES[0], "CreateAcls", 3, {"creations": [_one_acl(source, 0) for _ in range(4)]})


def _filter(source: random.Random) -> dict[str, Any]:
    near = _one_acl(source, 0.15)

    def maybe(value: Any, none: Any) -> Any:
        return none if source.random() < 0.5 else value

    name = source.choice((near["resourceName"], "tabc", "gab", "xab", "t", "*"))
    return {
        "resourceTypeFilter": maybe(near["resourceType"], 1),
        "resourceNameFilter": maybe(name, None),
        "patternTypeFilter": source.choice((1, 1, 2, 2, 3, 4, near["resourcePatternType"])),
        "principalFilter": maybe(near["principal"], None),
        "hostFilter": maybe(near["host"], None),
        "operation": maybe(near["operation"], 1),
        "permissionType": maybe(near["permissionType"], 1),
    }


def described(source: random.Random) -> Sent:
    return Sent(ADMIN, ADDRESSES[0], "DescribeAcls", source.randint(0, 3), _filter(source))


def deleted(source: random.Random) -> Sent:
    filters = [_filter(source) for _ in range(source.choice((1, 1, 2, 3)))]
    return Sent(ADMIN, ADDRESSES[0], "DeleteAcls", source.randint(0, 3), {"filters": filters})


# znodes


_ODD_VALUES = (None, "", 3, "Any", "UNKNOWN", "ALL", "Describe_Configs", "DESCRIBE_CONFIGS", "al", "*", ["*"], "Match")
_ODD_OF_CHANGES: tuple[Any, ...] = (
    None, "", 1, 2, -1, 1.5, True, "1", "x", [], "LITERAL", "prefixed", "ANY", "MATCH", "UNKNOWN", "Topic", "topic", "*",
)


def _spelled(source: random.Random, name: str) -> str:
    return source.choice((name, name, name, name.upper(), name.lower(), name.capitalize()))


def _row(source: random.Random, odd: float) -> Any:
    acl = _one_acl(source, 0)
    row: dict[str, Any] = {
        "principal": acl["principal"],
        "permissionType": _spelled(source, {ALLOW: "Allow", DENY: "Deny"}[acl["permissionType"]]),
        "operation": _spelled(source, OPERATIONS[acl["operation"]]),
        "host": acl["host"],
    }
    if source.random() < odd:
        key = source.choice(tuple(row))
        change = source.randrange(3)
        if change == 0:
            del row[key]
        else:
            row[key] = source.choice(_ODD_VALUES)
        if source.random() < 0.3:
            row["more"] = 1
    return row


def _put(source: random.Random) -> Put:
    resource_type, prefixed = _resource_type(source), source.random() < 0.35
    kind = RESOURCE_TYPES[resource_type]
    name = source.choice(_PATTERN_NAMES[resource_type])
    odd = source.choice((0, 0, 0.3))
    rows = [_row(source, odd) for _ in range(source.choice((0, 1, 2, 4)))]
    content: Any = {"version": 1, "acls": rows}
    if source.random() < 0.3:
        content = source.choice((
            {"version": 2, "acls": rows}, {"acls": rows}, {"version": 1}, {"version": 1, "acls": None}, {"version": "1", "acls": rows},
            {"version": 1.0, "acls": rows}, [], None, "", 0, rows, {"version": 1, "acls": {}}, {"version": 1, "acls": [*rows, None]},
            {"version": 1, "acls": rows, "more": {}}, {}, {"version": 1, "acls": [rows]}, {"version": 1, "acls": ""}, {"version": True},
        ))
    data = json.dumps(content)
    if source.random() < 0.1:
        data = source.choice(("", " ", "{", "not JSON", data + " ", data + "x", data[:-1], "\ufeff" + data))
    change: str | None
    if prefixed:
        content = {"version": 1, "resourceType": capitals(kind), "name": name, "patternType": "PREFIXED"}
        if source.random() < 0.35:
            key = source.choice(("version", *content, "more"))
            content[key] = source.choice((kind, *_ODD_OF_CHANGES))
            if source.random() < 0.2:
                content.pop(key)
        change = json.dumps(content)
        path = f"/kafka-acl-extended/prefixed/{kind}/{name}"
    else:
        good = f"{capitals(kind)}:{name}"
        change = source.choice((good,) * 6 + (f"{kind}:{name}", good.lower(), f"{capitals(kind)}:", name, f":{name}", ""))
        path = f"/kafka-acl/{kind}/{name}"
    return Put(path, data, prefixed, change if source.random() < 0.8 else None)
