"""Connections that are observed, and the interface of an observer that gets the bytes of each (`ByteTap`)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import reduce
from typing import NamedTuple, Protocol

from klamm.seams.value_class import dataclass


class ConnectionKind(Enum):
    """What a connection is for."""

    ACCEPTED = "accepted"
    """From a client, another broker or a controller to one of our listeners."""
    CHANNEL = "channel"
    """Our controller's requests to a broker."""
    TO_CONTROLLER = "to controller"
    """This broker's requests to the active controller."""
    TO_LEADER = "to leader"
    """This broker's fetches from a leader."""
    TO_BROKER = "to broker"
    """This broker's markers of transactions to a leader, and its verifications to a transaction coordinator."""

    @property
    def is_ours(self) -> bool:
        """Whether this broker opened the connection, so that it sends requests and receives responses."""
        return self is not ConnectionKind.ACCEPTED


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """One connection. `id` is unique within its broker; `peer` is host:port of the other end.

    `listener` is the name of the listener that accepted it. `peer_id` is the broker id of the other end, if we opened the connection and
    know the broker. `has_sasl`: the listener authenticates its clients with SASL.
    """

    broker_id: int
    id: str
    kind: ConnectionKind
    peer: str
    listener: str | None = None
    peer_id: int | None = None
    has_sasl: bool = False


class RequestId(NamedTuple):
    """A request on one connection. If a client uses a correlation id twice, the first response belongs to the older request."""

    connection_id: str
    correlation_id: int


class ControllerEvent(NamedTuple):
    """The controller event that caused a request; `sequence` is its number in the controller's queue."""

    sequence: int
    batch: int | None = None
    """Number of the batch of requests, as an observer of the controller counts them."""


Cause = RequestId | ControllerEvent


class ConnectionSink(Protocol):
    """Gets the events of one connection, on the thread of the event loop. It must not raise."""

    def received(self, data: bytes) -> None:
        """Bytes were received; they may begin and end anywhere in a frame."""

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        """Whole frames are written. `cause` is given for requests; for a response it follows from its bytes."""

    def authenticated(self, principal: str, mechanism: str) -> None:
        """The peer has authenticated as this principal, such as `User:alice`. `mechanism` is that of SASL, or `TLS`."""

    def closed(self, by: str, reason: str | None = None) -> None:
        """The connection was closed. `by` is `us` or `peer`; `reason` is one line, if known. Called once."""


class ByteTap(Protocol):
    """Makes a sink for each connection."""

    def connection(self, info: ConnectionInfo) -> ConnectionSink: ...


class BothSinks:
    """Two sinks on one connection: a tap and a journal."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: ConnectionSink, second: ConnectionSink) -> None:
        self._first = first
        self._second = second

    def received(self, data: bytes) -> None:
        self._first.received(data)
        self._second.received(data)

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        self._first.sent(data, cause)
        self._second.sent(data, cause)

    def authenticated(self, principal: str, mechanism: str) -> None:
        self._first.authenticated(principal, mechanism)
        self._second.authenticated(principal, mechanism)

    def closed(self, by: str, reason: str | None = None) -> None:
        self._first.closed(by, reason)
        self._second.closed(by, reason)


class NoSink:
    """The sink of a connection that is opened before the journal is open, or after it is closed."""

    def received(self, data: bytes) -> None:
        pass

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        pass

    def authenticated(self, principal: str, mechanism: str) -> None:
        pass

    def closed(self, by: str, reason: str | None = None) -> None:
        pass


def all_of(sinks: Sequence[ConnectionSink]) -> ConnectionSink:
    """One sink that passes everything to all of these, in order."""
    return reduce(BothSinks, sinks) if sinks else NoSink()
