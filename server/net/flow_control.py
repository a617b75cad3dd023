"""Which frames of one connection may be handled now, and whether its socket is read. No IO: the connection says what happens.

There are four reasons to stop: the connection is HELD as one too many, its client does not read its responses (UNREAD), a request waits
for its response (HANDLING), it is CLOSED. While there is one, no frame is given out and the socket is not read. What a transport hands over
all the same is kept in order. A frame with a bad length comes out as BadLength in its turn, after the frames before it.

    flow.feed(data)                              # from the transport
    while (payload := flow.next()) is not None:  # BadLength: refuse the connection
        ...                                      # flow.stop(HANDLING) ends the loop

When `next` finds nothing left and no reason to stop, the socket is read again.
"""

from __future__ import annotations

from typing import Protocol

from klamm.protocol.framing import BadLength, FrameReader

HELD, UNREAD, HANDLING, CLOSED = 1, 2, 4, 8


class Reading(Protocol):
    """What a transport lets us say about reading from its socket."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class FlowControl:
    """The input of one connection. Its transport is called at changes only, and never after CLOSED.

    `between_frames` says that everything that came is handled and that nothing stops: the next bytes are the start of a frame, and
    a caller that knows a response to them may give it without `feed`.
    """

    __slots__ = ("_failure", "_frames", "_reader", "_reading", "_transport", "between_frames", "stops")

    def __init__(self, max_request_bytes: int, transport: Reading) -> None:
        self._reader = FrameReader(max_request_bytes)
        self._transport: Reading | None = transport
        self._frames: list[bytes] = []  # the last one is next
        self._failure: BadLength | None = None
        self._reading = True
        self.stops = 0
        """The reasons to stop there are now, as a set of bits."""
        self.between_frames = True

    @property
    def waiting(self) -> int:
        """Whole frames that were not given out yet."""
        return len(self._frames)

    @property
    def buffered(self) -> int:
        """Bytes of the unfinished frame."""
        return self._reader.buffered

    def feed(self, data: bytes) -> None:
        """Take what came. Bytes behind a bad length, or for a closed connection, are dropped."""
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
        """The next frame that may be handled now, if any. Raises BadLength."""
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
        """Read the socket again, unless something stops or the input ended with a bad length."""
        if not self._reading and not self.stops and self._failure is None and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def peek(self) -> bytes | None:
        """The next frame, whatever stops; it stays."""
        return self._frames[-1] if self._frames else None

    def drop(self) -> None:
        """Take the frame that `peek` showed."""
        self._frames.pop()

    def put_back(self, payloads: list[bytes]) -> None:
        """Give frames back that were dropped last, in their order: they are the next ones again."""
        self._frames += reversed(payloads)

    def stop(self, reason: int) -> None:
        """Give out nothing and read nothing until `allow` of the same reason. After CLOSED nothing is kept."""
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
        """End a reason to stop. The caller calls `next` then."""
        self.stops &= ~reason

    def repeat_pause(self) -> None:
        """Pause reading once more where it is paused: the transport began to read on its own."""
        if not self._reading and self._transport is not None:
            self._transport.pause_reading()
