"""`klamm` with a planted fault: when a committed offset expires, those of open transactions are forgotten with it."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.broker.groups.offsets import Offsets
from klamm.chaos.schedule import Options, Schedule, Step
from klamm.cli.main import main
from klamm.protocol.nouns import TopicPartition

FOUND_BY = Schedule(1, 2000, Options(), (Step(500, "expire-offset", {"number": 1}),))
_forget_committed = Offsets.forget_committed


def _forget_all(offsets: Offsets, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    partitions = list(partitions)
    for partition in partitions:
        for held in offsets._in_transactions.values():
            held.pop(partition, None)
    return _forget_committed(offsets, partitions)


if __name__ == "__main__":
    Offsets.forget_committed = _forget_all  # type: ignore[method-assign, assignment]
    main()
