"""Sees every frame that a broker receives or sends: clients, other brokers, its channels to brokers, its requests to the controller.

A `Tap` is given to the broker (or to a whole local cluster) and gets a `Frame` for each, cached responses included. Frames of one
connection come in their order. Without a tap a connection does one comparison for each read, and none for each frame.

A journal gets the bytes of each connection instead, and cuts them itself (`ByteTap`): no object is made for a frame. A broker may have
both at once.

Frames can be followed to their origin. The cause of a response is the request it belongs to, found by its correlation id as clients
do. The cause of a controller's request to a broker is the event that the controller processed. What a client sends has none.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from klamm.protocol.framing import BadLength, FrameReader
from klamm.protocol.value_class import dataclass

log = logging.getLogger(__name__)

ANY_LENGTH = 2**31 - 1


class Direction(Enum):
    """Which way a frame went, seen from the broker that has the tap."""

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

    @property
    def is_ours(self) -> bool:
        """Whether we opened it: then requests are sent and responses received."""
        return self is not ConnectionKind.ACCEPTED


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """One connection. `id` is unique among those of its broker; `peer` is host:port of the other end.

    `listener` is the name of the listener that accepted it; `peer_id` the broker id of the other end, where we opened the connection to
    a broker that we know.
    """

    broker_id: int
    id: str
    kind: ConnectionKind
    peer: str
    listener: str | None = None
    peer_id: int | None = None


class RequestId(NamedTuple):
    """A request on one connection. Clients may use a correlation id twice; those that do mean the older request first."""

    connection_id: str
    correlation_id: int


class ControllerEvent(NamedTuple):
    """The event, by its number on the queue of the controller, whose processing sent a request."""

    sequence: int
    batch: int | None = None
    """What an observer of the controller calls the send that the request belongs to."""


Cause = RequestId | ControllerEvent


class Frame(NamedTuple):
    """One frame. `payload` is without the length; `time_s` is the clock of the event loop when the frame was read or written."""

    connection: ConnectionInfo
    direction: Direction
    time_s: float
    cause: Cause | None
    payload: bytes


class Tap(Protocol):
    """Gets every frame, on the event loop's thread. It must be quick; what it raises is logged and goes no further."""

    def frame(self, frame: Frame) -> None: ...


class ConnectionSink(Protocol):
    """Gets what happens on one connection, on the event loop's thread. It raises nothing."""

    def received(self, data: bytes) -> None:
        """Bytes came, cut anywhere."""

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        """Whole frames are written. `cause` is that of requests; responses have theirs in their bytes."""

    def closed(self, by: str, reason: str | None = None) -> None:
        """The connection is gone. `by` is `us` or `peer`, `reason` a line where one is known. Called once."""


class ByteTap(Protocol):
    """Makes a sink for each connection."""

    def connection(self, info: ConnectionInfo) -> ConnectionSink: ...


class BothSinks:
    """A test's tap and a journal on one connection."""

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

    def closed(self, by: str, reason: str | None = None) -> None:
        self._first.closed(by, reason)
        self._second.closed(by, reason)


class NoSink:
    """Of a connection that is made before the journal is open, or after it is closed."""

    def received(self, data: bytes) -> None:
        pass

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        pass

    def closed(self, by: str, reason: str | None = None) -> None:
        pass


def writing_to(sink: ConnectionSink, write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """`write` with a look at what is written."""
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
        """Bytes came, cut anywhere. What follows a bad length is not shown."""
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
        """Whole frames were written. `cause` is that of requests; responses have theirs in their bytes."""
        for payload in FrameReader(ANY_LENGTH).feed(data):
            self._show(Direction.SENT, payload, cause if self.connection.kind.is_ours else self._request_of(payload))

    def closed(self, by: str, reason: str | None = None) -> None:
        """A tap of frames is not told."""

    def _request_of(self, response: bytes) -> RequestId | None:
        if len(response) < 4:
            return None
        return RequestId(self.connection.id, int.from_bytes(response[:4], "big", signed=True))

    def _show(self, direction: Direction, payload: bytes, cause: Cause | None) -> None:
        try:
            self._tap.frame(Frame(self.connection, direction, self._clock(), cause, payload))
        except Exception:  # whatever a tap does wrong, the frame goes its way
            log.exception("a tap failed")


class BrokerTap:
    """A broker's tap: numbers the connections that we open. `broker_id` may become known, or change, before the first one.

    `journal` is set while there is one, besides the tap or alone.
    """

    def __init__(self, tap: Tap | None, broker_id: int, clock: Callable[[], float]) -> None:
        self.broker_id = broker_id
        self.journal: ByteTap | None = None
        self._tap = tap
        self._clock = clock
        self._numbers = itertools.count(1)

    def connection(
        self, kind: ConnectionKind, peer: str, connection_id: str | None = None, listener: str | None = None, peer_id: int | None = None
    ) -> ConnectionSink:
        """The tap of a new connection. One that we opened gets its id here."""
        if connection_id is None:
            connection_id = f"{kind.value}-{peer}-{next(self._numbers)}"
        info = ConnectionInfo(self.broker_id, connection_id, kind, peer, listener, peer_id)
        journal = None if self.journal is None else self.journal.connection(info)
        if self._tap is None:
            return NoSink() if journal is None else journal
        frames = ConnectionTap(self._tap, info, self._clock)
        return frames if journal is None else BothSinks(frames, journal)
