"""Topics in the metadata of consumers, which is opaque to the rest of a group (`ConsumerProtocolSubscription` of Apache Kafka)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in all of the subscriptions; None if one of them cannot be read.

    All versions begin with their number (int16) and the topics (an array of strings); what follows is not looked at.
    """
    topics: set[str] = set()
    try:
        for data in subscriptions:
            topics.update(_topics(data))
    except (error, IndexError, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def _topics(data: bytes) -> Iterable[str]:
    version, count = _VERSION_AND_COUNT.unpack_from(data)
    if version < 0 or not 0 <= count <= len(data):
        raise ValueError("not a subscription")
    position = _VERSION_AND_COUNT.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(data):
            raise ValueError("not a subscription")
        yield data[position : position + length].decode()
        position += length
