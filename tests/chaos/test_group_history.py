"""The judge of groups finds each planted fault, and none where there is none."""

from __future__ import annotations

import pytest

from klamm.chaos.histories.group_history import Commit, Delivery, Start, judge_group

LOGS = {0: [(0, "a"), (1, "b"), (2, "c")]}
ALL = [Delivery(0, offset, value) for offset, value in LOGS[0]]
DONE = [Commit(0, 2, 1.5), Commit(0, 3, 2.5)]
BEGUN = [Start(0, 0, 0.5)]
END = {0: 3}


def test_records_read_and_committed_in_order_are_no_fault() -> None:
    assert judge_group([ALL], BEGUN, DONE, END, LOGS) == {}


def test_a_record_that_was_read_twice_is_no_fault() -> None:
    assert judge_group([ALL, ALL[1:]], [*BEGUN, Start(0, 1, 1.2)], DONE, END, LOGS) == {}


def test_a_committed_record_that_nobody_got_is_skipped() -> None:
    assert list(judge_group([ALL[:1], ALL[2:]], BEGUN, DONE, END, LOGS)) == ["skipped"]


@pytest.mark.parametrize("missing", [0, 1, 2], ids=["first", "middle", "right below the committed offset"])
def test_a_single_committed_record_that_nobody_got_is_skipped(missing: int) -> None:
    got = [[each] for each in ALL if each.offset != missing]
    assert judge_group(got, BEGUN, DONE, END, LOGS) == {
        "skipped": [f"the group committed 3 in partition 0, nobody got offset {missing}"],
    }


@pytest.mark.parametrize(
    ("offsets", "count"),
    [((0, 2, 1, 0), 3), ((0, 2, 1), 2), ((1, 2, 0), 1), ((0, 1, 2, 2), 1), ((0, 0, 1, 2), 1), ((0, 1, 2, 1), 1)],
    ids=["astray", "turned", "first comes last", "last twice", "first twice", "back at the end"],
)
def test_a_member_gets_each_record_behind_the_one_before(offsets: tuple[int, ...], count: int) -> None:
    """A member of its own has all records, so that none is skipped."""
    faults = judge_group([ALL, [ALL[offset] for offset in offsets]], BEGUN, DONE, END, LOGS)
    assert list(faults) == ["misread"] and len(faults["misread"]) == count, faults


def test_a_member_that_is_given_another_place_goes_on_there() -> None:
    again = [each._replace(place=1) for each in ALL]
    assert judge_group([[*ALL, *again]], BEGUN, DONE, END, LOGS) == {}
    assert judge_group([ALL, [ALL[0], again[2]]], BEGUN, DONE, END, LOGS) == {}
    assert list(judge_group([ALL, [ALL[0], again[0], again[2]]], BEGUN, DONE, END, LOGS)) == ["misread"]


def test_partitions_of_a_member_are_judged_by_themselves() -> None:
    logs = LOGS | {1: [(0, "d"), (1, "e")]}
    turns = [ALL[0], Delivery(1, 0, "d"), ALL[1], Delivery(1, 1, "e"), ALL[2]]
    assert judge_group([turns], BEGUN, DONE, END, logs) == {}


def test_a_record_behind_the_committed_offset_need_not_be_read() -> None:
    assert judge_group([ALL[:2]], BEGUN, DONE[:1], {0: 2}, LOGS) == {}


def test_another_record_than_the_one_at_its_offset_is_changed() -> None:
    assert list(judge_group([[*ALL, Delivery(0, 1, "x", place=1)]], BEGUN, DONE, END, LOGS)) == ["changed"]


def test_a_record_that_is_not_there_any_more_is_changed() -> None:
    assert list(judge_group([[*ALL, Delivery(0, 3, "d")]], BEGUN, DONE, END, LOGS)) == ["changed"]


def test_a_member_that_begins_below_an_acknowledged_commit_shows_that_it_fell() -> None:
    faults = judge_group([ALL], [*BEGUN, Start(0, 1, 2.0)], DONE, END, LOGS)
    assert faults == {"fell": ["the group: a member began at offset 1 of partition 0, 2 was committed before"]}


def test_a_member_may_begin_below_a_commit_that_was_acknowledged_after_its_assignment() -> None:
    assert judge_group([ALL], [Start(0, 2, 2.2)], DONE, END, LOGS) == {}


def test_an_offset_that_is_lower_or_gone_at_the_end_has_fallen() -> None:
    assert list(judge_group([ALL], BEGUN, DONE, {0: 2}, LOGS)) == ["fell"]
    assert list(judge_group([ALL], BEGUN, DONE, {0: None}, LOGS)) == ["fell"]


def test_a_commit_without_a_response_may_have_happened_or_not() -> None:
    commits = [DONE[0], Commit(0, 3, None)]
    for offset in (2, 3):
        assert judge_group([ALL], [*BEGUN, Start(0, offset, 3.0)], commits, {0: offset}, LOGS) == {}
