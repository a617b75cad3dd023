"""The journal of one connection: splits bytes into frames, matches responses to their requests, and appends a packed row for each.

Responses of a connection are in the order of their requests, so the request of a response is the first one that waits. If the correlation
ids differ, it is searched for. Data that is exactly one frame, of an API without anything to mask or remember, takes a short path
(`_request_in`, `_response_out`), which does little more than append the row. The long path makes the same row. A request that waits for its
response is kept as its packed row, because the row of the response begins with it.

By default only `RECORDS_KEPT` bytes of Produce requests and Fetch responses are kept: everything before the first records, and some of
these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from functools import cache
from struct import Struct, error
from typing import Any, NamedTuple, Protocol

from klamm.journal.batches import NO_API, NO_CORRELATION, OTHER, PLAIN_REQUEST, RESPONSE, ContextValues
from klamm.journal.columns import Direction, Flag
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.framing import ANY_LENGTH, frame_ends
from klamm.protocol.primitives import FEW_TAGS, read_uvarint, skip_tags
from klamm.protocol.security import redaction

RECORDS_KEPT = 1024
"""Bytes that are kept of a Produce request or Fetch response, including its length."""

LARGE_FRAME = 1 << 16
"""A frame of this size wakes the writing thread."""

_LARGEST = 1 << 30
_RESPONSE = Struct(">ii").unpack_from
"""Reads length and correlation id of a response."""
_REQUEST = Struct(">hhih").unpack_from
_KIND = Struct(">Ii")
_SEQ = Struct("=q").unpack_from
_CONTEXT = _SEQ
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_SHORTEST_REQUEST = 14

_SPECIAL_REQUESTS = frozenset({int(ApiKey.PRODUCE), int(ApiKey.API_VERSIONS), *map(int, redaction.REQUESTS)})
_SECRET_REQUESTS = frozenset(key.to_bytes(2, "big") for key in redaction.REQUESTS)
_SPECIAL_RESPONSES = frozenset({int(ApiKey.FETCH), int(ApiKey.API_VERSIONS), *map(int, redaction.RESPONSES)})
_PLAIN_REQUESTS = {
    key << 16 | version: key if key in _SPECIAL_RESPONSES else 0
    for key, api in APIS.items()
    for version in range(api.min_version, api.max_version + 1)
    if key not in _SPECIAL_REQUESTS or (key == ApiKey.API_VERSIONS and version < 3)
}
"""API key and version as one number, for requests that are written unchanged → the API key if the response is special, otherwise 0."""
_PRODUCE_REQUESTS = range(APIS[ApiKey.PRODUCE].max_version + 1)
"""The same numbers for Produce requests, because the key of Produce is 0."""
_pack_plain = PLAIN_REQUEST.pack
_pack_response = RESPONSE.pack
_pack_other = OTHER.pack
_NO_RESPONSE, _CUT, _MASKED = int(Flag.NO_RESPONSE), int(Flag.CUT), int(Flag.MASKED)
_RAW_TOKEN, _UNMATCHED = int(Flag.RAW_TOKEN), int(Flag.UNMATCHED)
_CONTEXTS = 64
"""Sweep unused contexts once a connection has this many."""

_FETCH, _API_VERSIONS = int(ApiKey.FETCH), int(ApiKey.API_VERSIONS)
_UNSUPPORTED_VERSION = b"\0\x23"
_NO_HEAD = -5, 0, 0, b""
"""The result for data that is too short. No frame has this length."""
_RAW = -1
"""The API key of a SASL token, which is not a request, in the list of waiting requests."""


_Waiting = tuple[int | None, bytes, int]
"""A request that waits for its response: correlation id, row, and the API key if the response may be special, otherwise 0, which is not the
key of such an API. A SASL token has no correlation id, no row, and the key `_RAW`.
"""


@cache
def _heads(client: int) -> Callable[[bytes], tuple[int, int, int, bytes]]:
    """A function that reads the beginning of a request whose client id has `client` bytes, including its length. Returns the length of the
    frame, API key and version as one number, correlation id, client id. Raises struct.error if there are not enough bytes.
    """
    return Struct(f">iIi{client}s").unpack_from


class ConnectionFacts(NamedTuple):
    """Facts about a connection when it is opened. `is_ours`: this broker opened it. `has_sasl`: its client authenticates with SASL."""

    kind: str
    is_ours: bool
    listener: str | None
    peer: str
    peer_id: int | None
    principal: str | None
    has_sasl: bool = False


class Owner(Protocol):
    """The interface of a connection to its `JournalWriter`."""

    seq: int
    """The number of the next row."""
    rows: list[bytes]
    frames: list[bytes]
    closed_contexts: list[int]
    now_ns: Callable[[], int]
    keeps: str | int | None
    """The value of `klamm.journal.frames`."""
    cuts_records: bool
    public_configs: Set[str]

    def new_context(self, values: ContextValues) -> int:
        """Add a context and return its number."""

    def connection_authenticated(self, conn_id: int, principal: str, mechanism: str) -> None:
        """Called when the peer of a connection has authenticated."""

    def connection_closed(self, conn_id: int, by: str, reason: str | None) -> None:
        """Called when a connection is closed."""

    def wake(self, size: int = 0) -> None:
        """Let the thread write all waiting rows now. `size` is the size of a large frame that is the reason."""


class ConnectionJournal:
    """The journal of one connection. All methods are called in the thread of the event loop. None raises because of data of the peer."""

    __slots__ = (
        "_add_frame", "_add_row", "_client", "_client_id", "_context", "_contexts", "_contexts_end", "_facts", "_guard", "_head", "_keep",
        "_longest", "_longest_request", "_now_ns", "_pending", "_records_end", "_request_dir", "_response_dir", "_split_requests",
        "_split_responses", "_sw", "_writer", "conn_id", "last_response_seq", "received", "sent",
    )

    def __init__(self, writer: Owner, conn_id: int, facts: ConnectionFacts) -> None:
        self.conn_id = conn_id
        self.last_response_seq: int | None = None
        """The row of the last response on this connection."""
        self._writer = writer
        self._facts = facts
        self._request_dir = int(Direction.REQUEST_OUT if facts.is_ours else Direction.REQUEST_IN)
        self._response_dir = int(Direction.RESPONSE_IN if facts.is_ours else Direction.RESPONSE_OUT)
        self._now_ns = writer.now_ns
        self._add_row = writer.rows.append
        self._add_frame = writer.frames.append
        self._pending: deque[_Waiting] = deque()
        """Requests that wait for their response."""
        self._client: bytes | None = None
        self._head = _heads(0)
        self._client_id: str | None = None
        self._sw: str | None = None
        self._contexts: list[int] = []
        self._contexts_end = _CONTEXTS
        self._context = self._new_context()
        self._guard = redaction.SaslGuard(facts.has_sasl)
        self._keep = 0 if writer.keeps == "headers" else writer.keeps if isinstance(writer.keeps, int) else _LARGEST
        self._split_requests = _Splitter(self._request, self._bad_length, self._request_keep)
        self._split_responses = _Splitter(self._response, self._bad_length, self._response_keep)
        self._longest = LARGE_FRAME if self._keep == _LARGEST else -1
        """Maximum length of frames that can take the short path."""
        self._records_end = RECORDS_KEPT if writer.cuts_records else _LARGEST
        self._longest_request = -1 if facts.has_sasl else self._longest
        """Like `_longest`, for requests; -1 if no request can take it, in the middle of a frame or if SASL tokens are possible."""
        self.received: Callable[[bytes], None] = self._split_responses.feed if facts.is_ours else self._request_in
        """Received bytes, split anywhere."""
        self.sent: Callable[..., None] = self._request_out if facts.is_ours else self._response_out
        """`sent(data, cause)`: complete frames were written. `cause.batch`, if there is one, is the row of the request's batch."""

    # --- events of the connection

    def _request_in(self, data: bytes) -> None:
        try:
            length, kind, correlation_id, client = self._head(data)
        except error:
            length, kind, correlation_id, client = _NO_HEAD
        if length == len(data) - 4 and length <= self._longest_request:
            special = _PLAIN_REQUESTS.get(kind)
            if special is not None and client == self._client:
                writer = self._writer
                seq = writer.seq
                writer.seq = seq + 1
                row = _pack_plain(seq, self._now_ns(), self._context, kind, correlation_id)
                self._add_row(row)
                self._add_frame(data)
                self._pending.append((correlation_id, row, special))
                if not seq & 511:
                    writer.wake()
            elif kind in _PRODUCE_REQUESTS and client == self._client:
                self._produce_in(data, kind, correlation_id, len(client) - 2)
            else:
                self._request(data, len(data))
                self._allow_short_way()
            return
        self._split_requests.feed(data)
        self._allow_short_way()

    def _produce_in(self, data: bytes, version: int, correlation_id: int, client_id: int) -> None:
        flags = _NO_RESPONSE if _acks(data, version, client_id) == 0 else 0
        if len(data) > self._records_end:
            data = data[:RECORDS_KEPT]
            flags |= _CUT
        writer = self._writer
        seq = writer.seq
        writer.seq = seq + 1
        row = _pack_plain(seq, self._now_ns(), self._context, version, correlation_id)
        if not flags & _NO_RESPONSE:
            self._pending.append((correlation_id, row, 0))
        self._add_row(_pack_other(row, 0, flags, 0, 0) if flags else row)
        self._add_frame(data)
        if not seq & 511:
            writer.wake()

    def _response_out(self, data: bytes, cause: object = None) -> None:
        pending = self._pending
        if pending and 8 <= len(data) <= self._longest:
            length, correlation_id = _RESPONSE(data)
            expected, asked, special = pending[0]
            if correlation_id == expected and length == len(data) - 4:
                flags = 0
                if special:
                    if special == _FETCH:
                        if len(data) > self._records_end:
                            data = data[:RECORDS_KEPT]
                            flags = _CUT
                    elif special != _API_VERSIONS or data[8:10] == _UNSUPPORTED_VERSION:
                        self._response(data, len(data))
                        return
                pending.popleft()
                writer = self._writer
                seq = writer.seq
                writer.seq = seq + 1
                self._add_row(_pack_response(asked, seq, self._now_ns(), flags, 1))
                self._add_frame(data)
                if not seq & 511:
                    writer.wake()
                return
        self._split_responses.feed(data)

    def _request_out(self, data: bytes, cause: object = None) -> None:
        batch = getattr(cause, "batch", None)
        self._request(data, len(data), 0 if batch is None else batch)

    def authenticated(self, principal: str, mechanism: str) -> None:
        """The peer has authenticated as this principal, by a mechanism of SASL or by `TLS`."""
        self._guard.authenticated()
        self._allow_short_way()
        self._facts = self._facts._replace(principal=principal)
        self._context = self._new_context()
        self._writer.connection_authenticated(self.conn_id, principal, mechanism)

    def closed(self, by: str, reason: str | None = None) -> None:
        """The connection is closed. An incomplete frame becomes a row."""
        self._split_requests.end()
        self._split_responses.end()
        self._writer.connection_closed(self.conn_id, by, reason)
        self._writer.closed_contexts.extend(self._contexts)
        self._contexts = []

    def request_seq(self, correlation_id: int) -> int | None:
        """The row of the latest request with this correlation id and without a response."""
        return next((_SEQ(each[1])[0] for each in reversed(self._pending) if each[0] == correlation_id), None)

    def _allow_short_way(self) -> None:
        self._longest_request = -1 if self._guard.is_on or self._split_requests.busy else self._longest

    # --- frames

    def _request(self, frame: bytes, size: int, cause: int = 0) -> None:
        """Journal one request of `size` bytes. `frame` has all or the first bytes."""
        try:
            key, version, correlation_id, length = _REQUEST(frame, 4)
        except error:
            self._short_request(frame, cause)
            return
        flags = 0
        if self._guard.may_be_token(key, version):
            kept = self._guard.kept(frame) if len(frame) == size else None
            if kept is None:
                self._pending.append((None, b"", _RAW))
                self._token(size, self._request_dir)
                return
            if kept != frame:
                frame, flags = kept, _MASKED
        client = frame[12 : 14 + length]
        if client != self._client:
            self._other_client(client, length)
        if key in _SPECIAL_REQUESTS:
            frame, special = self._special_request(frame, key, version, length)
            flags |= special
        if size > self._keep or len(frame) < size:
            frame, flags = self._cut(frame, size, 14 + max(length, 0), flags)
        writer = self._writer
        seq = writer.seq
        writer.seq = seq + 1
        row = _pack_plain(seq, self._now_ns(), self._context, key << 16 & 0xFFFFFFFF | version & 0xFFFF, correlation_id)
        if not flags & _NO_RESPONSE:
            self._pending.append((correlation_id, row, key if key in _SPECIAL_RESPONSES else 0))
        if flags or cause or self._request_dir:
            row = _pack_other(row, cause, flags, self._request_dir, 0)
        self._add_row(row)
        self._add_frame(frame)
        if not seq & 511 or size > LARGE_FRAME:
            writer.wake(len(frame))

    def _response(self, frame: bytes, size: int) -> None:
        """Journal one response of `size` bytes. `frame` has all or the first bytes."""
        writer = self._writer
        pending = self._pending
        if pending and pending[0][2] == _RAW:
            pending.popleft()
            self._token(size, self._response_dir)
            return
        if len(frame) < 8:
            self._row(frame, self._response_dir, _UNMATCHED, NO_API | NO_CORRELATION)
            return
        (correlation_id,) = _INT32.unpack_from(frame, 4)
        place = 0 if pending and pending[0][0] == correlation_id else self._place(correlation_id)
        if place < 0:
            kept = frame[: self._keep if self._keep else 8]
            self._row(kept, self._response_dir, _UNMATCHED, NO_API, correlation_id)
            return
        _, asked, special = pending[place]
        del pending[place]
        flags = 0
        if special:
            frame, asked, flags = self._special_response(frame, special, asked)
        if size > self._keep or len(frame) < size:
            frame, flags = self._cut(frame, size, 8, flags)
        seq = writer.seq
        writer.seq = seq + 1
        self.last_response_seq = seq
        self._add_row(_pack_response(asked, seq, self._now_ns(), flags, self._response_dir))
        self._add_frame(frame)
        if not seq & 511 or size > LARGE_FRAME:
            writer.wake(len(frame))

    def _place(self, correlation_id: int) -> int:
        """Index of the first waiting request with this correlation id; -1 if there is none."""
        return next((place for place, each in enumerate(self._pending) if each[0] == correlation_id), -1)

    def _cut(self, frame: bytes, size: int, header: int, flags: int) -> tuple[bytes, int]:
        if size > self._keep:
            frame = frame[: max(self._keep, header)]
        return frame, flags | _CUT if len(frame) < size else flags

    def _row(self, frame: bytes, way: int, flags: int, nulls: int, correlation_id: int = 0, cause: int = 0) -> None:
        """Append a row for bytes that are not a complete request or response. The length shows whether it is cut."""
        writer = self._writer
        seq = writer.seq
        writer.seq = seq + 1
        row = _pack_plain(seq, self._now_ns(), self._context, 0, correlation_id)
        self._add_row(_pack_other(row, cause, flags, way, nulls))
        self._add_frame(frame)
        if not seq & 511:
            writer.wake()

    # --- rare cases

    def _short_request(self, frame: bytes, cause: int) -> None:
        """A request with header version 0 and nothing after it, or bytes that are not a request."""
        if len(frame) == 12:
            kind, correlation_id = _KIND.unpack_from(frame, 4)
            writer = self._writer
            row = _pack_plain(writer.seq, self._now_ns(), self._context, kind, correlation_id)
            writer.seq += 1
            key = kind >> 16
            self._pending.append((correlation_id, row, key if key in _SPECIAL_RESPONSES else 0))
            self._add_row(_pack_other(row, cause, 0, self._request_dir, 0))
            self._add_frame(frame)
        elif self._guard.may_be_token(-1, -1):
            self._pending.append((None, b"", _RAW))
            self._token(len(frame), self._request_dir)
        else:
            self._row(frame, self._request_dir, 0, NO_API | NO_CORRELATION)

    def _token(self, size: int, way: int) -> None:
        """A SASL token: only its length is kept."""
        self._row(_INT32.pack(size - 4), way, _RAW_TOKEN | (_CUT if size > 4 else 0), NO_API | NO_CORRELATION)

    def _bad_length(self, rest: bytes, is_request: bool) -> None:
        """An invalid length, or the received part of a frame after the connection was closed."""
        if self._guard.may_be_token(*_kind_of(rest)) if is_request else self._guard.is_on:
            rest = rest[:4]
        elif is_request and rest[4:6] in _SECRET_REQUESTS:
            rest = rest[:12]
        elif not is_request and any(each[2] in redaction.RESPONSES for each in self._pending):
            rest = rest[:8]
        rest = rest[: min(RECORDS_KEPT, max(self._keep, 12 if is_request else 8))]
        flags = _CUT if len(rest) >= 4 and _INT32.unpack_from(rest)[0] + 4 > len(rest) else 0
        self._row(rest, self._request_dir if is_request else self._response_dir, flags, NO_API | NO_CORRELATION)

    def _other_client(self, header: bytes, length: int) -> None:
        self._client = header
        self._head = _heads(len(header))
        self._client_id = None if length < 0 else header[2:].decode("utf-8", "replace")
        self._context = self._new_context()

    def _new_context(self) -> int:
        facts = self._facts
        values = ContextValues(
            self.conn_id, facts.kind, facts.listener, facts.peer, facts.peer_id, facts.principal, self._client_id, self._sw
        )
        number = self._writer.new_context(values)
        if len(self._contexts) >= self._contexts_end:  # a client that keeps changing its client id
            used = {_CONTEXT(each[1], 16)[0] for each in self._pending if each[1]}
            self._writer.closed_contexts.extend(each for each in self._contexts if each not in used)
            self._contexts = sorted(used)
            self._contexts_end = max(_CONTEXTS, 2 * len(used))
        self._contexts.append(number)
        return number

    def _special_request(self, frame: bytes, key: int, version: int, length: int) -> tuple[bytes, int]:
        if key == ApiKey.PRODUCE:
            flags = _NO_RESPONSE if _acks(frame, version, length) == 0 else 0
            return (frame[:RECORDS_KEPT] if self._writer.cuts_records else frame), flags
        if key == ApiKey.SASL_HANDSHAKE and not self._facts.is_ours:
            self._guard.handshake()  # a token may arrive before the response
        if key in redaction.REQUESTS:
            masked = redaction.masked_request(frame, key, self._writer.public_configs)
            return masked, _MASKED if masked is not frame and masked != frame else 0
        if key == ApiKey.API_VERSIONS and version >= 3:
            self._sw = _software(frame, version)
            self._context = self._new_context()
        return frame, 0

    def _special_response(self, frame: bytes, key: int, asked: bytes) -> tuple[bytes, bytes, int]:
        """The bytes to keep, the row of the request with the version of the response, and flags."""
        if key == ApiKey.FETCH:
            return (frame[:RECORDS_KEPT] if self._writer.cuts_records else frame), asked, 0
        if key == ApiKey.API_VERSIONS:  # the response with this error has version 0
            if frame[8:10] == _UNSUPPORTED_VERSION:
                seq, now, context, kind, correlation_id = PLAIN_REQUEST.unpack(asked)
                asked = _pack_plain(seq, now, context, kind & 0xFFFF0000, correlation_id)
            return frame, asked, 0
        version = PLAIN_REQUEST.unpack(asked)[3] & 0xFFFF
        masked = redaction.masked_response(frame, key, version, self._writer.public_configs)
        return masked, asked, _MASKED if masked != frame else 0

    def _request_keep(self, head: bytes) -> int:
        return RECORDS_KEPT if self._writer.cuts_records and head[4:6] == b"\0\0" and not self._guard.is_on else _LARGEST

    def _response_keep(self, head: bytes) -> int:
        if not self._writer.cuts_records:
            return _LARGEST
        (correlation_id,) = _INT32.unpack_from(head, 4)
        place = self._place(correlation_id)
        return RECORDS_KEPT if place >= 0 and self._pending[place][2] == ApiKey.FETCH else _LARGEST


