"""What a Produce request for one partition has in front of its records, read without the codec.

A producer that sends one partition in each request repeats these bytes: client id, acks, time-out, topic, partition. Requests with more
partitions, with a transactional id, or with tagged fields are not read here.
"""

from __future__ import annotations

import struct
from struct import Struct

FIRST_VERSION, LAST_VERSION = 3, 11
FLEXIBLE_SINCE = 9
_TAGS_BEHIND = b"\0\0\0"
"""Behind the records from version 9 on: no tagged fields of partition, topic and request."""

_INT = Struct(">i")
_SHORT = Struct(">h")
_ACKS_AND_TIMEOUT = Struct(">hi")


class Prefix:
    """`head` is the API key and the version, `bytes` are those from 8 to `end` of the request; and what they say."""

    __slots__ = ("acks", "bytes", "end", "head", "index", "is_flexible", "timeout_ms", "topic", "version")

    def __init__(self, payload: bytes, end: int, topic: str, index: int, acks: int, timeout_ms: int) -> None:
        self.head = payload[:4]
        self.version = payload[3]
        self.is_flexible = self.version >= FLEXIBLE_SINCE
        self.bytes = payload[8:end]
        self.end = end
        self.topic = topic
        self.index = index
        self.acks = acks
        self.timeout_ms = timeout_ms


def read_prefix(payload: bytes) -> Prefix | None:
    """The prefix of a request for one partition, without a transactional id; None for other requests, and where bytes are missing."""
    try:
        version = payload[3]
        if payload[2] or not FIRST_VERSION <= version <= LAST_VERSION:
            return None
        (length,) = _SHORT.unpack_from(payload, 8)
        position = 10 + max(length, 0)
        if version >= FLEXIBLE_SINCE:
            return _read_flexible(payload, position)
        if payload[position : position + 2] != b"\xff\xff":
            return None
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(payload, position + 2)
        topics, name_length = _INT.unpack_from(payload, position + 8)[0], _SHORT.unpack_from(payload, position + 12)[0]
        end = position + 14 + name_length + 8
        if topics != 1 or name_length < 1 or payload[end - 8 : end - 4] != b"\0\0\0\1":
            return None
        topic = payload[position + 14 : end - 8].decode()
        return Prefix(payload, end, topic, _INT.unpack_from(payload, end - 4)[0], acks, timeout_ms)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _read_flexible(payload: bytes, position: int) -> Prefix | None:
    """From version 9 on, behind the client id. The lengths that matter are one byte each: names have at most 126 bytes here."""
    if payload[position : position + 2] != b"\0\0" or payload[position + 8] != 2:
        return None
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(payload, position + 2)
    name_length = payload[position + 9] - 1
    if not 1 <= name_length <= 126:
        return None
    end = position + 10 + name_length + 5
    if payload[end - 5] != 2:
        return None
    topic = payload[position + 10 : end - 5].decode()
    return Prefix(payload, end, topic, _INT.unpack_from(payload, end - 4)[0], acks, timeout_ms)


def records_limits(payload: bytes, prefix: Prefix) -> tuple[int, int]:
    """Where the records of a request with this prefix begin and end; (0, 0) when they are null, or something else is behind them."""
    start = prefix.end
    if not prefix.is_flexible:
        start += 4
        if len(payload) < start or _INT.unpack_from(payload, start - 4)[0] != len(payload) - start:
            return 0, 0
        return start, len(payload)
    length = shift = 0
    while start < len(payload):
        byte = payload[start]
        length |= (byte & 0x7F) << shift
        start += 1
        if byte < 0x80:
            break
        shift += 7
    end = start + length - 1
    if length < 1 or end + 3 != len(payload) or payload[end:] != _TAGS_BEHIND:
        return 0, 0
    return start, end
