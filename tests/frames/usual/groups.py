"""Requests of a group with one member."""

from __future__ import annotations

import base64
import random
from typing import Any

from klamm.tests.frames.usual.values import GENERATION, INSTANCE, MEMBER, by_name, partition


def offsets(source: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "partitionIndex": partition(source),
            "committedOffset": source.choice((0, 5, -1)),
            "committedLeaderEpoch": source.choice((-1, 0)),
            "committedMetadata": source.choice(("", "m", None)),
        }
    ]


def commit(source: random.Random) -> dict[str, Any]:
    member = source.random() < 0.6
    return {
        "groupId": source.choice(("g", "h")),
        "generationIdOrMemberEpoch": GENERATION if member else -1,
        "memberId": MEMBER if member else "",
        "topics": by_name(source, partitions=lambda: offsets(source)),
    }


def committed(source: random.Random) -> dict[str, Any]:
    topics = None if source.random() < 0.3 else by_name(source, partitionIndexes=lambda: [partition(source)])
    group = source.choice(("g", "h"))
    body: dict[str, Any] = {"groupId": group, "groups": [{"groupId": group, "topics": topics}], "requireStable": source.random() < 0.3}
    return body | ({} if topics is None else {"topics": topics})


def member(source: random.Random, **fields: Any) -> dict[str, Any]:
    return {
        "groupId": source.choice(("g", "g", "g", "h")),
        "memberId": source.choice((MEMBER, MEMBER, MEMBER, "nix")),
        "generationId": source.choice((GENERATION, GENERATION, GENERATION, 0, -1)),
        **fields,
    }


def join(source: random.Random) -> dict[str, Any]:
    return {
        "groupId": "g",
        "memberId": source.choice((MEMBER, MEMBER, "")),
        "groupInstanceId": INSTANCE,
        "sessionTimeoutMs": 60_000,
        "rebalanceTimeoutMs": 60_000,
        "protocolType": source.choice(("consumer", "consumer", "connect", "")),
        "protocols": [
            {"name": name, "metadata": base64.b64encode(b"abc").decode()} for name in source.choice((["a"], ["a", "b"], ["b"], []))
        ],
    }


def sync(source: random.Random) -> dict[str, Any]:
    rows = source.choice(([], [{"memberId": MEMBER, "assignment": "YQ=="}], [{"memberId": "nix", "assignment": "YQ=="}]))
    return member(
        source, protocolType=source.choice((None, "consumer", "nix")), protocolName=source.choice((None, "a", "b")), assignments=rows
    )


def leave(source: random.Random) -> dict[str, Any]:
    members = [{"memberId": name} for name in source.choice(([MEMBER], ["nix"], [MEMBER, "nix"], []))]
    return {"groupId": "g", "memberId": MEMBER, "members": members}
