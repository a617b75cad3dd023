"""What the controller remembers of reassignments beside `Cluster.reassigning`: who is held, and what topic znodes say meanwhile.

A reassignment is mostly in ZooKeeper: the topic znode names its target, the state znode who is in sync. Two things are not there. A
partition may be held between two steps (`phases.py`). And while a reassignment is being completed the cached assignment is the target
alone, but the topic znode keeps the whole one, because it is the only place that knows what is still to be removed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

from klamm.controller.phases import ReassignmentPhase
from klamm.controller.values import Assignment
from klamm.seams.steering import HeldPhase
from klamm.seams.value_class import dataclass

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class HeldReassignment:
    """Where the reassignment of one partition is held: until that ends, it is left as it is."""

    assignment: Assignment
    """All of it, also where the cached assignment is the target alone."""
    held: HeldPhase[Any]

    @property
    def phase(self) -> ReassignmentPhase:
        phase: ReassignmentPhase = self.held.phase
        return phase


class Reassignments(Generic[P]):
    """Reassignments of partitions that are held, and those that are being completed."""

    def __init__(self) -> None:
        self._held: dict[P, HeldReassignment] = {}
        self.held: Mapping[P, HeldReassignment] = self._held
        self._stored: dict[P, Assignment] = {}
        self.stored: Mapping[P, Assignment] = self._stored
        """What the topic znode says of partitions whose cached assignment is the target alone."""

    def was_held(self, partition: P, assignment: Assignment, held: HeldPhase[Any]) -> None:
        """Somebody holds the reassignment of a partition."""
        self._held[partition] = HeldReassignment(assignment, held)

    def was_released(self, partition: P, phase: ReassignmentPhase) -> Assignment | None:
        """Release the reassignment of a partition held at a phase. None if it was not held there, or if it is another reassignment."""
        found = self._held.get(partition)
        if found is None or found.phase is not phase:
            return None
        del self._held[partition]
        return found.assignment

    def was_dropped(self, partition: P) -> HeldReassignment | None:
        """Forget the held reassignment of a partition, which will not be released. Returns it."""
        found = self._held.pop(partition, None)
        if found is not None:
            found.held.drop()
        return found

    def completion_began(self, partition: P, assignment: Assignment) -> None:
        """The cached assignment is the target from now on, the topic znode still says this one."""
        self._stored[partition] = assignment

    def completion_stored(self, partition: P) -> None:
        """The topic znode says what is cached."""
        self._stored.pop(partition, None)

    def removed(self, partition: P) -> None:
        """The partition is gone."""
        self.was_dropped(partition)
        self._stored.pop(partition, None)

    def ended(self) -> None:
        """The term is over: nothing goes on, and nothing is held."""
        for partition in list(self._held):
            self.was_dropped(partition)
        self._stored.clear()
