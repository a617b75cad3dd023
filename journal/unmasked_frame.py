"""Frames with secrets on their way to the thread that writes them. Only there they are masked: decoding a large one takes long, and would
keep the event loop from other clients.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence, Set
from typing import Any

from klamm.journal.columns import Flag
from klamm.protocol.security import redaction

_FLAGS = slice(48, 52)
"""Where the flags of a packed row are (`batches.py`)."""
_MASKED = int(Flag.MASKED)


class UnmaskedFrame:
    """A frame that is masked before it is written. Of a response, `version` is that of its request; None for a request."""

    __slots__ = ("_frame", "_key", "_public", "_size", "_version")

    def __init__(self, frame: bytes, key: int, version: int | None, public: Set[str]) -> None:
        self._frame = frame
        self._size = len(frame)
        self._key = key
        self._version = version
        self._public = public

    def __len__(self) -> int:
        """Number of bytes that are in memory until it is written."""
        return len(self._frame)

    def __getitem__(self, kept: slice) -> UnmaskedFrame:
        """The same frame, with fewer bytes to write. It is masked as a whole."""
        self._size = len(range(len(self._frame))[kept])
        return self

    def masked(self) -> tuple[bytes, bool]:
        """The bytes to write, and whether there was a secret in the frame."""
        if self._version is None:
            masked = redaction.masked_request(self._frame, self._key, self._public)
        else:
            masked = redaction.masked_response(self._frame, self._key, self._version, self._public)
        return masked[: self._size], masked != self._frame


def mask_all(rows: list[bytes], frames: Sequence[bytes | UnmaskedFrame]) -> list[bytes]:
    """The frames with masked secrets. A row loses its flag `MASKED` if its frame has no secret."""
    written: list[Any] = list(frames)
    for place in [place for place, frame in enumerate(written) if frame.__class__ is UnmaskedFrame]:
        written[place], has_secret = written[place].masked()
        if not has_secret:
            row = bytearray(rows[place])
            row[_FLAGS] = (int.from_bytes(row[_FLAGS], sys.byteorder) & ~_MASKED).to_bytes(4, sys.byteorder)
            rows[place] = bytes(row)
    return written
