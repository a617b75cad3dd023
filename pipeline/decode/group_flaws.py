"""Requests and responses of members of groups: rules K-06, K-07, K-13, G-08, G-09, O-04."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from klamm.pipeline.decode.flaws import Flaw, partitions_of, repeated
from klamm.pipeline.decode.json_codec import Body

CONSUMER = "consumer"


def join(version: int, body: Body) -> Iterator[Flaw]:
    """K-06."""
    if body.get("protocolType") == CONSUMER:
        for row in body.get("protocols") or ():
            yield from _own_form(f"the subscription for {row['name']}", row.get("metadata"), "topics")


def sync(version: int, body: Body) -> Iterator[Flaw]:
    """K-06, of leaders that say what the protocol is (version 5 and later)."""
    if body.get("protocolType") == CONSUMER:
        for row in body.get("assignments") or ():
            yield from _own_form(f"the assignment of {row['memberId']}", row.get("assignment"), "partitions")


def _own_form(what: str, given: Any, content: str) -> Iterator[Flaw]:
    if given and given["size"] and content not in given:
        yield "K-06", f"{what} does not decode"
    elif given and given.get("isOdd"):
        yield "K-06", f"{what} does not decode in its own version"


def joined(version: int, body: Body) -> Iterator[Flaw]:
    """G-08."""
    members = body.get("members") or ()
    if body["errorCode"]:
        if members:
            yield "G-08", f"names {len(members)} members with error <error {body['errorCode']}>"
        return
    # No leader is named to a member of a group of KIP-848: the coordinator assigns the partitions.
    if body["generationId"] < 1 or not body["memberId"]:
        yield "G-08", f"generation {body['generationId']}, member {body['memberId']!r}, leader {body['leader']!r} without an error"
    if members and body["leader"] != body["memberId"]:
        yield "G-08", f"tells {body['memberId']} of {len(members)} members, and {body['leader']} leads"
    for one in repeated(row["memberId"] for row in members):
        yield "G-08", f"names member {one} twice"


def beat(version: int, body: Body) -> Iterator[Flaw]:
    """K-13: of a group of KIP-848."""
    if body["memberEpoch"] == 0:
        topics = body.get("subscribedTopicNames")
        if (topics is None and body.get("subscribedTopicRegex") is None) or body["rebalanceTimeoutMs"] < 0:
            yield "K-13", f"joins {body['groupId']} with topics {topics} and a rebalance timeout of {body['rebalanceTimeoutMs']} ms"
        if body.get("topicPartitions") != []:
            yield "K-13", f"joins {body['groupId']} with partitions {body.get('topicPartitions')}"


def heartbeat(version: int, body: Body) -> Iterator[Flaw]:
    """G-09: of a group of KIP-848."""
    if body["errorCode"]:
        if body.get("assignment"):
            yield "G-09", f"assigns partitions with error <error {body['errorCode']}>"
    elif body["heartbeatIntervalMs"] <= 0 and body["memberEpoch"] >= 0:
        yield "G-09", f"asks for a heartbeat every {body['heartbeatIntervalMs']} ms"
    for topic in (body.get("assignment") or {}).get("topicPartitions") or ():
        for index in repeated(topic["partitions"]):
            yield "G-09", f"assigns {topic['topicId']}-{index} twice"


def commit(version: int, body: Body) -> Iterator[Flaw]:
    """K-07."""
    for name, index, row in partitions_of(body.get("topics")):
        offset, epoch = row["committedOffset"], row.get("committedLeaderEpoch", -1)
        if offset < 0 or epoch < -1:
            yield "K-07", f"commits offset {offset} of {name}-{index} with leader epoch {epoch}"


def committed(version: int, body: Body) -> Iterator[Flaw]:
    """O-04."""
    for group in body.get("groups") or (body,):
        for name, index, row in partitions_of(group.get("topics")):
            offset, epoch = row["committedOffset"], row.get("committedLeaderEpoch", -1)
            if offset < -1 or epoch < -1 or (offset >= 0 and row["errorCode"]) or (offset < 0 <= epoch):
                yield "O-04", f"{name}-{index} has offset {offset}, leader epoch {epoch} and error <error {row['errorCode']}>"
