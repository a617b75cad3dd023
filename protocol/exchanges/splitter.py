"""Splits one direction of a connection into frames, for those that only observe it (`framing.py` is for its two ends).

No length is refused but a negative one. If a frame arrives in pieces, only the bytes that are kept are joined.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from klamm.protocol.framing import ANY_LENGTH, frame_ends

SHORTEST_HEAD = 14
"""A frame of which fewer bytes are there is lost: nobody knows its API."""
HEAD_BYTES = 1024
"""Of a frame that arrives in pieces, this much is there before `keep` decides."""

_length = Struct(">i").unpack_from


def keep_everything(head: bytes) -> int:
    """Frames are kept whole."""
    return ANY_LENGTH


def ignore(rest: bytes) -> None:
    """What is no frame is not looked at."""


class Splitter:
    """Calls `take(frame, size)` for each frame: all its bytes with the length, or if it came in pieces at least those that `keep` wants,
    and its size. `keep(head)` gets the first 16 bytes. `bad(rest)` gets what follows a negative length, or is left of a frame at the end.
    """

    __slots__ = ("_bad", "_buffer", "_ended", "_keep", "_size", "_skip", "_take", "busy")

    def __init__(
        self,
        take: Callable[[bytes, int], None],
        bad: Callable[[bytes], None] = ignore,
        keep: Callable[[bytes], int] = keep_everything,
    ) -> None:
        self._take = take
        self._bad = bad
        self._keep = keep
        self._buffer = bytearray()
        self._size = 0
        self._skip = 0
        self._ended = False
        self.busy = False
        """Whether a frame is incomplete, or further data is not read."""

    def feed(self, data: bytes) -> None:
        """Process more bytes. After a negative length nothing is read any more."""
        if self._ended:
            return
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            if self._skip:
                return
            data = data[skipped:]
            self._finish()
        if self._buffer:
            self._buffer += data
            data = self._unfinished()
        ends, length = frame_ends(data, ANY_LENGTH)
        pos, size = 0, len(data)
        for end in ends:
            self._take(data if end - pos == size else data[pos:end], end - pos)
            pos = end
        if length is not None and length < 0:
            self._ended = self.busy = True
            self._bad(data[pos:])
        elif pos < size:
            self._buffer += data[pos:]
            self.busy = True
            self._shorten()

    def count(self, data: bytes) -> int:
        """Process more bytes without taking the frames in them; returns how many end here."""
        counted = 0

        def count(frame: bytes, size: int) -> None:
            nonlocal counted
            counted += 1

        take, self._take = self._take, count
        try:
            self.feed(data)
        finally:
            self._take = take
        return counted

    @property
    def missing(self) -> int:
        """How many bytes of a frame, or of its length, have to come before the next frame begins; 0 between frames, and if nothing is read
        any more.
        """
        if self._ended:
            return 0
        have = len(self._buffer)
        if self._skip or not have:
            return self._skip
        return 4 - have if have < 4 else 4 + _length(self._buffer)[0] - have

    def lose(self, size: int) -> bool:
        """Skip bytes that are not known. Returns whether they all belong to one frame, whose beginning is kept. If not, the beginning of
        the next frame is not known either.
        """
        if self._skip:
            if size > self._skip:
                return False
            self._skip -= size
        else:
            missing = self.missing
            if len(self._buffer) < SHORTEST_HEAD or not 0 < size <= missing:
                return False
            self._size, self._skip = len(self._buffer) + missing, missing - size
        if not self._skip:
            self._finish()
        return True

    def end(self) -> None:
        """Called when the connection is closed."""
        if self._buffer and not self._ended:
            self._bad(bytes(self._buffer))
            self._buffer.clear()
        self._ended = True

    def _unfinished(self) -> bytes:
        """The bytes to process now, after which the buffer is empty; b"" if the first frame is still incomplete."""
        buffer = self._buffer
        if len(buffer) < 4 or 0 <= _length(buffer)[0] > len(buffer) - 4:
            self._shorten()
            return b""
        data = bytes(buffer)
        buffer.clear()
        self.busy = False
        return data

    def _shorten(self) -> None:
        """Skip the rest of a frame if enough bytes of it are there."""
        buffer = self._buffer
        if len(buffer) > HEAD_BYTES:
            keep = self._keep(bytes(buffer[:16]))
            size = 4 + _length(buffer)[0]
            if len(buffer) > keep and size > len(buffer):
                self._size = size
                self._skip = size - len(buffer)
                del buffer[keep:]

    def _finish(self) -> None:
        frame = bytes(self._buffer)
        self._buffer.clear()
        self.busy = False
        self._take(frame, self._size)
