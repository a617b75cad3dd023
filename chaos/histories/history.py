"""What producers were told and what was found in the logs afterwards, compared.

A producer numbers its records from 0 and sends number n to partition n modulo the number of partitions; a record's value names the
producer and the number. It keeps what came of each: an offset, an error, or nothing. `judge` compares that with all records of the
partitions, read from the start to the end, and counts what must not be:

* lost: acknowledged, and not found;
* moved: acknowledged with an offset at which another record is found;
* out of order: of one idempotent producer and partition, a record whose first place is behind that of a later one;
* duplicates: found twice, although the producer was idempotent and kept its producer id and epoch;
* strange: found, and never sent; or at an offset that another record has, or behind a gap;
* changed: a reader that read along was given another record at that offset than stands there now;
* misread: that reader went back, left out records, or did not get the last ones.

A record below the log start offset is lost too, unless somebody asked for its deletion: the caller says up to which offset.

A producer that gets a new producer id or epoch after an error sends again what it has no response to. Apache Kafka then keeps records twice
too, so the duplicates of this producer, and of no other, are allowed.

A record without acknowledgement may be found or not. Producers that are not idempotent may have duplicates, and records that were
overtaken: one request in flight means one for each broker, so after a change of leaders a request to the new one may arrive before the
retry of a request to the former one. Both are counted apart.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Sent:
    """What one producer sent, and what it was told."""

    name: str
    partitions: int
    idempotent: bool
    count: int = 0
    """How many records it handed over: numbers below this."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Number → offset of those that were acknowledged."""
    errors: dict[int, str] = field(default_factory=dict)
    """Number → error of those that failed for good."""
    epochs: int = 1
    """How many producer ids and epochs it was given, one after the other."""

    def value(self, number: int) -> str:
        return f"{self.name}:{number}"

    def partition(self, number: int) -> int:
        return number % self.partitions


Log = Sequence[tuple[int, str]]
"""Offsets and values of a partition's records, in order."""


FAULTS = ("lost", "moved", "out_of_order", "duplicates", "strange", "changed", "misread")


