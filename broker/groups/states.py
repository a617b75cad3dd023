"""The states of a group and the legal moves between them. The diagram in docs/states.md is drawn from `MOVES`.

Source: `GroupMetadata` of Apache Kafka 3.9.1. The values are the texts that DescribeGroups and ListGroups respond with.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """What a group is doing."""

    EMPTY = "Empty"
    """No members; perhaps offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members join; those of the last generation are expected to join again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All members have joined; the leader is expected to send the assignment."""
    STABLE = "Stable"
    """Members have their assignments."""
    DEAD = "Dead"
    """The group is deleted, or another broker coordinates it now. Final."""


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

MOVES: dict[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset({DEAD}),
}
"""The states that a group can move to from each state."""

CAN_REBALANCE = frozenset(state for state, targets in MOVES.items() if PREPARING in targets)
