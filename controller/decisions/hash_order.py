"""The order in which an Apache Kafka controller goes through brokers that it moves together: that of a hash trie of their ids.

It matters where several replicas of one partition leave the ISR at once: the last one taken out stays in it, and each costs a leader
epoch. The trie has 32 children at each level, five bits of a mixed id choose one; the ids that are alone in their child come first.
"""

from __future__ import annotations

from collections.abc import Iterable

_BITS = 5
_WORD = (1 << 32) - 1


def in_hash_order(broker_ids: Iterable[int]) -> list[int]:
    """These ids, each once, in that order."""
    return _walk([(_mixed(broker_id), broker_id) for broker_id in set(broker_ids)])


def _mixed(number: int) -> int:
    """An id whose bits are spread over the word; no two ids give the same."""
    h = (number + ~(number << 9)) & _WORD
    h ^= h >> 14
    h = (h + (h << 4)) & _WORD
    return h ^ (h >> 10)


def _walk(entries: list[tuple[int, int]]) -> list[int]:
    if len(entries) < 2:
        return [broker_id for _, broker_id in entries]
    children: dict[int, list[tuple[int, int]]] = {}
    for mixed, broker_id in entries:
        children.setdefault(mixed & ((1 << _BITS) - 1), []).append((mixed >> _BITS, broker_id))
    by_child = [children[child] for child in sorted(children)]
    alone = [group[0][1] for group in by_child if len(group) == 1]
    return alone + [broker_id for group in by_child if len(group) > 1 for broker_id in _walk(group)]
