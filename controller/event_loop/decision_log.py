"""What the controller made of one event, as one line at level DEBUG: the states it decided, the requests it sent, how long it took.

Nothing of it runs at other levels. At DEBUG the log subscribes to the cluster while an event is handled, and passes every change on to
the subscriber from before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import assert_never

from klamm.controller.changes import Change, StatesChanged, Subscriber
from klamm.controller.cluster import Cluster
from klamm.controller.events.catalogue import Event
from klamm.controller.events.causes import (
    BrokerStarted,
    Cause,
    ConfigChanged,
    QueuedEvent,
    ReleasedFromPhase,
    RequestReceived,
    ResponseReceived,
    SessionChanged,
    TimerFired,
    WatchFired,
)
from klamm.controller.term.term import Term
from klamm.controller.values import LeaderAndIsr
from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition

SHOWN = 5
"""How many items of a list are written. The rest is counted."""

_NOT_SHOWN = frozenset({"begun", "connection", "future", "request", "response"})


class DecidedStates:
    """Partitions and the states they got while this watches a cluster."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, LeaderAndIsr | None] = {}
        self._cluster: Cluster | None = None
        self._next: Subscriber | None = None

    def watch(self, cluster: Cluster) -> None:
        """See the states that this cluster takes from now on."""
        self._cluster = cluster
        self._next = cluster.subscribe(self._see)

    def _see(self, change: Change) -> None:
        if isinstance(change, StatesChanged):
            self._states.update(change.states)
        if self._next is not None:
            self._next(change)

    def end(self) -> None:
        """Look no more."""
        if self._cluster is not None:
            self._cluster.subscribe(self._next)
            self._cluster = self._next = None

    def __str__(self) -> str:
        return _few(f"{p} {_state(info)}" for p, info in self._states.items()) if self._states else "no state changed"


def line(queued: QueuedEvent, others: int, took_s: float, states: DecidedStates, term: Term | None) -> str:
    """The line about a processed event and `others` of its kind. Without a term this broker is not the controller."""
    more = f" and {others} more" if others else ""
    what = f"event {queued.sequence} {event_text(queued.event)}{more} ({cause_text(queued.cause)}): {took_s * 1000:.1f} ms"
    return f"{what}; not the controller" if term is None else f"{what}; {states}; {_requests(term.sender.posted)}"


def cause_text(cause: Cause) -> str:
    """What put an event on the queue."""
    match cause:
        case WatchFired():
            return "a watch fired"
        case TimerFired(name):
            return f"timer {name}"
        case RequestReceived(api, connection, correlation_id):
            return f"request {api} {correlation_id} of connection {connection}" if connection else f"request {api}"
        case ResponseReceived(broker_id, sent_by):
            return f"response of broker {broker_id} to event {sent_by}"
        case BrokerStarted():
            return "this broker started"
        case SessionChanged():
            return "the ZooKeeper session changed"
        case ConfigChanged():
            return "a config changed"
        case ReleasedFromPhase():
            return "released from a phase"
        case _:
            assert_never(cause)


def event_text(event: Event) -> str:
    """An event's name and what it is about."""
    values = [f"{field.name} {_value(getattr(event, field.name))}" for field in dataclasses.fields(event) if field.name not in _NOT_SHOWN]
    return " ".join([type(event).__name__, *values])


def _value(value: object) -> str:
    return _few(map(str, value)) if isinstance(value, tuple) else str(value)


def _state(info: LeaderAndIsr | None) -> str:
    if info is None:
        return "without a state"
    isr = ",".join(map(str, info.isr))
    return f"leader {info.leader} isr {isr} leader epoch {info.leader_epoch} partition epoch {info.partition_epoch}"


def _requests(posted: Iterable[tuple[int, int]]) -> str:
    receivers: dict[int, dict[int, int]] = {}
    for api_key, broker_id in posted:
        counts = receivers.setdefault(api_key, {})
        counts[broker_id] = counts.get(broker_id, 0) + 1
    texts = [
        f"{messages.APIS[api_key].name} to " + ",".join(f"{b} ×{count}" if count > 1 else str(b) for b, count in sorted(counts.items()))
        for api_key, counts in sorted(receivers.items())
    ]
    return "; ".join(texts) or "no request sent"


def _few(texts: Iterable[str]) -> str:
    shown = list(texts)
    more = len(shown) - SHOWN
    return ", ".join(shown[:SHOWN]) + (f" and {more} more" if more > 0 else "")
