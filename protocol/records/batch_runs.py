"""Batches that came in several requests and go into the log as one piece."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.protocol.records.batch import Buffer
from klamm.protocol.records.rules import AppendRules, Assigned
from klamm.protocol.records.validation import assign_as_is


def assign_run(
    batches: Sequence[Buffer], version: int, base_offset: int, leader_epoch: int, rules: AppendRules, now_ms: int, most: int
) -> list[Assigned]:
    """The batches as they are stored one after the other from `base_offset` on, `most` bytes together.

    It ends before the first one that has to be changed, may be refused, or has a producer id, whose sequence numbers a log must judge one
    by one.
    """
    run: list[Assigned] = []
    if version < 3:
        return run
    size = 0
    for records in batches:
        size += len(records)
        assigned = assign_as_is(bytes(records), base_offset, leader_epoch, rules, now_ms) if size <= most else None
        if assigned is None:
            break
        header = assigned.headers[0]
        if header.producer_id >= 0 or header.attributes:
            break
        run.append(assigned)
        base_offset = header.next_offset
    return run


def joined(run: Sequence[Assigned]) -> Assigned:
    """These batches as one piece."""
    newest = max(run, key=_max_timestamp)
    data = b"".join([each.data for each in run])
    headers = [each.headers[0] for each in run]
    return Assigned(data, headers, newest.max_timestamp, newest.offset_of_max_timestamp, run[0].log_append_time_ms)


def _max_timestamp(assigned: Assigned) -> int:
    return assigned.max_timestamp
