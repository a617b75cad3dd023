"""What a consumer group may have done: every record delivered at least once, commits that never fall, nothing committed unread.

A broker that does not know yet that it is not the coordinator any more may show old offsets to somebody who only asks, in Apache Kafka
too. It cannot complete a rebalance, though: what a member begins with after its assignment is what was committed last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from klamm.chaos.histories.history import misread

Log = Sequence[tuple[int, str]]


class Delivery(NamedTuple):
    """A record that a member got."""

    partition: int
    offset: int
    value: str
    place: int = 0
    """How often the member had been given another place in the partition: an assignment, or after it lost its offset."""


class Commit(NamedTuple):
    """A commit, and when it was acknowledged, None if it was not; seconds of a monotonic clock."""

    partition: int
    offset: int
    acknowledged_s: float | None


class Start(NamedTuple):
    """The first offset that a member got of a partition after that was assigned to it at `assigned_s`."""

    partition: int
    offset: int
    assigned_s: float


def judge_group(
    deliveries: Iterable[Sequence[Delivery]],
    starts: Iterable[Start],
    commits: Iterable[Commit],
    final: Mapping[int, int | None],
    logs: Mapping[int, Log],
    group: str = "the group",
) -> dict[str, list[str]]:
    """What must not be, by rule. `deliveries` by member; `final` has the committed offsets when all is over, `logs` all records, by
    partition.

    * changed: a member got a record that is not the one at its offset;
    * misread: a member went back or left out records, although it was given no other place;
    * skipped: an offset below the committed one that no member ever got;
    * fell: a member began below an offset whose commit was acknowledged before its assignment, or such an offset is not committed any more
      at the end.
    """
    faults: dict[str, list[str]] = {"changed": [], "misread": [], "skipped": [], "fell": []}
    got: dict[int, set[int]] = {partition: set() for partition in logs}
    records = {partition: dict(log) for partition, log in logs.items()}
    for member in deliveries:
        faults["misread"] += [f"{group}: {said}" for said in _misread(member, logs)]
        for partition, offset, value, _ in member:
            got[partition].add(offset)
            if records[partition].get(offset) != value:
                there = records[partition].get(offset)
                faults["changed"].append(f"{group} got {value} at {partition}/{offset}, where {there} stands")
    for partition, end in final.items():
        missing = [o for o in records[partition] if end is not None and o < end and o not in got[partition]]
        faults["skipped"] += [f"{group} committed {end} in partition {partition}, nobody got offset {o}" for o in missing]
    faults["fell"] = _fallen(commits, starts, final, group)
    return {rule: found for rule, found in faults.items() if found}


def _misread(member: Sequence[Delivery], logs: Mapping[int, Log]) -> Iterator[str]:
    """Places where a member did not get the next record."""
    there = {partition: [offset for offset, _ in log] for partition, log in logs.items()}
    runs: dict[tuple[int, int], list[int]] = {}
    for partition, offset, _, place in member:
        runs.setdefault((partition, place), []).append(offset)
    for (partition, _), offsets in runs.items():
        yield from (f"partition {partition}: {said}" for said in misread(offsets, there[partition], offsets[0], offsets[-1] + 1))


def _fallen(commits: Iterable[Commit], starts: Iterable[Start], final: Mapping[int, int | None], group: str) -> list[str]:
    done = sorted((each.acknowledged_s, each.partition, each.offset) for each in commits if each.acknowledged_s is not None)
    fallen = []
    highest: dict[int, int] = {}
    place = 0
    for partition, offset, assigned_s in sorted(starts, key=lambda each: each.assigned_s):
        while place < len(done) and done[place][0] < assigned_s:
            _, of, committed = done[place]
            highest[of] = max(highest.get(of, 0), committed)
            place += 1
        if offset < highest.get(partition, 0):
            said = f"{group}: a member began at offset {offset} of partition {partition}, {highest[partition]} was committed before"
            fallen.append(said)
    for _, of, committed in done:
        highest[of] = max(highest.get(of, 0), committed)
    for partition, end in final.items():
        if (0 if end is None else end) < highest.get(partition, 0):
            fallen.append(f"{group}: offset {end} of partition {partition} is committed at the end, {highest[partition]} was before")
    return fallen
