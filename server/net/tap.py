"""Taps observe every frame that a broker receives or sends, on connections from clients and to other brokers.

A `Tap` is given to a broker, or to a whole local cluster. It gets a `Frame` for each frame, cached responses included, in order for each
connection. Without a tap a connection makes one comparison for each read, and none for each frame.

A journal gets the bytes of each connection instead and splits them itself (`ByteTap`), so no object is made for a frame. A broker may have
both.

A frame has a cause. The cause of a response is its request, found by the correlation id as clients do. The cause of a controller's request
to a broker is the event that the controller processed. A request from a client has no cause.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from enum import Enum
from functools import reduce
from typing import NamedTuple, Protocol

from klamm.protocol.framing import ANY_LENGTH, BadLength, FrameReader
from klamm.seams.value_class import dataclass

log = logging.getLogger(__name__)


class Direction(Enum):
    """Direction of a frame, as the broker with the tap sees it."""

    RECEIVED = "received"
    SENT = "sent"


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


class Frame(NamedTuple):
    """One frame. `payload` does not include the length; `time_s` is the time of the broker's clock when it was read or written."""

    connection: ConnectionInfo
    direction: Direction
    time_s: float
    cause: Cause | None
    payload: bytes


class Tap(Protocol):
    """Gets every frame, on the thread of the event loop. It must be quick. Its exceptions are logged and have no other effect."""

    def frame(self, frame: Frame) -> None: ...


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


def writing_to(sink: ConnectionSink, write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a function that shows the data to the sink and then calls `write`."""
    sent = sink.sent

    def shown(data: bytes) -> None:
        sent(data)
        write(data)

    return shown


class ConnectionTap:
    """The tap of one connection, frame by frame."""

    __slots__ = ("_clock", "_reader", "_tap", "connection")

    def __init__(self, tap: Tap, connection: ConnectionInfo, clock: Callable[[], float]) -> None:
        self.connection = connection
        self._tap = tap
        self._clock = clock
        self._reader: FrameReader | None = FrameReader(ANY_LENGTH)

    def received(self, data: bytes) -> None:
        """Bytes were received; they may begin and end anywhere in a frame. Bytes after a bad length are not shown."""
        if self._reader is None:
            return
        try:
            payloads = self._reader.feed(data)
        except BadLength as error:
            payloads = error.payloads
            self._reader = None
        for payload in payloads:
            self._show(Direction.RECEIVED, payload, self._request_of(payload) if self.connection.kind.is_ours else None)

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        """Whole frames are written. `cause` is given for requests; for a response it follows from its bytes."""
        for payload in FrameReader(ANY_LENGTH).feed(data):
            self._show(Direction.SENT, payload, cause if self.connection.kind.is_ours else self._request_of(payload))

    def authenticated(self, principal: str, mechanism: str) -> None:
        """Does nothing: a tap of frames sees the frames of the authentication."""

    def closed(self, by: str, reason: str | None = None) -> None:
        """Does nothing: a tap of frames does not get the end of a connection."""

    def _request_of(self, response: bytes) -> RequestId | None:
        if len(response) < 4:
            return None
        return RequestId(self.connection.id, int.from_bytes(response[:4], "big", signed=True))

    def _show(self, direction: Direction, payload: bytes, cause: Cause | None) -> None:
        try:
            self._tap.frame(Frame(self.connection, direction, self._clock(), cause, payload))
        except Exception:  # a faulty tap must not stop the frame
            log.exception("a tap raised an exception")


class BrokerTap:
    """The tap of a broker; it numbers the connections that the broker opens. `broker_id` may change before the first connection.

    `journal` is set while the broker has a journal, with or without a tap. `counts`, if set, counts frames for the metrics; `history`, if
    set, keeps the last ones for somebody who steers the cluster.
    """

    def __init__(self, tap: Tap | None, broker_id: int, clock: Callable[[], float]) -> None:
        self.broker_id = broker_id
        self.journal: ByteTap | None = None
        self.counts: ByteTap | None = None
        self.history: ByteTap | None = None
        self._tap = tap
        self._clock = clock
        self._numbers = itertools.count(1)

    def connection(
        self, kind: ConnectionKind, peer: str, connection_id: str | None = None, listener: str | None = None, peer_id: int | None = None,
        has_sasl: bool = False,
    ) -> ConnectionSink:
        """The sink of a new connection. A connection that we opened gets its id here."""
        if connection_id is None:
            connection_id = f"{kind.value}-{peer}-{next(self._numbers)}"
        info = ConnectionInfo(self.broker_id, connection_id, kind, peer, listener, peer_id, has_sasl)
        sinks = [tap.connection(info) for tap in (self.journal, self.counts, self.history) if tap is not None]
        if self._tap is not None:
            sinks.insert(0, ConnectionTap(self._tap, info, self._clock))
        return reduce(BothSinks, sinks) if sinks else NoSink()
