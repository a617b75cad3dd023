"""Decides where a follower truncates its log if it differs from the leader's. Pure functions.

The leader sends the largest leader epoch that is not above the last epoch in the follower's log, and the end offset of that epoch in the
leader's log. From inter-broker protocol 2.7 on it is in a Fetch response (diverging epoch), before that in an OffsetForLeaderEpoch
response. A follower that has this epoch truncates to the smaller of the two end offsets. A follower that does not have it truncates to the
end of its largest epoch below, and the next request continues the comparison. Source: KIP-101, KIP-279, KIP-595; `AbstractFetcherThread` of
3.9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

UNDEFINED = -1
"""Stands for no epoch, or for no offset."""


class Truncation(NamedTuple):
    """The new end of the log. `is_complete`: the logs agree up to there; otherwise another request is needed."""

    offset: int
    is_complete: bool


def truncation(
    leader_epoch: int,
    leader_end_offset: int,
    fetch_offset: int,
    log_end_offset: int,
    end_offset_for: Callable[[int], tuple[int, int]],
) -> Truncation:
    """The truncation for a leader in whose log `leader_epoch` ends at `leader_end_offset`.

    `fetch_offset` is where the follower continues without truncation. `end_offset_for(epoch)` returns (epoch, end offset) of the follower's
    largest epoch not above this one, (-1, -1) if there is none.
    """
    if leader_end_offset == UNDEFINED:
        return Truncation(fetch_offset, True)
    if leader_epoch == UNDEFINED:  # version 0 of OffsetForLeaderEpoch
        return Truncation(min(leader_end_offset, log_end_offset), True)
    own_epoch, own_end_offset = end_offset_for(leader_epoch)
    if own_end_offset == UNDEFINED:
        return Truncation(min(leader_end_offset, log_end_offset), True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_end_offset, log_end_offset), False)
    return Truncation(min(own_end_offset, leader_end_offset, log_end_offset), True)


class OutOfRange(NamedTuple):
    """What a follower does after OFFSET_OUT_OF_RANGE. `starts_again`: all records are deleted, and the log begins at `offset`."""

    offset: int
    is_truncated: bool
    starts_again: bool


def out_of_range(log_end_offset: int, leader_end_offset: int, leader_start_offset: int | None) -> OutOfRange | None:
    """Decide by the leader's offsets; None if the leader's start offset is needed and not given.

    If the follower has more records than the leader (after an unclean election), it truncates its log. If the leader has deleted the next
    records, the follower starts again at the leader's start offset. Otherwise the offset is in range now, and the follower continues.
    """
    if leader_end_offset < log_end_offset:
        return OutOfRange(leader_end_offset, True, False)
    if leader_start_offset is None:
        return None
    if leader_start_offset > log_end_offset:
        return OutOfRange(leader_start_offset, False, True)
    return OutOfRange(log_end_offset, False, False)
