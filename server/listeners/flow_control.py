"""Decides which frames of one connection may be handled now, and whether its socket is read. It does no IO itself.

There are seven reasons to stop: the connection is above a limit (HELD), its client does not read its responses (UNREAD), some of them wait
in a file (IN_FILE), a request waits for its response (HANDLING), the client is above a quota (THROTTLED), somebody paused the broker
(PAUSED), or the connection is CLOSED. While there is a reason, no frame is returned and the socket is not read. Bytes that the transport
delivers anyway are kept in order. A bad length of a frame raises BadLength when its turn comes, after the frames before it.

    flow.feed(data)                              # from the transport
    while (payload := flow.next()) is not None:  # BadLength: refuse the connection
        ...                                      # flow.stop(HANDLING) ends the loop

If `next` finds no frame and no reason to stop, the socket is read again.
"""

from __future__ import annotations

from typing import Protocol

from klamm.protocol.framing import BadLength, FrameReader

HELD, UNREAD, HANDLING, CLOSED, THROTTLED, PAUSED, IN_FILE = 1, 2, 4, 8, 16, 32, 64


class Reading(Protocol):
    """The part of a transport that controls reading from its socket."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class FlowControl:
    """The input of one connection. It calls the transport only when something changes, and never after CLOSED.

    `between_frames` is true if all received bytes are handled and there is no reason to stop: the next bytes are the start of a frame, and
    a caller that already has the response may send it without `feed`.
    """

    __slots__ = ("_failure", "_frames", "_reader", "_reading", "_transport", "between_frames", "stops")

    def __init__(self, max_request_bytes: int, transport: Reading) -> None:
        self._reader = FrameReader(max_request_bytes)
        self._transport: Reading | None = transport
        self._frames: list[bytes] = []  # the last one is next
        self._failure: BadLength | None = None
        self._reading = True
        self.stops = 0
        """The current reasons to stop, as bits."""
        self.between_frames = True

    @property
    def waiting(self) -> int:
        """Number of complete frames that have not been returned yet."""
        return len(self._frames)

    @property
    def buffered(self) -> int:
        """Size of the unfinished frame in bytes, as received."""
        return self._reader.buffered

    def limit(self, max_request_bytes: int) -> None:
        """Accept frames of up to this size from now on."""
        self._reader.limit = max_request_bytes

    def feed(self, data: bytes) -> None:
        """Add received bytes. Bytes after a bad length, and bytes of a closed connection, are dropped."""
        self.between_frames = False
        if self._failure is not None or self.stops & CLOSED:
            return
        try:
            frames = self._reader.feed(data)
        except BadLength as error:
            self._failure, frames = error, error.payloads
        frames.reverse()
        if self._frames:
            frames += self._frames
        self._frames = frames

    def next(self) -> bytes | None:
        """Return the next frame that may be handled now, None if there is none. Raises BadLength."""
        if self.stops:
            return None
        if self._frames:
            return self._frames.pop()
        if self._failure is not None:
            raise self._failure
        self.between_frames = not self._reader.buffered
        self.read_on()
        return None

    def read_on(self) -> None:
        """Read the socket again, unless there is a reason to stop or the input ended with a bad length."""
        if not self._reading and not self.stops and self._failure is None and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def peek(self) -> bytes | None:
        """The next frame, even if there is a reason to stop. It is not removed."""
        return self._frames[-1] if self._frames else None

    def drop(self) -> None:
        """Remove the frame that `peek` returned."""
        self._frames.pop()

    def put_back(self, payloads: list[bytes]) -> None:
        """Put back the frames that were dropped last, in their order; they are the next ones again."""
        self._frames += reversed(payloads)

    def stop(self, reason: int) -> None:
        """Return no frame and read nothing until `allow` with the same reason. CLOSED also drops all frames."""
        self.stops |= reason
        self.between_frames = False
        if reason == CLOSED:
            self._frames = []
            self._failure = None
            self._reader.clear()
            self._transport = None
        elif self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def allow(self, reason: int) -> None:
        """Remove a reason to stop. The caller must call `next` afterwards."""
        self.stops &= ~reason

    def repeat_pause(self) -> None:
        """Pause the transport again if reading is paused, because the transport began to read on its own."""
        if not self._reading and self._transport is not None:
            self._transport.pause_reading()
