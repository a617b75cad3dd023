"""Which replicas are throttled when partitions move: examples for section 17 of the specification."""

from __future__ import annotations

import pytest

from klamm.controller.decisions import throttled_replicas as throttles
from klamm.controller.decisions.throttled_replicas import FOLLOWER_REPLICAS, LEADER_REPLICAS, Move
from klamm.controller.values import Assignment
from klamm.protocol.nouns import Ints


def move(sources: Ints, destinations: Ints) -> Move:
    return Move(frozenset(sources), frozenset(destinations))


@pytest.mark.parametrize(
    ("assignment", "target", "expected"),
    [
        (Assignment((1, 2, 3)), (4, 5, 6), move((1, 2, 3), (4, 5, 6))),
        (Assignment((1, 2, 3)), (3, 4), move((1, 2, 3), (4,))),
        (Assignment((1, 2)), (1, 2, 3), move((1, 2), (3,))),
        (Assignment((1, 2, 3)), (1,), move((1, 2, 3), ())),
        (Assignment((1, 2, 3)), (3, 1, 2), move((1, 2, 3), ())),
        (Assignment((4, 1, 2), (4,), (2,)), (5, 1), move((1, 2), (5,))),  # it runs already: it starts at its origin
    ],
    ids=["elsewhere", "one stays", "more", "fewer", "other order", "replaces another"],
)
def test_a_move_copies_from_the_present_replicas_to_those_that_are_new(assignment: Assignment, target: Ints, expected: Move) -> None:
    assert throttles.move_to(assignment, target) == expected


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        (Assignment((4, 5, 1, 2), (4, 5), (1, 2)), move((1, 2), (4, 5))),
        (Assignment((3, 1, 2), (3,)), move((1, 2), (3,))),
        (Assignment((1, 2), (), (2,)), move((1, 2), ())),
    ],
    ids=["both", "adding", "removing"],
)
def test_a_running_reassignment_copies_from_its_origin_to_its_adding_replicas(assignment: Assignment, expected: Move) -> None:
    assert throttles.running_move(assignment) == expected


def test_the_lists_of_a_topic_name_every_source_for_leaders_and_every_destination_for_followers() -> None:
    lists = throttles.replica_lists({0: move((1, 2), (3,)), 10: move((2,), ()), 2: move((1,), (2, 3))})
    assert lists == {LEADER_REPLICAS: "0:1,0:2,10:2,2:1", FOLLOWER_REPLICAS: "0:3,2:2,2:3"}


def test_a_topic_without_a_replica_to_throttle_has_empty_lists() -> None:
    assert throttles.replica_lists({}) == {LEADER_REPLICAS: "", FOLLOWER_REPLICAS: ""}
    assert throttles.replica_lists({0: move((), ())}) == {LEADER_REPLICAS: "", FOLLOWER_REPLICAS: ""}


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        ([], ""),
        ([(0, 1)], "0:1"),
        ([(2, 1), (10, 1), (1, 1)], "10:1,1:1,2:1"),
        ([(0, 2), (0, 10), (0, 1)], "0:1,0:10,0:2"),
        ([(0, 1), (0, 1)], "0:1"),
    ],
)
def test_pairs_are_joined_by_commas_and_sorted_as_strings(replicas: list[tuple[int, int]], text: str) -> None:
    assert throttles.pairs(replicas) == text


def test_rates_are_texts_and_zero_is_one() -> None:
    assert throttles.rates(0, 2**62) == {throttles.LEADER_RATE: "0", throttles.FOLLOWER_RATE: "4611686018427387904"}
