"""Why an event is on the controller's queue, and its sequence number.

With these, each frame can be traced back to its origin. Whatever is written or sent belongs to the event that is being processed
(`Controller.current`, `Term.event`, `RequestSender.event`). The response to a request is the cause of a later event.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.controller.events.catalogue import Event
from klamm.seams.value_class import dataclass


@dataclass(frozen=True, slots=True)
class WatchFired:
    """A ZooKeeper watch fired. The event says for which znode."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of the controller fired."""

    name: str


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A client or a broker sent a request. `connection` is empty if it came over no connection.

    Connection and correlation id are the ones that a tap (`server/net/tap.py`) sees.
    """

    api: str
    connection: str = ""
    correlation_id: int = -1


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """A broker responded to a request that was sent for event number `sent_by`."""

    broker_id: int
    sent_by: int
    frame: int | None = None
    """The observer's number of the response."""


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
    """A procedure that was held at a phase was released. The event says which phase."""


Cause = WatchFired | TimerFired | RequestReceived | ResponseReceived | BrokerStarted | SessionChanged | ConfigChanged | ReleasedFromPhase

WATCH_FIRED = WatchFired()


class QueuedEvent(NamedTuple):
    """An event with its cause and its sequence number, which counts from 1 for each controller."""

    sequence: int
    event: Event
    cause: Cause
