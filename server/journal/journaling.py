"""Journals the work of a controller: an `Observer` that writes a row for each thing that happens (docs/journal.md).

Every row names the row that caused it. While the controller processes an event, that is the row of the event, which names the frame of the
request or response that it came from. Frames to brokers have the number of their batch. The thread of the event loop only makes tuples; the
writer's thread makes JSON of them. So everything that is passed to it must be immutable. The JSON of equal states is made once, because
thousands of partitions can share a state.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, Protocol

from klamm.controller import changes
from klamm.controller.changes import Change
from klamm.controller.decisions.decision import Decide, Decision, Situation
from klamm.controller.event_loop.decision_json import input_json, output_json
from klamm.controller.events.catalogue import Event, PhaseReleased, ThrottleRequest
from klamm.controller.events.causes import Cause, QueuedEvent, RequestReceived, ResponseReceived, TimerFired
from klamm.controller.events.observation import Requests
from klamm.controller.phases import Phase
from klamm.controller.throttle_steps import Step
from klamm.controller.values import Assignment, Broker, BrokerRegistration, LeaderAndIsr
from klamm.protocol.nouns import TopicPartition, id_text

to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode

_HIDDEN = frozenset({"begun", "connection", "future", "request", "response", "refused", "may_go", "options"})
_SHOWN = 5


class Journal(Protocol):
    """The part of `JournalWriter` that is needed here."""

    def event(
        self,
        kind: str,
        *,
        conn_id: int | None = None,
        topic: str | None = None,
        topic_id: str | None = None,
        partition: int | None = None,
        broker: int | None = None,
        controller_epoch: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        cause_seq: int | None = None,
        input: object = None,  # noqa: A002 - the name of the column
        output: object = None,
    ) -> int:
        """Append a row; returns its number. `input` and `output` are JSON, or callables that return it; another thread calls them."""


class Frames(Protocol):
    """Looks up the row numbers of frames."""

    def request_seq(self, connection_id: str, correlation_id: int) -> int | None:
        """The row number of a request that was received on this connection."""

    def response_seq(self, broker_id: int) -> int | None:
        """The row number of the last response on the controller's channel to this broker."""


class NoFrames:
    """For a journal without frames: no frame has a number."""

    def request_seq(self, connection_id: str, correlation_id: int) -> int | None:
        return None

    def response_seq(self, broker_id: int) -> int | None:
        return None


