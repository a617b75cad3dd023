"""Partitions in the assignment of a consumer, which is opaque to the rest of a group (`ConsumerProtocolAssignment` of Apache Kafka).

All versions begin with their number (int16) and the topics: an array of a name and an array of partition numbers. What follows, the data of
the assignor, is not looked at.
"""

from __future__ import annotations

from struct import Struct, error

from klamm.protocol.nouns import TopicPartition

_INT16, _INT32 = Struct(">h"), Struct(">i")


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...] | None:
    """The partitions of an assignment in its order, () if it is empty; None if it cannot be read."""
    if not data:
        return ()
    try:
        return _partitions(data)
    except (error, UnicodeDecodeError, ValueError):
        return None


def _partitions(data: bytes) -> tuple[TopicPartition, ...]:
    partitions: list[TopicPartition] = []
    (version,) = _INT16.unpack_from(data)
    topics, position = _count(data, _INT16.size)
    if version < 0:
        raise ValueError("not an assignment")
    for _ in range(topics):
        (length,) = _INT16.unpack_from(data, position)
        end = position + _INT16.size + length
        if length < 0 or end > len(data):
            raise ValueError("not an assignment")
        topic = data[position + _INT16.size : end].decode()
        count, position = _count(data, end)
        for _ in range(count):
            partitions.append(TopicPartition(topic, *_INT32.unpack_from(data, position)))
            position += _INT32.size
    return tuple(partitions)


def _count(data: bytes, position: int) -> tuple[int, int]:
    """The length of an array, and the position after it."""
    (count,) = _INT32.unpack_from(data, position)
    if not 0 <= count <= len(data):
        raise ValueError("not an assignment")
    return count, position + _INT32.size
