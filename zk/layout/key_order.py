"""The order in which Apache Kafka writes the keys of a map: that of its hash tables.

Readers ignore the order. With the same order, two trees of znodes can be compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from klamm.protocol.hash_order import string_hash


def scala_order(keys: Iterable[str]) -> list[str]:
    """Order of a mutable Scala map after inserting key by key: by slot of the table, then by hash."""
    names = list(keys)
    mask = _table_size(len(names)) - 1
    return sorted(names, key=lambda name: (_spread(name) & mask, _spread(name)))


@lru_cache(maxsize=256)
def partition_order(count: int) -> tuple[str, ...]:
    """Order of the partitions 0 to `count` - 1 of a topic."""
    return tuple(scala_order(map(str, range(count))))


def properties_order(keys: Iterable[str]) -> list[str]:
    """Order of Java properties: by slot of the table, then in the order of insertion."""
    names = list(keys)
    mask = _table_size(len(names)) - 1
    return sorted(names, key=lambda name: _spread(name) & mask)


def _table_size(count: int) -> int:
    """The number of slots. Both tables begin with 16 slots and double when they are three quarters full."""
    size = 16
    while count >= size * 3 // 4:
        size *= 2
    return size


def _spread(name: str) -> int:
    """The hash of a string in Java, with its upper half XORed into the lower half; a signed 32-bit number."""
    value = string_hash(name) & 0xFFFFFFFF
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value
