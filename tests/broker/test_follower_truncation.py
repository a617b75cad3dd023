"""Where a follower cuts its log: the pure decisions, each as `AbstractFetcherThread` of 3.9.1 takes it."""

from __future__ import annotations

import pytest

from klamm.broker.follower_truncation import OutOfRange, Truncation, out_of_range, truncation

LOG_END = 100


def epochs(*entries):
    """Of a log that ends at 100: (epoch, start offset) each, as LeaderEpochs.end_offset_for sees them."""

    def end_offset_for(epoch):
        if not entries or epoch > entries[-1][0]:
            return -1, -1
        if epoch == entries[-1][0]:
            return epoch, LOG_END
        own = [e for e, _ in entries if e <= epoch]
        following = next(start for e, start in entries if e > epoch)
        return (own[-1] if own else epoch), following

    return end_offset_for


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "own", "expected"),
    [
        (5, 80, [(5, 10)], Truncation(80, True)),
        (5, 120, [(5, 10)], Truncation(100, True)),
        (5, 80, [(5, 10), (7, 60)], Truncation(60, True)),
        (5, 50, [(5, 10), (7, 60)], Truncation(50, True)),
        (5, 80, [(3, 10), (7, 60)], Truncation(60, False)),
        (2, 40, [(3, 10), (7, 60)], Truncation(10, True)),
        (5, 80, [], Truncation(80, True)),
        (5, 120, [], Truncation(100, True)),
        (9, 80, [(5, 10)], Truncation(80, True)),
        (-1, 70, [(5, 10)], Truncation(70, True)),
        (-1, 170, [(5, 10)], Truncation(100, True)),
        (-1, -1, [(5, 10)], Truncation(90, True)),
    ],
    ids=[
        "the same last epoch ends earlier on the leader",
        "the leader's epoch is longer",
        "the follower has a later epoch that the leader has not",
        "the leader's end of the common epoch is lower",
        "the follower lacks the epoch and asks again from its next lower one",
        "the leader's epoch is before all own",
        "the follower has no epochs and trusts the leader's end",
        "the follower has no epochs and is shorter",
        "the epoch is later than all own",
        "version 0 gives no epoch",
        "version 0 gives no epoch and a higher end",
        "the leader knows no end: the follower goes on at its fetch offset",
    ],
)
def test_a_log_is_cut_where_the_leaders_epoch_and_ours_end(leader_epoch, leader_end, own, expected):
    assert truncation(leader_epoch, leader_end, 90, LOG_END, epochs(*own)) == expected


@pytest.mark.parametrize(
    ("leader_end", "leader_start", "expected"),
    [
        (80, None, OutOfRange(80, True, False)),
        (100, None, None),
        (300, 200, OutOfRange(200, False, True)),
        (300, 100, OutOfRange(100, False, False)),
        (300, 50, OutOfRange(100, False, False)),
    ],
    ids=[
        "more records than the leader: cut",
        "else the leader's start is needed",
        "the leader deleted what comes next: start anew",
        "the leader begins where we end: go on",
        "in range again: go on",
    ],
)
def test_an_offset_out_of_range_is_cut_or_begins_anew_by_the_leaders_offsets(leader_end, leader_start, expected):
    assert out_of_range(LOG_END, leader_end, leader_start) == expected