class ControllerJournal:
    """Journals one broker's controller, as its observer. `ibp` is the inter.broker.protocol.version."""

    def __init__(self, journal: Journal, broker_id: int, ibp: str, frames: Frames | None = None) -> None:
        self.journal = journal
        self.epoch: int | None = None
        """The controller epoch of this term, or of the last one: work in progress at the end of a term may still change the cluster."""
        self._is_elected = False
        self.cause: int | None = None
        """Row number of the event that is being processed."""
        self._event = journal.event
        self._broker_id = broker_id
        self._ibp = ibp
        self._frames = NoFrames() if frames is None else frames
        self._topic_ids: dict[str, str] = {}

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic in Kafka's base64 form; None if the controller does not know it."""
        return self._topic_ids.get(topic)

    # --- events ---

    def event_queued(self, sequence: int) -> None:
        """An event has a row when it is taken."""

    def event_taken(self, queued: QueuedEvent, with_others: bool) -> None:
        event, cause = queued.event, queued.cause
        held: Any = event.phase if isinstance(event, PhaseReleased) else event
        seq = self._event(
            "controller_event",
            cause_seq=self._cause_of(cause),
            controller_epoch=self.epoch if self._is_elected else None,
            broker=getattr(held, "broker_id", None),
            topic=getattr(held, "topic", None),
            partition=getattr(held, "partition", None),
            input=partial(_event_json, queued.sequence, event, cause),
        )
        if not with_others:
            self.cause = seq
        if isinstance(event, PhaseReleased):
            self.phase_released(event.phase)

    def _cause_of(self, cause: Cause) -> int | None:
        match cause:
            case TimerFired(name):
                return self._event("timer", input=partial(to_text, {"name": name}))
            case RequestReceived(_, connection, correlation_id) if connection:
                return self._frames.request_seq(connection, correlation_id)
            case ResponseReceived(_, _, frame):
                return frame
        return None

    def response_read(self, broker_id: int) -> int | None:
        return self._frames.response_seq(broker_id)

    def event_failed(self, error: BaseException) -> None:
        what = {"error": type(error).__name__, "text": str(error)}
        self._event("event_failed", controller_epoch=self.epoch, cause_seq=self.cause, output=partial(to_text, what))

    def event_ended(self) -> None:
        self.cause = None

    # --- what the controller decides and sends ---

    def decided(self, rule: Decide, situation: Situation, partitions: tuple[TopicPartition, ...], decision: Decision) -> None:
        self._event(
            "decision",
            controller_epoch=situation.controller_epoch,
            cause_seq=self.cause,
            input=partial(input_json, rule, situation, partitions),
            output=partial(output_json, decision),
        )

    def sending(self, requests: Requests) -> int:
        what = {"requests": requests, "ibp": self._ibp}
        return self._event("batch", controller_epoch=self.epoch, cause_seq=self.cause, output=partial(to_text, what))

    # --- procedures ---

    def reassigned(self, partitions: Sequence[TopicPartition], phases: Iterable[str], step: int) -> None:
        for phase in phases:
            what = partial(to_text, {"phase": phase, "step": step})
            for topic, index in partitions:
                self._event(
                    "reassign_phase",
                    topic=topic,
                    topic_id=self._topic_ids.get(topic),
                    partition=index,
                    controller_epoch=self.epoch,
                    cause_seq=self.cause,
                    output=what,
                )

    def throttle_step(self, request: int, event: ThrottleRequest, number: int, step: Step) -> None:
        what = {"request": request, "of": type(event).__name__, "step": number, "name": type(step).__name__}
        self._event("throttle_step", controller_epoch=self.epoch, cause_seq=self.cause, output=partial(to_text, what))

    def phase_held(self, phase: Phase) -> None:
        self._phase("phase_held", phase)

    def phase_released(self, phase: Phase) -> None:
        self._phase("phase_released", phase)

    def _phase(self, kind: str, phase: Phase) -> None:
        self._event(
            kind,
            controller_epoch=getattr(phase, "controller_epoch", None),
            topic=getattr(phase, "topic", None),
            partition=getattr(phase, "partition", None),
            broker=getattr(phase, "broker_id", None),
            cause_seq=self.cause,
            input=partial(_phase_json, phase),
        )

    # --- changes of the cluster ---

    def changed(self, change: Change) -> None:
        match change:
            case changes.StatesChanged(states):
                self._states_changed(states)
            case changes.PartitionStatesChanged() | changes.ReplicaStatesChanged():
                pass  # internal to the controller; the effects are in other rows
            case changes.ReassignmentsBegan() | changes.ReassignmentsEnded():
                pass  # journaled as phases U and B7
            case changes.PartitionAdded(key, assignment):
                self._assigned(key, assignment, True)
            case changes.AssignmentChanged(key, assignment):
                self._assigned(key, assignment, False)
            case changes.TopicAdded(topic, topic_id):
                self._topic_added(topic, topic_id)
            case changes.TopicRemoved(topic):
                self._row("topic_removed", topic=topic)
                self._topic_ids.pop(topic, None)
            case changes.TermBegan(epoch):
                self.epoch, self._is_elected = epoch, True
                self._topic_ids.clear()
                self._row("controller_elected", broker=self._broker_id)
            case changes.TermEnded():
                self._row("controller_resigned", broker=self._broker_id)
                self._is_elected = False
            case changes.TopicDeletionQueued(topic):
                self._deletion(topic, "queued")
            case changes.DeletionsStarted(topics) | changes.DeletionsResumed(topics):
                for topic in topics:
                    self._deletion(topic, "started" if isinstance(change, changes.DeletionsStarted) else "resumed")
            case changes.DeletionsPostponed(topics, why):
                for topic in topics:
                    self._deletion(topic, "postponed", why)
            case _:
                self._broker_changed(change)

    def _broker_changed(self, change: Any) -> None:
        match change:
            case changes.BrokersRegistered(brokers):
                for broker in brokers:
                    self._row("broker_up", broker=broker.id, output=partial(_broker_json, broker))
            case changes.BrokersUnregistered(broker_ids):
                for broker_id in broker_ids:
                    self._row("broker_down", broker=broker_id)
            case changes.BrokersFenced(brokers):
                for broker in brokers:
                    self._row("broker_fenced", broker=broker.id, output=partial(_broker_json, broker))
            case changes.BrokersUnfenced(broker_ids):
                for broker_id in broker_ids:
                    self._row("broker_unfenced", broker=broker_id)
            case changes.RegistrationsChanged(registrations):
                for registration in registrations:
                    self._row("broker_registration", broker=registration.id, output=partial(_registration_json, registration))
            case changes.ShutdownBegan(broker_id):
                self._row("shutdown_began", broker=broker_id)
            case changes.ShutdownEnded(broker_id):
                self._row("shutdown_ended", broker=broker_id)
            case changes.OfflineReplicasChanged(broker_id, partitions):
                self._row("offline_replicas", broker=broker_id, output=partial(_partitions_json, partitions))
            case changes.BlacklistChanged(broker_ids):
                what = {"keys": ["preferred_leader_blacklist"], "listed": sorted(broker_ids)}
                entity = partial(to_text, {"entity_type": "brokers", "entity": "<default>"})
                self._row("config_change", input=entity, output=partial(to_text, what))

    def _row(self, kind: str, **columns: Any) -> None:
        self._event(kind, controller_epoch=self.epoch, cause_seq=self.cause, **columns)

    def _topic_added(self, topic: str, topic_id: bytes | None) -> None:
        if topic_id is not None:
            self._topic_ids[topic] = id_text(topic_id)
        self._row("topic_added", topic=topic, topic_id=self._topic_ids.get(topic))

    def _assigned(self, key: TopicPartition, assignment: Assignment, is_new: bool) -> None:
        self._event(
            "assignment",
            topic=key.topic,
            topic_id=self._topic_ids.get(key.topic),
            partition=key.partition,
            controller_epoch=self.epoch,
            cause_seq=self.cause,
            output=partial(_assignment_json, assignment, is_new),
        )

    def _states_changed(self, states: Sequence[tuple[TopicPartition, LeaderAndIsr | None]]) -> None:
        event, epoch, cause, topic_ids = self._event, self.epoch, self.cause, self._topic_ids
        shown, text = None, None
        for (topic, index), state in states:
            if state is not None:
                if state is not shown:  # partitions that were decided together share a state
                    shown, text = state, partial(_state_json, state)
                event(
                    "partition_state",
                    topic=topic,
                    topic_id=topic_ids.get(topic),
                    partition=index,
                    controller_epoch=epoch,
                    leader_epoch=state.leader_epoch,
                    partition_epoch=state.partition_epoch,
                    cause_seq=cause,
                    output=text,
                )

    def _deletion(self, topic: str, step: str, why: str | None = None) -> None:
        self._row("deletion", topic=topic, topic_id=self._topic_ids.get(topic), output=partial(to_text, {"step": step, "why": why}))


