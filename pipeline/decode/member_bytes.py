"""What members of a group send through the coordinator, which does not look into it: subscriptions and assignments.

A table has their size, a checksum to compare them by, and what consumers say in them (`ConsumerProtocolSubscription`,
`ConsumerProtocolAssignment` of Apache Kafka). What other protocols send, such as that of Kafka Connect, is only its first bytes.
"""

from __future__ import annotations

from base64 import b64encode
from struct import Struct, error
from typing import Any
from zlib import crc32

HEAD_KEPT = 61
"""Bytes that are kept of what is not in the consumers' format."""

SUBSCRIPTIONS = {"JoinGroupRequest": "metadata", "JoinGroupResponse": "metadata", "DescribeGroupsResponse": "memberMetadata"}
ASSIGNMENTS = {"SyncGroupRequest": "assignment", "SyncGroupResponse": "assignment", "DescribeGroupsResponse": "memberAssignment"}
"""Message → its field with these bytes."""

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")
_COUNT = Struct(">i")

Brief = dict[str, Any]


def maker_of(message: str, field: str) -> str | None:
    """The name of the function here that makes a brief object of a field; None for a field of other bytes."""
    if SUBSCRIPTIONS.get(message) == field:
        return subscription_brief.__name__
    return assignment_brief.__name__ if ASSIGNMENTS.get(message) == field else None


def subscription_brief(data: bytes | None) -> Brief | None:
    """`size`, `crc`, and `topics`: the topics that a consumer wants. `head` instead of topics for what is no subscription."""
    if data is None:
        return None
    try:
        return _sized(data) | {"topics": _read(data, has_partitions=False)}
    except (error, ValueError):
        return _unread(data)


def assignment_brief(data: bytes | None) -> Brief | None:
    """`size`, `crc`, and `partitions`: topics with the partitions that a consumer gets. `head` instead for what is no assignment."""
    if data is None:
        return None
    try:
        return _sized(data) | {"partitions": _read(data, has_partitions=True)}
    except (error, ValueError):
        return _unread(data)


def _sized(data: bytes) -> Brief:
    return {"size": len(data), "crc": crc32(data)}


def _unread(data: bytes) -> Brief:
    return _sized(data) | {"head": b64encode(data[:HEAD_KEPT]).decode()} if data else _sized(data)


def _read(data: bytes, has_partitions: bool) -> list[Any]:
    """The array of topics after the version, the same in all versions. What follows it is not looked at."""
    version, count = _VERSION_AND_COUNT.unpack_from(data)
    place = _VERSION_AND_COUNT.size
    if version < 0 or not 0 <= count <= len(data):
        raise ValueError("another format")
    found: list[Any] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if length < 0 or place + length > len(data):
            raise ValueError("another format")
        topic = data[place : place + length].decode()
        place += length
        if has_partitions:
            (many,) = _COUNT.unpack_from(data, place)
            place += _COUNT.size
            if not 0 <= many <= (len(data) - place) // 4:
                raise ValueError("another format")
            partitions = list(Struct(f">{many}i").unpack_from(data, place))
            place += 4 * many
            found.append({"topic": topic, "partitions": partitions})
        else:
            found.append(topic)
    return found
