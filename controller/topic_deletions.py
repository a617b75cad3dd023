"""The topics that are queued for deletion, one record each: state of a procedure that goes on with events (controller 12.2).

Which replicas are to be deleted, and which have been, say the replica states of the topic's partitions; all else about a deletion is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from klamm.controller.phases import DeletionPhase
from klamm.seams.steering import HeldPhase


@dataclass(slots=True)
class DeletionProgress:
    """How far the deletion of one topic is."""

    topic: str
    started: bool = False
    """Whether the topic's partitions have gone to NON_EXISTENT, which they do once."""
    ineligible: str | None = None
    """Why it waits; None when it need not."""
    held: HeldPhase[Any] | None = None
    """Where somebody holds it: until that ends, it is left as it is."""
    released: DeletionPhase | None = None
    """The phase at which it was held until now; it goes on after it."""


class TopicDeletions:
    """All topics that are queued for deletion, in the order in which they were queued."""

    def __init__(self) -> None:
        self._by_topic: dict[str, DeletionProgress] = {}

    def __iter__(self) -> Iterator[DeletionProgress]:
        return iter(self._by_topic.values())

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def __len__(self) -> int:
        return len(self._by_topic)

    def get(self, topic: str) -> DeletionProgress | None:
        return self._by_topic.get(topic)

    @property
    def topics(self) -> list[str]:
        return list(self._by_topic)

    @property
    def ineligible(self) -> set[str]:
        """Topics whose deletion waits for something."""
        return {deletion.topic for deletion in self if deletion.ineligible is not None}

    def queued(self, topic: str) -> DeletionProgress:
        """A topic is queued for deletion, if it is not already."""
        return self._by_topic.setdefault(topic, DeletionProgress(topic))

    def started(self, topics: Iterable[str]) -> None:
        """The partitions of these topics have gone to NON_EXISTENT."""
        for topic in topics:
            self._by_topic[topic].started = True

    def postponed(self, topics: Iterable[str], why: str) -> None:
        """These topics have to wait."""
        for topic in topics:
            self._by_topic[topic].ineligible = why

    def resumed(self, topics: Iterable[str]) -> None:
        """What these topics waited for, if they are queued, is over."""
        for topic in topics:
            deletion = self._by_topic.get(topic)
            if deletion is not None:
                deletion.ineligible = None

    def was_held(self, topic: str, held: HeldPhase[Any]) -> None:
        """Somebody holds the deletion of a topic."""
        self._by_topic[topic].held = held

    def was_released(self, topic: str, phase: DeletionPhase) -> bool:
        """Release the deletion of a topic that is held at a phase. False if it was not held there, or if it is another deletion."""
        deletion = self._by_topic.get(topic)
        if deletion is None or deletion.held is None or deletion.held.phase is not phase:
            return False
        deletion.held, deletion.released = None, phase
        return True

    def went_on(self, topic: str) -> DeletionPhase | None:
        """The deletion of a topic goes on. Returns the phase after which it does, None at its beginning."""
        deletion = self._by_topic[topic]
        released, deletion.released = deletion.released, None
        return released

    def removed(self, topic: str) -> None:
        """The topic is deleted."""
        deletion = self._by_topic.pop(topic, None)
        if deletion is not None and deletion.held is not None:
            deletion.held.drop()

    def ended(self) -> None:
        """The term is over: nothing goes on, and nothing is held."""
        for topic in self.topics:
            self.removed(topic)
