"""The order in which Apache Kafka writes the keys of a map: that of the hash tables it keeps them in.

It means nothing to readers. Writing the same order lets two trees be compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache


def scala_order(keys: Iterable[str]) -> list[str]:
    """Order of a mutable Scala map filled one by one: by slot of the table, within a slot by hash."""
    names = list(keys)
    mask = _table_size(len(names)) - 1
    return sorted(names, key=lambda name: (_spread(name) & mask, _spread(name)))


@lru_cache(maxsize=256)
def partition_order(count: int) -> tuple[str, ...]:
    """Order of the partitions 0 to `count` - 1 of a topic."""
    return tuple(scala_order(map(str, range(count))))


def properties_order(keys: Iterable[str]) -> list[str]:
    """Order of Java properties: by slot of the table, within a slot as they came."""
    names = list(keys)
    mask = _table_size(len(names)) - 1
    return sorted(names, key=lambda name: _spread(name) & mask)


def _table_size(count: int) -> int:
    """Both tables begin with 16 slots and are doubled when three quarters are reached."""
    size = 16
    while count >= size * 3 // 4:
        size *= 2
    return size


def _spread(name: str) -> int:
    """Hash of a string as Java computes it (names here are ASCII), its upper half folded into the lower; a signed 32-bit number."""
    value = 0
    for character in name:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value
