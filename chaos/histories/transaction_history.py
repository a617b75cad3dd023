"""What transactions may have done: all records of one are visible or none, and what was read is copied exactly once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

Log = Sequence[tuple[int, str]]
ABORTED_VISIBLE = "aborted visible"


class Outcome(Enum):
    """What a copier knows of a transaction."""

    OPEN = "open"
    """It is being written."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNCOMMITTED = "never committed"
    """No commit was requested, and no abort was acknowledged."""
    UNKNOWN = "unknown"
    """A commit was requested; nobody knows what came of it. After a failed abort of a requested commit too."""


@dataclass
class Attempt:
    """One transaction: its name and the places, partition and offset, that it copies."""

    name: str
    inputs: list[tuple[int, int]]
    outcome: Outcome = Outcome.OPEN


def copied(value: str, partition: int, offset: int, attempt: str) -> str:
    """The value of a copy."""
    return f"{value}|{partition}|{offset}|{attempt}"


def judge_copies(
    attempts: Iterable[Attempt], copies: Mapping[int, Log], committed: Mapping[int, int], source: Mapping[int, Log]
) -> dict[str, list[str]]:
    """What must not be, by rule. `copies` is what a reader of committed records got, `committed` the offsets of the copiers' group.

    * aborted visible: records of a transaction that was aborted, or whose commit was never requested;
    * torn: some records of a transaction are visible and others are not; or none of one that was committed;
    * copied twice, not copied: a place below the committed offset that is not copied exactly once, or one behind it that is copied;
    * copies out of order; copies changed: the copy is not of the record that is at that place.
    """
    rules = (ABORTED_VISIBLE, "torn", "copied twice", "not copied", "copies out of order", "copies changed")
    faults: dict[str, list[str]] = {rule: [] for rule in rules}
    visible: dict[str, list[tuple[int, int]]] = {}
    times: dict[tuple[int, int], int] = {}
    records = {partition: dict(log) for partition, log in source.items()}
    latest: dict[int, int] = {}
    for log in copies.values():
        for place, text in log:
            value, partition_text, offset_text, attempt = text.split("|")
            partition, offset = int(partition_text), int(offset_text)
            visible.setdefault(attempt, []).append((partition, offset))
            times[partition, offset] = times.get((partition, offset), 0) + 1
            if records[partition].get(offset) != value:
                faults["copies changed"].append(f"{text}: {records[partition].get(offset)} stands at {partition}/{offset}")
            if offset < latest.get(partition, -1):
                faults["copies out of order"].append(f"{text} at {place}: {partition}/{latest[partition]} is copied before it")
            latest[partition] = max(latest.get(partition, -1), offset)
    for each in attempts:
        _judge_attempt(each, visible.pop(each.name, []), faults)
    faults["torn"] += [f"{name} is visible, and no copier knows it" for name in visible]
    faults["copied twice"] += [f"{p}/{o} is copied {count} times" for (p, o), count in times.items() if count > 1]
    for partition, end in committed.items():
        faults["not copied"] += [f"{partition}/{o} is below the committed offset {end}" for o in records[partition] if o < end
                                 and (partition, o) not in times]
        faults["not copied"] += [f"{p}/{o} is copied, and {end} is committed" for p, o in times if p == partition and o >= end]
    return {rule: found for rule, found in faults.items() if found}


def _judge_attempt(attempt: Attempt, visible: list[tuple[int, int]], faults: dict[str, list[str]]) -> None:
    said = f"{attempt.name}, {attempt.outcome.value}: {len(set(visible))} of {len(attempt.inputs)} records are visible"
    if attempt.outcome in (Outcome.ABORTED, Outcome.UNCOMMITTED, Outcome.OPEN):
        if visible:
            faults[ABORTED_VISIBLE].append(said)
    elif 0 < len(set(visible)) < len(attempt.inputs) or (attempt.outcome is Outcome.COMMITTED and not visible):
        faults["torn"].append(said)
