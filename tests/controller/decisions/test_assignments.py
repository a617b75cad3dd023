"""Arithmetic of assignments (controller 1): origin, target, and where a reassignment leads from any point."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.controller.values import Assignment

lists = st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=6).map(tuple)


def test_examples_in_their_sequence() -> None:
    a = Assignment((1, 2, 3))
    assert not a.is_reassigning
    a = a.reassign_to((4, 5, 6))
    assert a == Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert a.is_reassigning
    a = a.reassign_to((7, 8, 9))
    assert a == Assignment((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3)), "replaced, not stacked"
    a = a.reassign_to((1, 2, 3))
    assert a == Assignment((1, 2, 3))


def test_pure_reorder() -> None:
    assert Assignment((1, 2, 3)).reassign_to((3, 1, 2)) == Assignment((3, 1, 2))


@pytest.mark.parametrize(
    ("replicas", "target", "moving", "cancelled"),
    [
        ((1, 2, 3), (4, 2, 1), Assignment((4, 2, 1, 3), (4,), (3,)), (2, 1, 3)),  # overlapping: the order is lost (11.4)
        ((1, 2, 3), (4, 5, 6), Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)), (1, 2, 3)),
        ((1, 2), (1, 2, 3), Assignment((1, 2, 3), (3,), ()), (1, 2)),
        ((1, 2, 3), (2,), Assignment((2, 1, 3), (), (1, 3)), (2, 1, 3)),
        ((0,), (1,), Assignment((1, 0), (1,), (0,)), (0,)),
    ],
)
def test_moves_and_what_cancelling_leaves(
    replicas: tuple[int, ...], target: tuple[int, ...], moving: Assignment, cancelled: tuple[int, ...]
) -> None:
    assert Assignment(replicas).reassign_to(target) == moving
    assert moving.reassign_to(moving.origin) == Assignment(cancelled)


def test_duplicates_collapse() -> None:
    assert Assignment((1, 2)).reassign_to((3, 3, 1)) == Assignment((3, 1, 2), (3,), (2,))


@settings(max_examples=150, deadline=None)
@given(lists, lists, lists)
def test_what_holds_for_every_move(replicas: tuple[int, ...], target: tuple[int, ...], other: tuple[int, ...]) -> None:
    moving = Assignment(replicas).reassign_to(target)
    assert moving.target == target, "the target keeps its order"
    assert set(moving.origin) == set(replicas), "the origin is remembered"
    assert set(moving.replicas) == set(replicas) | set(target)
    assert len(set(moving.replicas)) == len(moving.replicas)
    assert moving.replicas[: len(target)] == target, "the target stands first"
    assert set(moving.adding) == set(target) - set(replicas)
    assert set(moving.removing) == set(replicas) - set(target)
    assert not set(moving.adding) & set(moving.removing)
    assert moving.is_reassigning == (set(replicas) != set(target))
    assert moving.reassign_to(target) == moving, "asking again changes nothing"
    again = moving.reassign_to(other)
    # the order of those that leave may differ, as the origin's order does once the lists overlap; the rest depends on the origin only
    assert again.target == other
    assert (set(again.adding), set(again.removing)) == (set(other) - set(replicas), set(replicas) - set(other))


@settings(max_examples=200, deadline=None)
@given(lists, lists)
def test_cancelling_a_move_without_overlap_restores_the_order(replicas: tuple[int, ...], target: tuple[int, ...]) -> None:
    away = tuple(r + 10 for r in target)
    moving = Assignment(replicas).reassign_to(away)
    assert moving.origin == replicas
    assert moving.reassign_to(moving.origin) == Assignment(replicas)


@settings(max_examples=200, deadline=None)
@given(lists, lists, lists)
def test_origin_and_target_keep_the_order(replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]) -> None:
    a = Assignment(replicas, adding, removing)
    assert [replicas.index(r) for r in a.origin] == sorted(replicas.index(r) for r in set(replicas) - set(adding))
    assert [replicas.index(r) for r in a.target] == sorted(replicas.index(r) for r in set(replicas) - set(removing))