class _Splitter:
    """Splits one direction of a connection into frames. If a frame arrives in pieces, only the bytes that are kept are joined."""

    __slots__ = ("_bad", "_buffer", "_ended", "_keep_of", "_size", "_skip", "_take", "busy")

    def __init__(self, take: Any, bad: Any, keep_of: Any) -> None:
        self._take = take
        self._bad = bad
        self._keep_of = keep_of
        self._buffer = bytearray()
        self._size = 0
        self._skip = 0
        self._ended = False
        self.busy = False
        """Whether a frame is incomplete, or further data is not read."""

    def feed(self, data: bytes) -> None:
        """Process more bytes. After an invalid length nothing is read any more."""
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
            self._bad(data[pos:], self._take.__name__ == "_request")
        elif pos < size:
            self._buffer += data[pos:]
            self.busy = True
            self._shorten()

    def end(self) -> None:
        """Called when the connection is closed."""
        if self._buffer and not self._ended:
            self._bad(bytes(self._buffer), self._take.__name__ == "_request")
            self._buffer.clear()
        self._ended = True

    def _unfinished(self) -> bytes:
        """The bytes to process now, after which the buffer is empty; b"" if the first frame is still incomplete."""
        buffer = self._buffer
        if len(buffer) < 4 or 0 <= _INT32.unpack_from(buffer)[0] > len(buffer) - 4:
            self._shorten()
            return b""
        data = bytes(buffer)
        buffer.clear()
        self.busy = False
        return data

    def _shorten(self) -> None:
        """Skip the rest of a frame if enough bytes of it are there."""
        buffer = self._buffer
        if len(buffer) > RECORDS_KEPT:
            keep = self._keep_of(bytes(buffer[:16]))
            size = 4 + _INT32.unpack_from(buffer)[0]
            if len(buffer) > keep and size > len(buffer):
                self._size = size
                self._skip = size - len(buffer)
                del buffer[keep:]

    def _finish(self) -> None:
        frame = bytes(self._buffer)
        self._buffer.clear()
        self.busy = False
        self._take(frame, self._size)


