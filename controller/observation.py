"""Who looks on at a controller: each event that it takes, what it decides, what it sends, and how far its procedures are.

Nobody does unless one is given: then `Controller`, its queue, its sender and its terms call these methods, in the controller's task and in
the order in which things happen. An observer must be quick, must not raise and changes nothing; what it gets is immutable. Changes of the
cluster come as values (`changes.py`), those of ZooKeeper from the wrapper of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from klamm.controller.changes import Change
from klamm.controller.decisions.decision import Decide, Decision, Situation
from klamm.controller.events.catalogue import ThrottleRequest
from klamm.controller.events.causes import QueuedEvent
from klamm.controller.phases import Phase
from klamm.controller.throttles.steps import Step
from klamm.protocol.nouns import TopicPartition

Requests = tuple[tuple[int, int, tuple[int, ...]], ...]
"""Requests of one batch, in their order: API key, version, the brokers that get it."""


class Observer(Protocol):
    """Gets everything that one controller does."""

    def event_queued(self, sequence: int) -> None:
        """An event is on the queue."""

    def event_taken(self, queued: QueuedEvent, with_others: bool) -> None:
        """An event is processed from now on; `with_others`: together with the one that was taken before it. What follows is done for it."""

    def response_read(self, broker_id: int) -> int | None:
        """A broker's response was read just now, and an event comes of it; its number, where responses have one."""

    def event_failed(self, error: BaseException) -> None:
        """The processing of the event ends with this error; `event_ended` follows."""

    def event_ended(self) -> None:
        """The event is processed."""

    def changed(self, change: Change) -> None:
        """The cluster changed: a `Subscriber`."""

    def decided(self, rule: Decide, situation: Situation, partitions: tuple[TopicPartition, ...], decision: Decision) -> None:
        """A rule decided about partitions that are in one situation."""

    def sending(self, requests: Requests) -> int | None:
        """Requests are about to be sent; the number of this batch, where batches have one."""

    def reassigned(self, partitions: Sequence[TopicPartition], phases: Iterable[str], step: int) -> None:
        """Phases of controller 11.3 (`U`, `A1`, … `B9`) are done for partitions; `step` counts the steps of a term."""

    def throttle_step(self, request: int, event: ThrottleRequest, number: int, step: Step) -> None:
        """A step of a request that sets throttles is done; `number` is that of R179-6 or R179-14."""

    def phase_held(self, phase: Phase) -> None:
        """Somebody holds the controller, or a procedure, at a phase."""

    def phase_released(self, phase: Phase) -> None:
        """What was held goes on."""
