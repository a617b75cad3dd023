"""What put an event on the controller's queue, and the number it got there.

A chain can be followed from a frame to its origin: what is written and sent belongs to the event that is being processed
(`Controller.current`, `Term.event`, `RequestSender.event`), and the response to a request sent then is the cause of a later event.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.controller.events.catalogue import Event
from klamm.protocol.value_class import dataclass


@dataclass(frozen=True, slots=True)
class WatchFired:
    """A watch of the store saw a change; the event says which znode."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of the controller came due."""

    name: str


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A client or a broker sent a request. `connection` is empty where the request did not come over one.

    Connection and correlation id are those that a tap of frames shows.
    """

    api: str
    connection: str = ""
    correlation_id: int = -1


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """A broker responded to a request that was sent when event number `sent_by` was processed."""

    broker_id: int
    sent_by: int
    frame: int | None = None
    """What an observer calls the response."""


@dataclass(frozen=True, slots=True)
class BrokerStarted:
    """This broker started."""


@dataclass(frozen=True, slots=True)
class SessionChanged:
    """The ZooKeeper session of this broker expired, or a new one began."""


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A dynamic config of a topic or of this broker changed."""


@dataclass(frozen=True, slots=True)
class ReleasedFromPhase:
    """Somebody let go on what he had held at a phase; the event says which."""


Cause = WatchFired | TimerFired | RequestReceived | ResponseReceived | BrokerStarted | SessionChanged | ConfigChanged | ReleasedFromPhase

WATCH_FIRED = WatchFired()


class QueuedEvent(NamedTuple):
    """An event with its place in the order of all events of one controller, from 1, and its cause."""

    sequence: int
    event: Event
    cause: Cause
