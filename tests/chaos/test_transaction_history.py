"""The judge of transactions finds each planted fault, and none where there is none."""

from __future__ import annotations

import pytest

from klamm.chaos.histories.transaction_history import Attempt, Outcome, copied, judge_copies

SOURCE = {0: [(0, "a"), (1, "b"), (2, "c"), (3, "d")]}


def copies(*rows: tuple[int, str]) -> dict[int, list[tuple[int, str]]]:
    """Copies of these offsets by these attempts, in order."""
    values = dict(SOURCE[0])
    return {0: [(place, copied(values[offset], 0, offset, attempt)) for place, (offset, attempt) in enumerate(rows)]}


def attempt(name: str, outcome: Outcome, *offsets: int) -> Attempt:
    return Attempt(name, [(0, offset) for offset in offsets], outcome)


FIRST, SECOND = attempt("t.0", Outcome.COMMITTED, 0, 1), attempt("t.1", Outcome.COMMITTED, 2, 3)
WHOLE = copies((0, "t.0"), (1, "t.0"), (2, "t.1"), (3, "t.1"))


def test_two_committed_transactions_are_no_fault() -> None:
    assert judge_copies([FIRST, SECOND], WHOLE, {0: 4}, SOURCE) == {}


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.UNCOMMITTED, Outcome.OPEN])
def test_a_transaction_that_cannot_have_committed_must_be_invisible(outcome: Outcome) -> None:
    assert judge_copies([FIRST, attempt("t.1", outcome, 2, 3)], copies((0, "t.0"), (1, "t.0")), {0: 2}, SOURCE) == {}
    assert list(judge_copies([FIRST, attempt("t.1", outcome, 2, 3)], WHOLE, {0: 4}, SOURCE)) == ["aborted visible"]


def test_a_transaction_of_which_nobody_knows_may_be_visible_or_not() -> None:
    unknown = attempt("t.1", Outcome.UNKNOWN, 2, 3)
    assert judge_copies([FIRST, unknown], WHOLE, {0: 4}, SOURCE) == {}
    assert judge_copies([FIRST, unknown], copies((0, "t.0"), (1, "t.0")), {0: 2}, SOURCE) == {}


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.UNKNOWN])
def test_a_part_of_a_transaction_is_torn(outcome: Outcome) -> None:
    faults = judge_copies([FIRST, attempt("t.1", outcome, 2, 3)], copies((0, "t.0"), (1, "t.0"), (2, "t.1")), {0: 3}, SOURCE)
    assert list(faults) == ["torn"]


def test_a_committed_transaction_that_is_not_there_is_torn() -> None:
    assert "torn" in judge_copies([FIRST, SECOND], copies((0, "t.0"), (1, "t.0")), {0: 4}, SOURCE)


def test_records_of_an_unknown_transaction_are_torn() -> None:
    assert list(judge_copies([FIRST], WHOLE, {0: 4}, SOURCE)) == ["torn"]


def test_a_record_that_two_transactions_copied_is_twice() -> None:
    again = attempt("t.2", Outcome.COMMITTED, 3)
    doubled = copies((0, "t.0"), (1, "t.0"), (2, "t.1"), (3, "t.1"), (3, "t.2"))
    assert list(judge_copies([FIRST, SECOND, again], doubled, {0: 4}, SOURCE)) == ["copied twice"]


def test_a_committed_offset_without_its_copy_is_not_copied() -> None:
    assert list(judge_copies([FIRST], copies((0, "t.0"), (1, "t.0")), {0: 3}, SOURCE)) == ["not copied"]


def test_a_copy_without_its_committed_offset_is_a_fault() -> None:
    assert list(judge_copies([FIRST, SECOND], WHOLE, {0: 3}, SOURCE)) == ["not copied"]


def test_copies_in_another_order_are_a_fault() -> None:
    turned = copies((2, "t.1"), (3, "t.1"), (0, "t.0"), (1, "t.0"))
    assert list(judge_copies([FIRST, SECOND], turned, {0: 4}, SOURCE)) == ["copies out of order"]


def test_a_copy_of_another_record_is_changed() -> None:
    changed = {0: [*WHOLE[0][:3], (3, copied("x", 0, 3, "t.1"))]}
    assert list(judge_copies([FIRST, SECOND], changed, {0: 4}, SOURCE)) == ["copies changed"]
