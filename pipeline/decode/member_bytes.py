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

_LENGTH = Struct(">h")
_COUNT = Struct(">i")

Brief = dict[str, Any]


def maker_of(message: str, field: str) -> str | None:
    """The name of the function here that makes a brief object of a field; None for a field of other bytes."""
    if SUBSCRIPTIONS.get(message) == field:
        return subscription_brief.__name__
    return assignment_brief.__name__ if ASSIGNMENTS.get(message) == field else None


def subscription_brief(data: bytes | None) -> Brief | None:
    """`size`, `crc`, and `topics`: the topics that a consumer wants. `head` instead of topics for what is no subscription, `isOdd` if what
    follows the topics is not what its version has there.
    """
    if data is None:
        return None
    try:
        topics, end = _read(data, has_partitions=False)
        return _sized(data) | {"topics": topics} | _oddity(data, end, is_subscription=True)
    except (error, ValueError):
        return _unread(data)


def assignment_brief(data: bytes | None) -> Brief | None:
    """`size`, `crc`, and `partitions`: topics with the partitions that a consumer gets. `head` instead for what is no assignment,
    `isOdd` as above.
    """
    if data is None:
        return None
    try:
        partitions, end = _read(data, has_partitions=True)
        return _sized(data) | {"partitions": partitions} | _oddity(data, end, is_subscription=False)
    except (error, ValueError):
        return _unread(data)


def _sized(data: bytes) -> Brief:
    return {"size": len(data), "crc": crc32(data)}


def _unread(data: bytes) -> Brief:
    return _sized(data) | {"head": b64encode(data[:HEAD_KEPT]).decode()} if data else _sized(data)


def _oddity(data: bytes, place: int, is_subscription: bool) -> Brief:
    """`isOdd` if the bytes from `place` on, behind the topics, are not those of the version. Later versions may have more at the end."""
    (version,) = _LENGTH.unpack_from(data)
    try:
        (length,) = _COUNT.unpack_from(data, place)
        place += _COUNT.size + max(length, 0)
        if is_subscription and version >= 1:
            _, place = _topics(data, place, has_partitions=True)
        if is_subscription and version >= 2:
            place += _COUNT.size
        if is_subscription and version >= 3:
            (length,) = _LENGTH.unpack_from(data, place)
            place += _LENGTH.size + max(length, 0)
    except (error, ValueError):
        return {"isOdd": True}
    return {"isOdd": True} if place > len(data) or length < -1 else {}


def _read(data: bytes, has_partitions: bool) -> tuple[list[Any], int]:
    """The array of topics after the version, the same in all versions, and where it ends."""
    (version,) = _LENGTH.unpack_from(data)
    if version < 0:
        raise ValueError("another format")
    return _topics(data, _LENGTH.size, has_partitions)


def _topics(data: bytes, place: int, has_partitions: bool) -> tuple[list[Any], int]:
    """An array of topics, and where it ends."""
    (count,) = _COUNT.unpack_from(data, place)
    place += _COUNT.size
    if not 0 <= count <= len(data):
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
    return found, place