def _kind_of(rest: bytes) -> tuple[int, int]:
    """API key and version of the beginning of a request; -1 for what has not come."""
    return (-1, -1) if len(rest) < 8 else (_INT16.unpack_from(rest, 4)[0], _INT16.unpack_from(rest, 6)[0])


def _acks(frame: bytes, version: int, length: int) -> int | None:
    """`acks` of a Produce request; None if the bytes end before it, or behind many tagged fields, which take time to skip."""
    pos = _SHORTEST_REQUEST + max(length, 0)
    try:
        if version >= 9:
            if read_uvarint(frame, pos)[0] > FEW_TAGS:
                return None
            size, pos = read_uvarint(frame, skip_tags(frame, pos))
            pos += max(size - 1, 0)
        elif version >= 3:
            pos += 2 + max(_INT16.unpack_from(frame, pos)[0], 0)
        return int(_INT16.unpack_from(frame, pos)[0])
    except (error, IndexError, RemoteProtocolError):
        return None


def _software(frame: bytes, version: int) -> str | None:
    """Name and version of the client in an ApiVersions request; None if it has none, or is so large that it takes time to decode."""
    if len(frame) > LARGE_FRAME:
        return None
    try:
        _, start = messages.decode_request_header(frame[4:], FEW_TAGS)
        if start < 0:
            return None
        request, _ = messages.decode("ApiVersionsRequest", version, frame, start + 4)
    except (RemoteProtocolError, LocalProtocolError):
        return None
    return f"{request.client_software_name}/{request.client_software_version}"
