"""An observer of a controller sees each event that it processes, each decision, each batch of requests and each step of a procedure.

By default there is none. If there is one, `Controller`, its queue, its sender and its terms call the methods here, in the controller's
task and in the order in which things happen. An observer must return quickly, must not raise and must not change anything. Its arguments
are immutable. It does not see writes to ZooKeeper: those can be seen by a wrapper of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from klamm.controller.changes import Change
from klamm.controller.decisions.decision import Decide, Decision, Situation
from klamm.controller.events.catalogue import ThrottleRequest
from klamm.controller.events.causes import QueuedEvent
from klamm.controller.phases import Phase
from klamm.controller.throttle_steps import Step
from klamm.protocol.nouns import TopicPartition

Requests = tuple[tuple[int, int, tuple[int, ...]], ...]
"""The requests of a batch, in the order in which they are sent: API key, version, ids of the brokers that get the request."""


class Observer(Protocol):
    """Is told everything that a controller does."""

    def event_queued(self, sequence: int) -> None:
        """An event was put on the queue."""

    def event_taken(self, queued: QueuedEvent, with_others: bool) -> None:
        """An event was taken from the queue. `with_others`: it is processed together with the event taken before it."""

    def response_read(self, broker_id: int) -> int | None:
        """A broker's response was read and becomes an event. Returns the response's number, if responses have numbers."""

    def event_failed(self, error: BaseException) -> None:
        """The event failed with this error. `event_ended` follows."""

    def event_ended(self) -> None:
        """The event is processed."""

    def changed(self, change: Change) -> None:
        """The remembered cluster changed. This method can be a `Subscriber` of the cluster."""

    def decided(self, rule: Decide, situation: Situation, partitions: tuple[TopicPartition, ...], decision: Decision) -> None:
        """A rule made this decision for all these partitions, which are in the same situation."""

    def sending(self, requests: Requests) -> int | None:
        """A batch of requests is about to be sent. Returns the number of the batch, if batches have numbers."""

    def reassigned(self, partitions: Sequence[TopicPartition], phases: Iterable[str], step: int) -> None:
        """Steps of a reassignment (`U`, `A1`, … `B9` of controller 11.3) are done for these partitions. `step` counts within a term."""

    def throttle_step(self, request: int, event: ThrottleRequest, number: int, step: Step) -> None:
        """A step of a request that sets throttles is done. `number` is the number of the step in R179-6 or R179-14."""

    def phase_held(self, phase: Phase) -> None:
        """The controller, or a procedure, is held at a phase."""

    def phase_released(self, phase: Phase) -> None:
        """The controller, or the procedure, goes on after it was held."""