# --- JSON, made in the writer's thread ---


@lru_cache(maxsize=4096)
def _state_json(state: LeaderAndIsr) -> str:
    return to_text(
        {
            "leader": state.leader,
            "isr": state.isr,
            "recovering": bool(state.recovery),
            "controller_epoch": state.controller_epoch,
        }
    )


@lru_cache(maxsize=4096)
def _assignment_json(assignment: Assignment, is_new: bool) -> str:
    return to_text({**assignment._asdict(), "is_new": is_new})


def _broker_json(broker: Broker) -> str:
    return to_text({"id": broker.id, "epoch": broker.epoch, "endpoints": broker.endpoints, "rack": broker.rack})


def _registration_json(registration: BrokerRegistration) -> str:
    return to_text({"epoch": registration.epoch, "state": registration.state.name})


def _partitions_json(partitions: Iterable[TopicPartition]) -> str:
    return to_text({"partitions": sorted(partitions)})


def _event_json(number: int, event: Event, cause: Cause) -> str:
    return to_text({"number": number, "name": type(event).__name__, "text": _event_text(event), "cause": _cause_value(cause)})


def _event_text(event: Event) -> str:
    """A short description of an event, from fields that another thread can read."""
    if isinstance(event, PhaseReleased):
        return repr(event.phase)
    named = [(field.name, getattr(event, field.name)) for field in dataclasses.fields(event) if field.name not in _HIDDEN]
    return " ".join(f"{name} {_few(value)}" for name, value in named)


def _few(value: object) -> str:
    if isinstance(value, Mapping):
        return f"of {len(value)}"
    if not isinstance(value, tuple) or hasattr(value, "_fields"):
        return value.name if isinstance(value, IntEnum) else str(value)
    more = len(value) - _SHOWN
    return ", ".join(map(str, value[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _cause_value(cause: Cause) -> dict[str, Any]:
    name = type(cause).__name__
    match cause:
        case TimerFired(timer):
            return {"name": name, "timer": timer}
        case RequestReceived(api, connection, correlation_id):
            return {"name": name, "api": api, "connection": connection, "correlation_id": correlation_id}
        case ResponseReceived(broker_id, sent_by):
            return {"name": name, "broker_id": broker_id, "sent_by": sent_by}
        case _:
            return {"name": name}


def _phase_json(phase: Phase) -> str:
    fields = {field.name: getattr(phase, field.name) for field in dataclasses.fields(phase)}
    return to_text({"name": type(phase).__name__, **fields})
