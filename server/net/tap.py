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
from typing import NamedTuple, Protocol

from klamm.protocol.exchanges.connections import ByteTap, Cause, ConnectionInfo, ConnectionKind, ConnectionSink, RequestId, all_of
from klamm.protocol.exchanges.splitter import Splitter

log = logging.getLogger(__name__)


class Direction(Enum):
    """Direction of a frame, as the broker with the tap sees it."""

    RECEIVED = "received"
    SENT = "sent"


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


def writing_to(sink: ConnectionSink, write: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a function that shows the data to the sink and then calls `write`."""
    sent = sink.sent

    def shown(data: bytes) -> None:
        sent(data)
        write(data)

    return shown


class ConnectionTap:
    """The tap of one connection, frame by frame. Bytes after a bad length are not shown."""

    __slots__ = ("_clock", "_is_ours", "_tap", "connection", "received")

    def __init__(self, tap: Tap, connection: ConnectionInfo, clock: Callable[[], float]) -> None:
        self.connection = connection
        self._tap = tap
        self._clock = clock
        self._is_ours = connection.kind.is_ours
        self.received: Callable[[bytes], None] = Splitter(self._show_received).feed

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        """Whole frames are written. `cause` is given for requests; for a response it follows from its bytes."""
        Splitter(lambda frame, _: self._show(Direction.SENT, frame, cause if self._is_ours else self._request_of(frame))).feed(data)

    def authenticated(self, principal: str, mechanism: str) -> None:
        """Does nothing: a tap of frames sees the frames of the authentication."""

    def closed(self, by: str, reason: str | None = None) -> None:
        """Does nothing: a tap of frames does not get the end of a connection."""

    def _show_received(self, frame: bytes, size: int) -> None:
        self._show(Direction.RECEIVED, frame, self._request_of(frame) if self._is_ours else None)

    def _request_of(self, response: bytes) -> RequestId | None:
        if len(response) < 8:
            return None
        return RequestId(self.connection.id, int.from_bytes(response[4:8], "big", signed=True))

    def _show(self, direction: Direction, frame: bytes, cause: Cause | None) -> None:
        try:
            self._tap.frame(Frame(self.connection, direction, self._clock(), cause, frame[4:]))
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
        sinks: list[ConnectionSink] = [tap.connection(info) for tap in (self.journal, self.counts, self.history) if tap is not None]
        if self._tap is not None:
            sinks.insert(0, ConnectionTap(self._tap, info, self._clock))
        return all_of(sinks)
