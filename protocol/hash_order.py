"""Hashes of strings as Java computes them, which decide the partition of a key; and the order in which Apache Kafka goes through a set or
a map of Scala that cannot change: that of a hash trie.

The order matters where several brokers leave the ISR of one partition at once (the last one taken out stays in it, and each costs a leader
epoch), and where two protocols of a group have the same number of votes. The trie has 32 children at each level, five bits of a mixed hash
choose one; the keys that are alone in their child come first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

K = TypeVar("K")

_BITS = 5
_WORD = (1 << 32) - 1


def string_hash(text: str) -> int:
    """`String.hashCode`: a signed 32-bit number, computed from UTF-16 code units."""
    value = 0
    if text.isascii():
        for character in text:
            value = (31 * value + ord(character)) & _WORD
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & _WORD
    return value - (1 << 32) if value >> 31 else value


@lru_cache(maxsize=4096)
def partition_for(key: str, count: int) -> int:
    """The partition of an internal topic that has the state of a group or of a transactional id."""
    value = string_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % count


def in_hash_order(broker_ids: Iterable[int]) -> list[int]:
    """These ids, each once, in that order."""
    return _walk([(_mixed(broker_id), broker_id) for broker_id in set(broker_ids)])


def names_in_hash_order(names: Iterable[str]) -> list[str]:
    """These names, each once, in that order. Names with equal hashes stay as they come."""
    return _walk([(_mixed(string_hash(name)), name) for name in dict.fromkeys(names)])


def _mixed(number: int) -> int:
    """A hash whose bits are spread over the word; no two give the same."""
    h = (number + ~(number << 9)) & _WORD
    h ^= h >> 14
    h = (h + (h << 4)) & _WORD
    return h ^ (h >> 10)


def _walk(entries: list[tuple[int, K]]) -> list[K]:
    if len(entries) < 2 or len({mixed for mixed, _ in entries}) == 1:
        return [key for _, key in entries]
    children: dict[int, list[tuple[int, K]]] = {}
    for mixed, key in entries:
        children.setdefault(mixed & ((1 << _BITS) - 1), []).append((mixed >> _BITS, key))
    by_child = [children[child] for child in sorted(children)]
    alone = [group[0][1] for group in by_child if len(group) == 1]
    return alone + [key for group in by_child if len(group) > 1 for key in _walk(group)]
