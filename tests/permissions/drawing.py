"""Rounds of steps about permissions, drawn from a seed: changes of ACLs, then requests of users to whom they may apply.

A step is a request of the super user, a request of a user, or a znode of ACLs that somebody else writes. Requests of users have the bodies
of `tests/security/permission_requests.py`, with other names of topics, groups and transactional ids: some exist, some share a prefix.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError
from klamm.tests.frames import drawing as frames
from klamm.tests.harness.client import KEYS
from klamm.tests.permissions.acls import changed, deleted, described
from klamm.tests.permissions.steps import ADDRESSES, ADMIN, EVERYTHING, USERS, Raw, Sent, Step
from klamm.tests.security.permission_requests import REQUESTS, Asked

TOPICS = ("t", "u", "td", "ta", "tab", "ua")
"""The topics that exist."""
_TOPIC_NAMES = (*TOPICS, "tnix", "unix", "*", "T", "__consumer_offsets", "__transaction_state", "")
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
    Asked("CreateDelegationToken", "own", {"renewers": [], "maxLifetimeMs": -1}),
    *(Asked("CreateDelegationToken", name, {
        "ownerPrincipalType": kind, "ownerPrincipalName": name, "renewers": [{"principalType": "User", "principalName": "bo"}],
        "maxLifetimeMs": 1_000_000,
    }) for kind, name in (("User", "al"), ("User", "bo"), ("User", "nobody"), ("Group", "al"))),
    *(Asked("DescribeDelegationToken", "owners", {"owners": [{"principalType": "User", "principalName": name} for name in names]})
      for names in ((), ("al",), ("bo",), ("al", "bo", "nobody"))),
    *(Asked("DescribeDelegationToken", "all", {"owners": None}),) * 3,
    Asked("InitProducerId", "idempotent", {"transactionTimeoutMs": 1000, "producerId": -1, "producerEpoch": -1}),
)

def drawn(seed: str) -> list[Step]:
    """The steps of the round that a seed means."""
    source = random.Random(seed)
    steps: list[Step] = []
    for _ in range(source.choice((1, 1, 2, 3))):
        steps += changed(source)
        steps += (_asked(source) for _ in range(source.randint(3, 9)))
        if source.random() < 0.4:
            steps.append(described(source))
        if source.random() < 0.2:
            steps.append(deleted(source))
    steps.append(EVERYTHING)
    return steps


def drawn_with_frames(seed: str) -> list[Step]:
    """The steps of another kind of round: users send frames that no client would send."""
    source = random.Random(seed)
    steps: list[Step] = []
    for _ in range(2):
        steps += (step for step in changed(source) if isinstance(step, Sent))
        while source.random() < 0.93:
            frame = frames.drawn(f"{seed} {source.random()}")
            if frame.api not in _LEFT_OUT:
                steps.append(Raw(source.choice(USERS), source.choice(ADDRESSES), frame))
    return steps


_LEFT_OUT = ("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken", "ElectLeaders")
"""Of tokens with times that differ, and one that Apache Kafka may answer late."""


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
        if asked.api == "DeleteTopics" and (asked.about == "ids" or who == ADMIN):
            continue
        if asked.api in ("Fetch", "ListOffsets", "OffsetForLeaderEpoch") and "__consumer_offsets" in json.dumps(body):
            continue  # Klamm may append the tombstones of a deleted group a moment after its response
        if asked.api == "CreateDelegationToken" and who == ADMIN:
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
    pools: dict[tuple[str, ...], list[str]] = {names: source.sample(names, len(names)) for names in (_TOPIC_NAMES, _GROUPS, _IDS)}
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
