"""Where a follower cuts its log when the leader says that the two logs differ. Pure functions.

The leader names the largest leader epoch that is not above the one the follower's log ends with, and where that epoch ends in the leader's
log; in a Fetch response (a diverging epoch) from inter-broker protocol 2.7 on, in an OffsetForLeaderEpoch response before. A follower
that has this epoch cuts to the smaller of the two ends. A follower that does not have it cuts to the end of its largest epoch below, and
the comparison goes on from there with the next request. Source: KIP-101, KIP-279, KIP-595; `AbstractFetcherThread` of 3.9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

UNDEFINED = -1
"""No epoch, and no offset of one."""


class Truncation(NamedTuple):
    """The log's next end. `is_complete`: the logs agree up to there; else another request has to follow."""

    offset: int
    is_complete: bool


def truncation(
    leader_epoch: int,
    leader_end_offset: int,
    fetch_offset: int,
    log_end_offset: int,
    end_offset_for: Callable[[int], tuple[int, int]],
) -> Truncation:
    """Where to cut, by what the leader said: `leader_epoch` ends at `leader_end_offset` in its log.

    `fetch_offset` is where the follower would go on without a cut. `end_offset_for(epoch)` is (epoch, end offset) of the follower's own
    largest epoch that is not above, (-1, -1) where it has none.
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
    """What a follower does whose offset the leader does not have. `starts_anew`: the whole log goes, and a new one begins at `offset`."""

    offset: int
    is_truncated: bool
    starts_anew: bool


def out_of_range(log_end_offset: int, leader_end_offset: int, leader_start_offset: int | None) -> OutOfRange | None:
    """How to go on by the leader's offsets; None when the leader's start offset is needed and not given.

    The follower has more records than the leader (an unclean election): they are cut off. The leader deleted what comes next: the follower
    starts again at the leader's start. Otherwise the offset is in range by now, and the follower goes on.
    """
    if leader_end_offset < log_end_offset:
        return OutOfRange(leader_end_offset, True, False)
    if leader_start_offset is None:
        return None
    if leader_start_offset > log_end_offset:
        return OutOfRange(leader_start_offset, False, True)
    return OutOfRange(log_end_offset, False, False)