@dataclass
class Verdict:
    """What was counted; lists hold what must not be, as text."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    found: int = 0
    unacknowledged_found: int = 0
    allowed_duplicates: int = 0
    allowed_overtaken: int = 0
    lost: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    misread: list[str] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, list[str]]:
        """What must not be, where there is any; the first ten of each kind."""
        return {kind: getattr(self, kind)[:10] for kind in FAULTS if getattr(self, kind)}

    def text(self) -> str:
        """One line of numbers."""
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged}, failed {self.failed}, found {self.found}, "
            f"found without acknowledgement {self.unacknowledged_found}, allowed duplicates {self.allowed_duplicates}, "
            f"overtaken {self.allowed_overtaken}; "
            f"lost {len(self.lost)}, moved {len(self.moved)}, out of order {len(self.out_of_order)}, "
            f"duplicates {len(self.duplicates)}, strange {len(self.strange)}, changed {len(self.changed)}, "
            f"misread {len(self.misread)}"
        )


def judge(
    producers: Iterable[Sent],
    logs: Mapping[int, Log],
    read_along: Mapping[int, Log] | None = None,
    deleted: Mapping[int, int] | None = None,
) -> Verdict:
    """Compare; `logs` by partition, `read_along` what a consumer got that read from the start to the end while everything went on. Records
    below the offsets `deleted` (0) may be gone, because somebody asked for it.
    """
    deleted = deleted or {}
    verdict = Verdict(found=sum(len(log) for log in logs.values()))
    places: dict[str, list[tuple[int, int]]] = {}
    for partition, log in logs.items():
        _judge_offsets(partition, log, deleted.get(partition, 0), verdict)
        for offset, value in log:
            places.setdefault(value, []).append((partition, offset))
    records = {p: dict(log) for p, log in logs.items()}
    for sent in producers:
        _judge_producer(sent, places, records, deleted, verdict)
    verdict.strange += sorted(f"{value} was never sent" for value in places)
    for partition, log in (read_along or {}).items():
        _judge_reader(partition, log, logs[partition], deleted.get(partition, 0), verdict)
    return verdict


def _judge_offsets(partition: int, log: Log, deleted: int, verdict: Verdict) -> None:
    if log and log[0][0] > deleted:
        asked = f"nobody asked to delete offsets from {deleted} on"
        verdict.strange.append(f"partition {partition} begins with {log[0][1]} at {log[0][0]}, and {asked}")
    for (before, _), (offset, value) in itertools.pairwise(log):
        if offset != before + 1:
            verdict.strange.append(f"partition {partition}: {value} at {offset} behind {before}")


def _judge_producer(
    sent: Sent,
    places: dict[str, list[tuple[int, int]]],
    records: Mapping[int, Mapping[int, str]],
    deleted: Mapping[int, int],
    verdict: Verdict,
) -> None:
    """One producer; takes its values out of `places`."""
    verdict.sent += sent.count
    verdict.acknowledged += len(sent.offsets)
    verdict.failed += len(sent.errors)
    latest: dict[int, int] = {}
    for number in range(sent.count):
        value, partition = sent.value(number), sent.partition(number)
        found = places.pop(value, [])
        strange = [place for place in found if place[0] != partition]
        verdict.strange += [f"{value} in partition {other}, sent to {partition}" for other, _ in strange]
        offset = sent.offsets.get(number)
        is_deleted = offset is not None and 0 <= offset < deleted.get(partition, 0)
        if not found:
            if offset is not None and not is_deleted:
                verdict.lost.append(f"{value}, acknowledged at {partition}/{offset}")
            continue
        verdict.unacknowledged_found += offset is None
        if offset is not None and offset >= 0 and not is_deleted and records[partition].get(offset) != value:
            verdict.moved.append(f"{value} at {found}, acknowledged at {partition}/{offset}")
        if len(found) > 1:
            if sent.idempotent and sent.epochs <= 1:
                verdict.duplicates.append(f"{value} at {found}")
            else:
                verdict.allowed_duplicates += len(found) - 1
        first = min(place[1] for place in found)
        if first < latest.get(partition, -1) and not sent.idempotent:
            verdict.allowed_overtaken += 1
        elif first < latest.get(partition, -1):
            verdict.out_of_order.append(f"{value} at {partition}/{first}, an earlier one at {latest[partition]}")
        latest[partition] = max(first, latest.get(partition, -1))


def _judge_reader(partition: int, read: Log, log: Log, deleted: int, verdict: Verdict) -> None:
    records = dict(log)
    verdict.changed += [
        f"partition {partition}: {value} was read at {offset}, where {records.get(offset)} stands"
        for offset, value in read
        if records.get(offset) != value and (offset >= deleted or offset in records)
    ]
    there = [offset for offset, _ in log]
    wrong = misread([offset for offset, _ in read], there, 0, there[-1] + 1 if there else 0)
    verdict.misread += [f"partition {partition}: {said}" for said in wrong]


def misread(offsets: Iterable[int], there: Sequence[int], start: int, end: int) -> list[str]:
    """What is wrong with the order in which a consumer got `offsets`, having begun at `start` to read up to `end`: steps back, and records
    that were left out. `there` are the offsets of all records, in order. One sentence for each place.
    """
    wrong = []
    wanted = start
    for offset in offsets:
        if offset < wanted:
            wrong.append(f"offset {offset} was read when {wanted} was next")
        elif left_out := there[bisect_left(there, wanted) : bisect_left(there, offset)]:
            wrong.append(f"offset {offset} was read when {wanted} was next, {len(left_out)} records were left out")
        wanted = offset + 1
    if missing := there[bisect_left(there, wanted) : bisect_left(there, end)]:
        wrong.append(f"{len(missing)} records from offset {missing[0]} on were not read")
    return wrong
