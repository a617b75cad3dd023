"""The journal of one connection: appends a packed row for each frame. `Exchanges` splits the bytes, and finds the request of a response.

Data that is exactly one frame, of an API without anything to mask or remember, takes a short path (`_request_in`, `_response_out`), which
does little more than append the row. The long path makes the same row. A request that waits for its response is kept as its packed row,
because the row of the response begins with it. Frames with secrets are masked by the thread that writes them (`unmasked_frame.py`).

By default only `RECORDS_KEPT` bytes of Produce requests and Fetch responses are kept: everything before the first records, and some of
these.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import cache
from struct import Struct, error
from typing import Protocol

from klamm.journal.batches import NO_API, NO_CORRELATION, OTHER, PLAIN_REQUEST, RESPONSE, ContextValues
from klamm.journal.columns import Direction, Flag
from klamm.journal.unmasked_frame import UnmaskedFrame
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.exchanges.connections import ConnectionInfo
from klamm.protocol.exchanges.exchanges import DOUBTFUL, SPECIAL_RESPONSES, UNSUPPORTED_VERSION, Exchanges, ExchangeSink, acks
from klamm.protocol.primitives import FEW_TAGS
from klamm.protocol.security import redaction

RECORDS_KEPT = 1024
"""Bytes that are kept of a Produce request or Fetch response, including its length."""

LARGE_FRAME = 1 << 16
"""A frame of this size wakes the writing thread."""

_LARGEST = 1 << 30
_LARGEST_HELD = 256 << 20
"""Of a frame that comes in pieces, no more is held in memory: behind a proxy, a length may be anything."""
_RESPONSE = Struct(">ii").unpack_from
"""Reads length and correlation id of a response."""
_SEQ = Struct("=q").unpack_from
_CONTEXT = _SEQ
_INT32 = Struct(">i")
_INT16 = Struct(">h").unpack_from

_SPECIAL_REQUESTS = frozenset({int(ApiKey.PRODUCE), int(ApiKey.API_VERSIONS), *map(int, redaction.REQUESTS)})
_PLAIN_REQUESTS = {
    key << 16 | version: key << 16 | version if key in SPECIAL_RESPONSES else 0
    for key, api in APIS.items()
    for version in range(api.min_version, api.last_version + 1)
    if key not in _SPECIAL_REQUESTS or (key == ApiKey.API_VERSIONS and version < 3)
}
"""API key and version as one number, for requests that are written unchanged → this number if the response is special, otherwise 0."""
_PRODUCE_REQUESTS = range(APIS[ApiKey.PRODUCE].last_version + 1)
"""The same numbers for Produce requests, because the key of Produce is 0."""
_pack_plain = PLAIN_REQUEST.pack
_pack_response = RESPONSE.pack
_pack_other = OTHER.pack
_NO_RESPONSE, _CUT, _MASKED = int(Flag.NO_RESPONSE), int(Flag.CUT), int(Flag.MASKED)
_RAW_TOKEN, _UNMATCHED = int(Flag.RAW_TOKEN), int(Flag.UNMATCHED)
_CONTEXTS = 64
"""Sweep unused contexts once a connection has this many."""

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that does not authenticate."""
_FETCH, _API_VERSIONS = int(ApiKey.FETCH), int(ApiKey.API_VERSIONS)
_NO_HEAD = -5, 0, 0, b""
"""The result for data that is too short. No frame has this length."""


@cache
def _heads(client: int) -> Callable[[bytes], tuple[int, int, int, bytes]]:
    """A function that reads the beginning of a request whose client id has `client` bytes, including its length. Returns the length of the
    frame, API key and version as one number, correlation id, client id. Raises struct.error if there are not enough bytes.
    """
    return Struct(f">iIi{client}s").unpack_from


class Owner(Protocol):
    """The interface of a connection to its `JournalWriter`."""

    seq: int
    """The number of the next row."""
    rows: list[bytes]
    frames: list[bytes | UnmaskedFrame]
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


