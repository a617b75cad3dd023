"""Cuts a stream of bytes into frames, without IO.

A frame is a length of four bytes and as many bytes of payload. `FrameReader.feed` takes received bytes and returns the complete payloads;
it keeps the rest for the next call. A length that is negative or above the limit is an error of the peer as soon as its four bytes have
arrived, so no memory is used for a frame that will be refused. The error has the frames that were complete before it.
"""

from __future__ import annotations

from struct import Struct

from klamm.protocol.errors import RemoteProtocolError

DEFAULT_LIMIT = 104857600
ANY_LENGTH = (1 << 31) - 1
"""The limit of an observer, who refuses nothing."""

_LENGTH = Struct(">i")


# The first four bytes of other protocols, read as a length: a TLS record (handshake or alert, version 3.x), methods and responses of HTTP.
_TLS = (b"\x15\x03", b"\x16\x03")
_HTTP = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ")
_HTTP_RESPONSE = b"HTTP"


def _mistaken_for_kafka(length: int) -> str:
    """The protocol of a peer whose first four bytes are not a length, as a text; empty when it is not known."""
    begin = _LENGTH.pack(length)
    if begin.startswith(_TLS):
        return "; it begins like TLS: is the client set to SSL, where this port is PLAINTEXT?"
    if begin.startswith(_HTTP):
        return "; it begins like HTTP, and this port speaks Kafka's protocol"
    if begin == _HTTP_RESPONSE:
        return "; it begins like HTTP: is this the port of a broker?"
    return ""


class BadLength(RemoteProtocolError):
    """An invalid length. `payloads` are the complete frames before it in the same feed."""

    def __init__(self, length: int, limit: int, payloads: list[bytes]) -> None:
        super().__init__(f"a frame of {length} bytes; the limit is {limit}{_mistaken_for_kafka(length)}")
        self.payloads = payloads


def frame_ends(data: bytes | bytearray | memoryview, limit: int = DEFAULT_LIMIT) -> tuple[list[int], int | None]:
    """Where each whole frame at the start of `data` ends, and the length that the frame after them announces.

    That is None if its four bytes are not there. If it is negative or above `limit`, no frame begins there.
    """
    ends: list[int] = []
    pos, end = 0, len(data)
    while end - pos >= 4:
        (length,) = _LENGTH.unpack_from(data, pos)
        if not 0 <= length <= limit or end - pos - 4 < length:
            return ends, length
        pos += 4 + length
        ends.append(pos)
    return ends, None


class FrameReader:
    """One direction of one connection. `limit` may be changed between two feeds (before authentication it is lower)."""

    __slots__ = ("_needed", "_rest", "limit")

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._rest = bytearray()
        self._needed = 4

    @property
    def buffered(self) -> int:
        """Number of bytes of the incomplete frame."""
        return len(self._rest)

    def clear(self) -> None:
        """Drop the incomplete frame; the next bytes start a new frame."""
        self._rest.clear()
        self._needed = 4

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The payloads that `data` completes, in order. Each is copied once, into an object of its own that nobody changes."""
        rest = self._rest
        if not rest:
            payloads, pos = self._cut(data)
            if pos < len(data):
                rest += data[pos:]
            return payloads
        rest += data
        if len(rest) < self._needed:
            return []
        try:
            with memoryview(rest) as view:
                payloads, pos = self._cut(view)
        except BadLength:
            rest.clear()
            raise
        if pos == len(rest):
            rest.clear()
        else:
            del rest[:pos]
        return payloads

    def _cut(self, data: bytes | bytearray | memoryview) -> tuple[list[bytes], int]:
        """The whole frames at the start of `data`, and where they end."""
        ends, length = frame_ends(data, self.limit)
        is_bytes = data.__class__ is bytes
        payloads: list[bytes] = []
        pos = 0
        for end in ends:
            payload = data[pos + 4 : end]
            payloads.append(payload if is_bytes else bytes(payload))  # type: ignore[arg-type]
            pos = end
        if length is not None and not 0 <= length <= self.limit:
            raise BadLength(length, self.limit, payloads)
        self._needed = 4 if length is None else 4 + length
        return payloads, pos
