"""The states of a transactional id and the legal moves between them. The diagram in docs/states.md is drawn from `MOVES`.

Source: `TransactionState` of Apache Kafka 3.9.1. The values are the numbers in records of the transaction topic.
"""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """What the transaction of a transactional id is doing."""

    EMPTY = 0
    """The producer has an epoch and has not begun a transaction."""
    ONGOING = 1
    """Partitions are in the transaction."""
    PREPARE_COMMIT = 2
    """The decision to commit is in the log; markers are being written."""
    PREPARE_ABORT = 3
    """The decision to abort is in the log; markers are being written."""
    COMPLETE_COMMIT = 4
    """All commit markers are written."""
    COMPLETE_ABORT = 5
    """All abort markers are written."""
    DEAD = 6
    """The transactional id expires. Final, and never in the log."""
    PREPARE_EPOCH_FENCE = 7
    """The epoch is raised, and the abort is not in the log yet. Never in the log."""

    @property
    def text(self) -> str:
        """The text in requests and responses: `PrepareCommit`."""
        return self.name.title().replace("_", "")


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = TransactionState

MOVES: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    DEAD: frozenset(),
    PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
}
"""The states that a transactional id can move to from each state. Without a transaction only clients of version 2 abort (KIP-890)."""

STATES = {state.text: state for state in TransactionState}
"""The states by the texts of ListTransactions."""

CAN_EXPIRE = frozenset(state for state, targets in MOVES.items() if DEAD in targets)
CAN_BEGIN = frozenset(state for state, targets in MOVES.items() if ONGOING in targets and state is not ONGOING)
COMPLETE = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
"""What each decision becomes once all markers are written."""