class ConnectionJournal(ExchangeSink):
    """The journal of one connection. All methods are called in the thread of the event loop. None raises because of data of the peer."""

    __slots__ = (
        "_add_frame", "_add_row", "_client", "_client_id", "_context", "_contexts", "_contexts_end", "_exchanges", "_head", "_info",
        "_keep", "_longest", "_longest_request", "_now_ns", "_pending", "_principal", "_records_end", "_request_dir", "_response_dir",
        "_sw", "_writer", "conn_id", "last_response_seq", "passed", "received", "request_frame", "response_frame", "sent",
    )

    def __init__(self, writer: Owner, conn_id: int, info: ConnectionInfo) -> None:
        self.conn_id = conn_id
        self.last_response_seq: int | None = None
        """The row of the last response on this connection."""
        self._writer = writer
        self._info = info
        self._principal = None if info.kind.is_ours else ANONYMOUS
        self._request_dir = int(Direction.REQUEST_OUT if info.kind.is_ours else Direction.REQUEST_IN)
        self._response_dir = int(Direction.RESPONSE_IN if info.kind.is_ours else Direction.RESPONSE_OUT)
        self._now_ns = writer.now_ns
        self._add_row = writer.rows.append
        self._add_frame = writer.frames.append
        self._client: bytes | None = None
        self._head = _heads(0)
        self._client_id: str | None = None
        self._sw: str | None = None
        self._contexts: list[int] = []
        self._contexts_end = _CONTEXTS
        self._keep = 0 if writer.keeps == "headers" else writer.keeps if isinstance(writer.keeps, int) else _LARGEST
        self._exchanges = Exchanges(
            self, is_ours=info.kind.is_ours, has_sasl=info.has_sasl, public=None,
            request_keep=self._request_keep, response_keep=self._response_keep,
        )
        self._pending = self._exchanges.waiting
        self._context = self._new_context()
        self._longest = LARGE_FRAME if self._keep == _LARGEST else -1
        """Maximum length of frames that can take the short path."""
        self._records_end = RECORDS_KEPT if writer.cuts_records else _LARGEST
        self._longest_request = -1 if info.has_sasl else self._longest
        """Like `_longest`, for requests; -1 if no request can take it, in the middle of a frame or if SASL tokens are possible."""
        self.received: Callable[[bytes], None] = self._exchanges.received if info.kind.is_ours else self._request_in
        """Received bytes, split anywhere."""
        self.passed = self._exchanges.sent
        """Bytes of responses, split anywhere, for a proxy."""
        self.request_frame = self._exchanges.request
        """`request_frame(frame, size)`: a frame of which only the first bytes may be there, for a capture."""
        self.response_frame = self._exchanges.response
        """The same for a response."""
        self.sent: Callable[..., None] = self._request_out if info.kind.is_ours else self._response_out
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
                self._exchanges.request(data, len(data))
                self._allow_short_way()
            return
        self._exchanges.received(data)
        self._allow_short_way()

    def _produce_in(self, data: bytes, version: int, correlation_id: int, client_id: int) -> None:
        asked_acks = acks(data, version, client_id)
        flags = _NO_RESPONSE if asked_acks == 0 else 0
        if len(data) > self._records_end:
            data = data[:RECORDS_KEPT]
            flags |= _CUT
        writer = self._writer
        seq = writer.seq
        writer.seq = seq + 1
        row = _pack_plain(seq, self._now_ns(), self._context, version, correlation_id)
        if not flags & _NO_RESPONSE:
            self._pending.append((correlation_id, row, DOUBTFUL if asked_acks is None else 0))
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
                    if special >> 16 == _FETCH:
                        if len(data) > self._records_end:
                            data = data[:RECORDS_KEPT]
                            flags = _CUT
                    elif special >> 16 != _API_VERSIONS or data[8:10] == UNSUPPORTED_VERSION:
                        self._exchanges.response(data, len(data))
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
        self._exchanges.sent(data)

    def _request_out(self, data: bytes, cause: object = None) -> None:
        batch = getattr(cause, "batch", None)
        self._exchanges.request(data, len(data), 0 if batch is None else batch)

    def authenticated(self, principal: str, mechanism: str) -> None:
        """The peer has authenticated as this principal, by a mechanism of SASL or by `TLS`."""
        self.logged_in()
        self._principal = principal
        self._context = self._new_context()
        self._writer.connection_authenticated(self.conn_id, principal, mechanism)

    def logged_in(self) -> None:
        """The peer has authenticated; a proxy does not know as whom."""
        self._exchanges.guard.authenticated()
        self._allow_short_way()

    def closed(self, by: str, reason: str | None = None) -> None:
        """The connection is closed. An incomplete frame becomes a row."""
        self._exchanges.closed()
        self._writer.connection_closed(self.conn_id, by, reason)
        self._writer.closed_contexts.extend(self._contexts)
        self._contexts = []

    def request_seq(self, correlation_id: int) -> int | None:
        """The row of the latest request with this correlation id and without a response."""
        return next((_SEQ(each[1])[0] for each in reversed(self._pending) if each[0] == correlation_id), None)

    def _allow_short_way(self) -> None:
        self._longest_request = -1 if self._exchanges.guard.is_on or self._exchanges.requests.busy else self._longest

    # --- what was said (`ExchangeSink`)

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: int | None
    ) -> bytes:
        """Journal one request of `size` bytes. `frame` has all or the first bytes. Returns its row."""
        key, head = kind >> 16, 12
        flags = (0 if has_response else _NO_RESPONSE) | (_MASKED if is_masked else 0)
        if size > head:
            length = _INT16(frame, head)[0]
            client = frame[12 : 14 + length]
            if client != self._client:
                self._other_client(client, length)
            head = 14 + max(length, 0)
        kept: bytes | UnmaskedFrame = frame
        if key in _SPECIAL_REQUESTS:
            if key == ApiKey.PRODUCE:
                kept = frame[: self._records_end]
            elif key in redaction.REQUESTS and not is_masked:
                kept = UnmaskedFrame(frame, key, None, self._writer.public_configs)
                flags |= _MASKED
            elif key == ApiKey.API_VERSIONS and 3 <= kind & 0xFFFF < 0x8000:
                self._sw = _software(frame, kind & 0xFFFF)
                self._context = self._new_context()
        if size > self._keep or len(kept) < size:
            kept, flags = self._cut(kept, size, head, flags)
        writer = self._writer
        seq = writer.seq
        writer.seq = seq + 1
        row = _pack_plain(seq, self._now_ns(), self._context, kind, correlation_id)
        made = _pack_other(row, cause or 0, flags, self._request_dir, 0) if flags or cause or self._request_dir else row
        self._append(seq, made, kept, size)
        return row

    def response(self, state: bytes, frame: bytes, size: int, special: int) -> None:
        """Journal one response of `size` bytes. `frame` has all or the first bytes."""
        flags = 0
        kept: bytes | UnmaskedFrame = frame
        if special:
            key = special >> 16
            if key == _FETCH:
                kept = frame[: self._records_end]
            elif key == _API_VERSIONS:
                seq, now, context, _, correlation_id = PLAIN_REQUEST.unpack(state)
                state = _pack_plain(seq, now, context, special, correlation_id)
            else:
                kept = UnmaskedFrame(frame, key, special & 0xFFFF, self._writer.public_configs)
                flags = _MASKED
        if size > self._keep or len(kept) < size:
            kept, flags = self._cut(kept, size, 8, flags)
        seq = self._writer.seq
        self._writer.seq = seq + 1
        self.last_response_seq = seq
        self._append(seq, _pack_response(state, seq, self._now_ns(), flags, self._response_dir), kept, size)

    def token(self, size: int, is_request: bool) -> None:
        """A SASL token: only its length is kept."""
        flags = _RAW_TOKEN | (_CUT if size > 4 else 0)
        self._row(_INT32.pack(size - 4), self._request_dir if is_request else self._response_dir, flags, NO_API | NO_CORRELATION)

    def unmatched(self, frame: bytes, correlation_id: int | None) -> None:
        """A response to no known request. The length shows whether it is cut."""
        nulls = NO_API if correlation_id is not None else NO_API | NO_CORRELATION
        self._row(frame[: self._keep or 8], self._response_dir, _UNMATCHED, nulls, correlation_id or 0)

    def stray(self, data: bytes, is_request: bool) -> None:
        """An invalid length, bytes that are not a request, or the received part of a frame after the connection was closed."""
        data = data[: min(RECORDS_KEPT, max(self._keep, 12 if is_request else 8))]
        flags = _CUT if len(data) >= 4 and _INT32.unpack_from(data)[0] + 4 > len(data) else 0
        self._row(data, self._request_dir if is_request else self._response_dir, flags, NO_API | NO_CORRELATION)

    def _append(self, seq: int, row: bytes, frame: bytes | UnmaskedFrame, size: int) -> None:
        self._add_row(row)
        self._add_frame(frame)
        if not seq & 511 or size > LARGE_FRAME:
            self._writer.wake(len(frame))

    def _cut(self, frame: bytes | UnmaskedFrame, size: int, header: int, flags: int) -> tuple[bytes | UnmaskedFrame, int]:
        end = len(frame)
        if size > self._keep:
            end = min(end, max(self._keep, header))
            frame = frame[:end]
        return frame, flags | _CUT if end < size else flags

    def _row(self, frame: bytes, way: int, flags: int, nulls: int, correlation_id: int = 0) -> None:
        """Append a row for bytes that are not a complete request or response."""
        writer = self._writer
        seq = writer.seq
        writer.seq = seq + 1
        row = _pack_plain(seq, self._now_ns(), self._context, 0, correlation_id)
        self._append(seq, _pack_other(row, 0, flags, way, nulls), frame, 0)

    # --- rare cases

    def _other_client(self, header: bytes, length: int) -> None:
        self._client = header
        self._head = _heads(len(header))
        self._client_id = None if length < 0 else header[2:].decode("utf-8", "replace")
        self._context = self._new_context()

    def _new_context(self) -> int:
        info = self._info
        values = ContextValues(
            self.conn_id, info.kind.value, info.listener, info.peer, info.peer_id, self._principal, self._client_id, self._sw
        )
        number = self._writer.new_context(values)
        if len(self._contexts) >= self._contexts_end:  # a client that keeps changing its client id
            used = {_CONTEXT(each[1], 16)[0] for each in self._pending if each[1]}
            self._writer.closed_contexts.extend(each for each in self._contexts if each not in used)
            self._contexts = sorted(used)
            self._contexts_end = max(_CONTEXTS, 2 * len(used))
        self._contexts.append(number)
        return number

    def _request_keep(self, head: bytes) -> int:
        return RECORDS_KEPT if self._writer.cuts_records and head[4:6] == b"\0\0" and not self._exchanges.guard.is_on else _LARGEST_HELD

    def _response_keep(self, head: bytes) -> int:
        if not self._writer.cuts_records:
            return _LARGEST_HELD
        (correlation_id,) = _INT32.unpack_from(head, 4)
        place = self._exchanges.place(correlation_id)
        return RECORDS_KEPT if place >= 0 and self._pending[place][2] >> 16 == _FETCH else _LARGEST_HELD


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
