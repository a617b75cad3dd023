"""Rounds of steps about permissions, drawn from a seed: changes of ACLs, then requests of users to whom they may apply.

A step is a request of the super user, a request of a user, or a znode of ACLs that somebody else writes. Requests of users have the bodies
of `tests/security/permission_requests.py`, with other names of topics, groups and transactional ids: some exist, some share a prefix.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError
from klamm.protocol.security.acls import ALL, ALLOW, DENY, LITERAL, OPERATIONS, PREFIXED, RESOURCE_TYPES, capitals
from klamm.tests.frames.drawing import CORRELATION_ID, Changed
from klamm.tests.harness.client import KEYS
from klamm.tests.security.permission_requests import REQUESTS, Asked
from klamm.tests.stories.both.answers import request

ADMIN = "admin"
USERS = ("al", "bo")
ADDRESSES = ("127.0.0.1", "127.0.0.2")
TOPICS = ("t", "u", "td", "ta", "tab", "ua")
"""The topics that exist."""
_TOPIC_NAMES = (*TOPICS, "tnix", "unix", "*", "T")
_GROUPS = ("g", "h", "ga", "gab", "gnix", "*")
_IDS = ("x", "y", "xa", "xab", "xnix", "*")
_NAMES_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("t", "u", "td", "tnix", "unix"), _TOPIC_NAMES),
    **dict.fromkeys(("g", "h", "gnix"), _GROUPS),
    **dict.fromkeys(("x", "y", "xnix", "ynix"), _IDS),
}
"""A name in a request → those of which another one is drawn."""

_MORE = (
    Asked("DescribeGroups", "many", {"groups": ["g", "h", "gnix"], "includeAuthorizedOperations": True}),
    Asked("Metadata", "topics", {"topics": [{"name": name} for name in ("t", "u", "td")], "includeTopicAuthorizedOperations": True}),
    Asked("Metadata", "cluster", {"topics": [], "includeClusterAuthorizedOperations": True}),
    Asked("OffsetFetch", "several", {"groupId": "g", "topics": [{"name": "t", "partitionIndexes": [0]}], "groups": [
        {"groupId": "g", "topics": [{"name": name, "partitionIndexes": [0]} for name in ("t", "u", "tnix")]},
        {"groupId": "h", "topics": None},
    ]}),
    Asked("DescribeProducers", "topics", {"topics": [{"name": name, "partitionIndexes": [0]} for name in ("t", "u", "unix")]}),
    Asked("FindCoordinator", "transactions", {"key": "x", "keyType": 1, "coordinatorKeys": ["x", "y", "xnix"]}),
    Asked("DescribeLogDirs", "topics", {"topics": [{"topic": name, "partitions": [0]} for name in ("t", "unix")]}),
    Asked("AlterPartitionReassignments", "none", {"topics": []}),
    Asked("DeleteGroups", "many", {"groupsNames": ["g", "h", "gnix"]}),
    Asked("OffsetDelete", "topics", {"groupId": "g", "topics": [{"name": name, "partitions": [{"partitionIndex": 0}]} for name in "tu"]}),
    Asked("InitProducerId", "idempotent", {"transactionTimeoutMs": 1000, "producerId": -1, "producerEpoch": -1}),
)
_LEFT_OUT = ("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken")
"""They are answered before permissions count: no secret is set."""


class Sent(NamedTuple):
    """A request: who sends it (ADMIN or one of USERS), from which address, and its body, with `<id NAME>` for the id of a topic."""

    who: str
    address: str
    api: str
    version: int
    body: Mapping[str, Any]

    def __str__(self) -> str:
        text = json.dumps(self.body, separators=(",", ":"), ensure_ascii=False)
        return f"{self.who} {self.address} {self.api} v{self.version} {text}"

    def framed(self, id_of: Callable[[str], str]) -> Changed:
        """The frame for a broker; `id_of` returns the id of a topic there, as text."""
        message = request(self.api, self.version, _with_ids(self.body, id_of))
        frame = messages.encode_request(KEYS[self.api], self.version, CORRELATION_ID, "test", messages.encode(message, self.version))
        return Changed(self.api, self.version, frame[4:], str(self))


class Put(NamedTuple):
    """A znode with ACLs and the notification of its change that somebody writes; without a notification if that is None."""

    path: str
    data: str
    prefixed: bool
    change: str | None

    def __str__(self) -> str:
        return f"put {self.path} {self.data} | {self.change}"


Step = Sent | Put


def drawn(seed: str) -> list[Step]:
    """The steps of the round that a seed means."""
    source = random.Random(seed)
    steps: list[Step] = []
    for _ in range(source.choice((1, 1, 2, 3))):
        steps += _change(source)
        steps += (_asked(source) for _ in range(source.randint(3, 9)))
        if source.random() < 0.4:
            steps.append(_described(source))
        if source.random() < 0.2:
            steps.append(_deleted(source))
    steps.append(EVERYTHING)
    return steps


EVERYTHING = Sent(ADMIN, ADDRESSES[0], "DescribeAcls", 3, {
    "resourceTypeFilter": 1, "resourceNameFilter": None, "patternTypeFilter": 1, "principalFilter": None, "hostFilter": None,
    "operation": 1, "permissionType": 1,
})


# requests of users


def _asked(source: random.Random) -> Sent:
    while True:
        asked = source.choice((*REQUESTS, *_MORE))
        api = messages.APIS[KEYS[asked.api]]
        low = 1 if asked.api == "CreateTopics" else api.min_version  # version 0 would create what is only to be validated
        version = source.choice((source.randint(low, api.max_version), api.max_version))
        body = _renamed(source, asked)
        who = source.choice(USERS) if source.random() < 0.95 else ADMIN
        sent = Sent(who, source.choice(ADDRESSES), asked.api, version, body)
        if asked.api in _LEFT_OUT or (asked.api == "DeleteTopics" and (asked.about == "ids" or who == ADMIN)):
            continue
        if asked.about in ("ids", "both", "verification") and version != api.max_version:
            continue
        try:
            sent.framed(lambda _: "A" * 22)
        except LocalProtocolError:
            continue
        return sent


def _renamed(source: random.Random, asked: Asked) -> dict[str, Any]:
    """The body of a request with other names; the same name becomes the same one everywhere in the body."""
    pools = {names: source.sample(names, len(names)) for names in (_TOPIC_NAMES, _GROUPS, _IDS)}
    new: dict[str, str] = {}

    def other(name: str) -> str:
        if name not in new and name in _NAMES_OF:
            new[name] = pools[_NAMES_OF[name]].pop()
            if (asked.api == "Metadata" and new[name] not in TOPICS) or asked.api == "DeleteTopics":
                new[name] += "/"  # no topic can have this name: it is neither created nor deleted
        return new.get(name, name)

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: walk(each) for key, each in value.items()}
        if isinstance(value, list):
            return [walk(each) for each in value]
        if isinstance(value, str) and value.startswith("<id "):
            return f"<id {other(value[4:-1])}>"
        return other(value) if isinstance(value, str) else value

    body: dict[str, Any] = walk(asked.body)
    for flag in ("includeClusterAuthorizedOperations", "includeTopicAuthorizedOperations", "includeAuthorizedOperations"):
        if flag in body and source.random() < 0.2:
            body[flag] = False
    return body


def _with_ids(value: Any, id_of: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_ids(each, id_of) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_ids(each, id_of) for each in value]
    return id_of(value[4:-1]) if isinstance(value, str) and value.startswith("<id ") else value


# ACLs

_T, _G, _C, _X, _TOKEN, _USER = 2, 3, 4, 5, 6, 7
_PATTERN_NAMES: Mapping[int, tuple[str, ...]] = {
    _T: ("*", "t", "t", "ta", "tab", "u", "ua", "T", "tn", "unix", "td", "x"),
    _G: ("*", "g", "g", "ga", "h", "gn"),
    _C: ("kafka-cluster",) * 9 + ("*", "kafka", "k"),
    _X: ("*", "x", "x", "xa", "y"),
    _TOKEN: ("*", "id"),
    _USER: ("*", "User:al", "User:", "al"),
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


def _change(source: random.Random) -> Iterator[Step]:
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


def _described(source: random.Random) -> Sent:
    return Sent(ADMIN, ADDRESSES[0], "DescribeAcls", source.randint(0, 3), _filter(source))


def _deleted(source: random.Random) -> Sent:
    return Sent(ADMIN, ADDRESSES[0], "DeleteAcls", source.randint(0, 3), {"filters": [_filter(source) for _ in range(source.choice((1, 1, 2, 3)))]})


# znodes


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
            row[key] = source.choice((None, "", 3, "Any", "UNKNOWN", "ALL", "Describe_Configs", "DESCRIBE_CONFIGS", "al", "*", ["*"], "Match"))
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
        if source.random() < 0.2:
            key = source.choice(tuple(content))
            content[key] = source.choice((None, "", kind, 1, 2, "1", "LITERAL", "prefixed", "ANY", "MATCH", "UNKNOWN", "Topic", "topic", "*"))
        change = json.dumps(content)
        path = f"/kafka-acl-extended/prefixed/{kind}/{name}"
    else:
        change = source.choice((f"{capitals(kind)}:{name}",) * 6 + (f"{kind}:{name}", f"{kind.lower()}:{name}", f"{capitals(kind)}:", name, f":{name}", ""))
        path = f"/kafka-acl/{kind}/{name}"
    return Put(path, data, prefixed, change if source.random() < 0.8 else None)
