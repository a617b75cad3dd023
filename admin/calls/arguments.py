"""Checks arguments before anything is sent. A wrong type raises TypeError, a value that cannot be sent raises ValueError.

Only values that the protocol cannot carry or that no broker accepts are refused here. Rules that depend on the cluster (is the broker
alive?) are checked by the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from klamm.protocol.nouns import Ints, TopicPartition

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
K = TypeVar("K")
V = TypeVar("V")


def check_int(value: object, what: str, low: int, high: int) -> int:
    """The value, if it is an int from `low` to `high`. A bool is not an int here."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be an int, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{what} must be from {low} to {high}, not {value}")
    return int(value)


def check_bool(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be a bool, not {value!r}")
    return value


def check_timeout(timeout_ms: object) -> int:
    """A timeout in ms that fits into an int32."""
    return check_int(timeout_ms, "timeout_ms", 0, INT32_MAX)


def check_topic(name: object) -> str:
    """A topic name. The broker checks whether its characters are allowed."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name must be a str, not {name!r}")
    if not name or len(name.encode()) > 32767:
        raise ValueError(f"a topic's name must have from 1 to 32767 bytes, not {len(name.encode())}")
    return name


def check_group(group_id: object) -> str:
    """A group id. The broker checks whether it may be empty."""
    return check_text(group_id, "a group id")


def check_text(value: object, what: str) -> str:
    """A string that the protocol can carry."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}")
    if len(value.encode()) > 32767:
        raise ValueError(f"{what} must have at most 32767 bytes, not {len(value.encode())}")
    return value


def check_partition(value: object) -> TopicPartition:
    """A partition, from a pair of a topic name and a number."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"a partition must be a pair of a topic's name and a number, not {value!r}")
    return TopicPartition(check_topic(value[0]), check_int(value[1], f"the partition of {value[0]}", 0, INT32_MAX))


def check_partitions(values: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """The partitions in the given order, without duplicates."""
    return list(dict.fromkeys(check_partition(value) for value in check_iterable(values, "partitions")))


def check_iterable(values: Iterable[V], what: str) -> Iterable[V]:
    """The values. A string is refused, because its characters would be taken as elements."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a collection, not {values!r}")
    return values


def check_mapping(values: Mapping[K, V], what: str) -> Mapping[K, V]:
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a mapping, not {values!r}")
    return values


def check_broker(value: object) -> int:
    return check_int(value, "a broker id", 0, INT32_MAX)


def check_replicas(values: Iterable[int], what: str) -> Ints:
    """The broker ids in order. Lists that no partition can have (duplicate or negative ids) are refused by the broker, for each partition.
    """
    return tuple(check_int(value, f"a broker id of {what}", -INT32_MAX - 1, INT32_MAX) for value in check_iterable(values, what))


def check_target(values: Iterable[int], partition: TopicPartition) -> Ints:
    """The target replicas of a partition, at least one."""
    replicas = check_replicas(values, f"the replicas of {partition}")
    if not replicas:
        raise ValueError(f"the replicas of {partition} are empty")
    return replicas


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic → its partition numbers, in the given order."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
