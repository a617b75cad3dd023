"""What producers of a compacted topic sent, and what may be the last values of its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from klamm.chaos.histories.history import Sent

TOMBSTONE_EVERY = 5
"""Of the records with a key, one in so many deletes its key."""


@dataclass
class KeyedSent(Sent):
    """Records with keys, for a compacted topic: each key in turn, its records always in the same partition."""

    keys: int = 1

    def record(self, number: int) -> tuple[str, str | None]:
        """Key and value; a tombstone has None. A key has values and tombstones in turn."""
        return f"key{number % self.keys}", None if number // self.keys % TOMBSTONE_EVERY == TOMBSTONE_EVERY - 1 else self.value(number)

    def partition(self, number: int) -> int:
        return number % self.keys % self.partitions


def judge_last_values(sent: Sequence[KeyedSent], last: Mapping[str, str | None]) -> list[str]:
    """What is wrong with the last values of a compacted topic that one producer wrote: `last` is what a reader of all of it ends with.

    A key may end with its last acknowledged record, or with one sent later that was not acknowledged. A tombstone may be gone itself.
    """
    wrong = []
    written: dict[str, list[tuple[str | None, bool]]] = {}
    for producer in sent:
        for number in range(producer.count):
            key, value = producer.record(number)
            written.setdefault(key, []).append((value, number in producer.offsets))
    for key, records in written.items():
        acknowledged = max((place for place, (_, told) in enumerate(records) if told), default=-1)
        allowed = {value for value, _ in records[max(acknowledged, 0) :]}
        if acknowledged < 0:
            allowed.add(None)
        if last.get(key) not in allowed:
            wrong.append(f"{key} is {last.get(key)}, not one of {sorted(map(str, allowed))[:5]}")
    wrong += [f"{key} was never sent" for key in last if key not in written]
    return wrong
