"""States of partitions, replicas and brokers, and the legal moves between them, as data (controller 6.1, 7.1, 25).

A move that is not listed is refused for that partition, replica or broker alone: logged, skipped, its state unchanged.
"""

from __future__ import annotations

from enum import IntEnum

from klamm.controller.values import BrokerState
from klamm.seams.identity_memo import IdentityMemo


class PartitionState(IntEnum):
    """The state of a partition; an unknown partition is NON_EXISTENT."""

    NON_EXISTENT = 0
    NEW = 1
    ONLINE = 2
    OFFLINE = 3


class ReplicaState(IntEnum):
    """The state of one replica of a partition."""

    NON_EXISTENT = 0
    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6


_P, _R, _B = PartitionState, ReplicaState, BrokerState

PARTITION_MOVES: dict[PartitionState, frozenset[PartitionState]] = {
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
}
"""Target state → states it may be reached from."""

REPLICA_MOVES: dict[ReplicaState, frozenset[ReplicaState]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}
"""Target state → states it may be reached from."""

BROKER_MOVES: dict[BrokerState, frozenset[BrokerState]] = {
    _B.FENCED: frozenset({_B.ONLINE}),
    _B.ONLINE: frozenset({_B.FENCED}),
    _B.STOPPING: frozenset({_B.ONLINE}),
    _B.OFFLINE: frozenset({_B.FENCED, _B.STOPPING}),
}
"""Target state → states it may be reached from, of a broker that registered with the controller (RREG-11)."""

REGISTERING_MOVES: dict[BrokerState, frozenset[BrokerState | None]] = {
    _B.FENCED: frozenset({None, _B.OFFLINE, _B.FENCED, _B.ONLINE, _B.STOPPING}),
}
"""The same, when it registers; None is a broker that never did."""

ReplicaStates = dict[int, ReplicaState]
"""Broker id → state. Never changed in place: `ReplicaStateMaps.moved` gives another one, and equal ones of one cluster are one object."""

NO_REPLICAS: ReplicaStates = {}


class ReplicaStateMaps:
    """The maps of replica states that one cluster uses. Partitions in the same situation share one map, so that a move of ten thousand
    replicas looks up a few maps.
    """

    def __init__(self) -> None:
        self._by_content: dict[tuple[tuple[int, ReplicaState], ...], ReplicaStates] = {(): NO_REPLICAS}
        self._moves: IdentityMemo[ReplicaStates] = IdentityMemo()

    def moved(self, states: ReplicaStates, broker_id: int, state: ReplicaState) -> ReplicaStates:
        """The shared map that differs from `states`, a map of this object, in one replica; NON_EXISTENT removes it."""
        key = (id(states), broker_id, state)
        after = self._moves.get(key)
        if after is None:
            changed = {b: s for b, s in states.items() if b != broker_id}
            if state is not ReplicaState.NON_EXISTENT:
                changed[broker_id] = state
            content = tuple(sorted(changed.items()))
            after = self._moves.keep(key, self._by_content.setdefault(content, dict(content)), states)
        return after
