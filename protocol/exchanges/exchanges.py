"""The requests and responses of one connection: the bytes of both directions become frames, responses find their requests, secrets are
masked (`protocol/security/redaction.py`). What a sink gets may be kept and shown.

    exchanges = Exchanges(sink, public=names)
    exchanges.received(data); exchanges.sent(data)       # on a connection that we opened `is_ours`, and requests are sent

Responses of a connection are in the order of their requests, so the request of a response is the first one that waits. If the correlation
ids differ, it is searched for; of two requests with one id the first response belongs to the older.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from struct import Struct, error
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.splitter import Splitter, keep_everything
from klamm.protocol.primitives import FEW_TAGS, read_uvarint, skip_tags
from klamm.protocol.security import redaction

SPECIAL_RESPONSES = frozenset({int(ApiKey.FETCH), int(ApiKey.API_VERSIONS), *map(int, redaction.RESPONSES)})
"""API keys of responses that have secrets, are cut, or are written in another version than their requests."""
UNSUPPORTED_VERSION = b"\0\x23"
"""What an ApiVersions response of version 0 with this error begins with."""
TOKEN = -1
"""Stands for the API of a SASL token, which is not a request, in the list of waiting requests."""
DOUBTFUL = -2
"""Stands for Produce there if nobody has looked for `acks`: the response may be that of a later request with the same correlation id, of
another API, so only its head is kept.
"""

_REQUEST = Struct(">hhih").unpack_from
_SHORT_REQUEST = Struct(">Ii").unpack_from
_INT32 = Struct(">i").unpack_from
_INT16 = Struct(">h").unpack_from
_SECRET_REQUESTS = frozenset(key.to_bytes(2, "big") for key in redaction.REQUESTS)
_SHORTEST_REQUEST = 14
_FETCH, _API_VERSIONS, _PRODUCE, _HANDSHAKE = (
    int(ApiKey.FETCH), int(ApiKey.API_VERSIONS), int(ApiKey.PRODUCE), int(ApiKey.SASL_HANDSHAKE)
)

Waiting = tuple[int | None, Any, int]
"""A request that waits for its response: correlation id, what the sink returned for it, and API key and version as one number if the
response is one of `SPECIAL_RESPONSES`, otherwise 0 or `DOUBTFUL`. A SASL token has no correlation id, and `TOKEN`.
"""


class ExchangeSink:
    """Gets what the two ends of a connection said. A frame has its length in front; of one that came in pieces the end may be missing, so
    its whole `size` is given too. A sink ignores what it has no method for.
    """

    __slots__ = ()

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: Any
    ) -> Any:
        """A request. `kind` is API key and version as one number, `cause` what the caller of `Exchanges.request` gave. Returns what
        `response` gets, if it `has_response`.
        """

    def response(self, state: Any, frame: bytes, size: int, special: int) -> None:
        """The response to the request for which `request` returned `state`. `special` is API key and version of the response, as one
        number, if it is one of `SPECIAL_RESPONSES`.
        """

    def token(self, size: int, is_request: bool) -> None:
        """A SASL token, or something that may be one, of this size with its length."""

    def unmatched(self, frame: bytes, correlation_id: int | None) -> None:
        """A response that belongs to no request; None: it is too short to have a correlation id."""

    def stray(self, data: bytes, is_request: bool) -> None:
        """Bytes that are not a request, or the beginning of a frame whose rest will not come."""


class Exchanges:
    """What was said on one connection, for one sink."""

    __slots__ = ("_is_ours", "_public", "_sink", "guard", "received", "requests", "responses", "sent", "waiting")

    def __init__(
        self, sink: ExchangeSink, *, is_ours: bool = False, has_sasl: bool = False, public: Set[str] | None = frozenset(),
        request_keep: Callable[[bytes], int] = keep_everything, response_keep: Callable[[bytes], int] = keep_everything,
    ) -> None:
        """`public` are the names of configs whose values are kept; None: the sink keeps no requests and responses, or masks them itself.
        `request_keep` and `response_keep` say how much of a frame that comes in pieces is kept (`Splitter`).
        """
        self._sink = sink
        self._is_ours = is_ours
        self._public = public
        self.guard = redaction.SaslGuard(has_sasl)
        self.waiting: deque[Waiting] = deque()
        """Requests that wait for their response."""
        self.requests = Splitter(self.request, self._bad_request, request_keep)
        self.responses = Splitter(self.response, self._bad_response, response_keep)
        self.received: Callable[[bytes], None] = self.responses.feed if is_ours else self.requests.feed
        self.sent: Callable[[bytes], None] = self.requests.feed if is_ours else self.responses.feed

    def closed(self) -> None:
        """The connection is closed. The sink gets the incomplete frames."""
        self.requests.end()
        self.responses.end()

    def request(self, frame: bytes, size: int, cause: Any = None) -> None:
        """One request of `size` bytes. `frame` has all or the first bytes."""
        try:
            key, version, correlation_id, length = _REQUEST(frame, 4)
        except error:
            self._short_request(frame, cause)
            return
        is_masked = False
        if self.guard.may_be_token(key, version):
            kept = self.guard.kept(frame) if len(frame) == size else None
            if kept is None:
                self.waiting.append((None, None, TOKEN))
                self._sink.token(size, True)
                return
            is_masked = kept != frame
            frame = kept
        if key == _HANDSHAKE and not self._is_ours:
            self.guard.handshake()  # a token may arrive before the response
        if key in redaction.REQUESTS and self._public is not None:
            masked = redaction.masked_request(frame, key, self._public)
            is_masked = is_masked or masked != frame
            frame = masked
        kind = key << 16 & 0xFFFFFFFF | version & 0xFFFF
        asked_acks = acks(frame, version, length) if key == _PRODUCE else 1
        has_response = asked_acks != 0
        state = self._sink.request(frame, size, kind, correlation_id, has_response, is_masked, cause)
        if has_response:
            special = kind if key in SPECIAL_RESPONSES else DOUBTFUL if asked_acks is None else 0
            self.waiting.append((correlation_id, state, special))

    def response(self, frame: bytes, size: int) -> None:
        """One response of `size` bytes. `frame` has all or the first bytes."""
        correlation_id = _INT32(frame, 4)[0] if len(frame) >= 8 else None
        found = self.take(correlation_id)
        if found is None:
            frame = self._without_secrets(frame)
            self._sink.unmatched(frame, correlation_id if len(frame) >= 8 else None)
            return
        _, state, special = found
        if special == TOKEN:
            self._sink.token(size, False)
            return
        if special == DOUBTFUL:
            frame, special = frame[:8], 0
        if special:
            key = special >> 16
            if key == _API_VERSIONS:
                if frame[8:10] == UNSUPPORTED_VERSION:
                    special = key << 16
            elif key != _FETCH and self._public is not None:
                frame = redaction.masked_response(frame, key, special & 0xFFFF, self._public)
        self._sink.response(state, frame, size, special)

    def take(self, correlation_id: int | None) -> Waiting | None:
        """The request of a response with this correlation id, or the SASL token before it; it waits no more. None without one."""
        waiting = self.waiting
        place = 0 if waiting and waiting[0][0] == correlation_id is not None else self.place(correlation_id)
        if place < 0 and waiting and waiting[0][2] == TOKEN:
            place = 0
        if place < 0:
            return None
        found = waiting[place]
        del waiting[place]
        return found

    def place(self, correlation_id: int | None) -> int:
        """Index of the first waiting request with this correlation id; -1 if there is none."""
        return -1 if correlation_id is None else next((place for place, each in enumerate(self.waiting) if each[0] == correlation_id), -1)

    def _short_request(self, frame: bytes, cause: Any) -> None:
        """A request with header version 0 and nothing after it, or bytes that are not a request."""
        if len(frame) == 12:
            kind, correlation_id = _SHORT_REQUEST(frame, 4)
            state = self._sink.request(frame, 12, kind, correlation_id, True, False, cause)
            self.waiting.append((correlation_id, state, kind if kind >> 16 in SPECIAL_RESPONSES else 0))
        elif self.guard.may_be_token(-1, -1):
            self.waiting.append((None, None, TOKEN))
            self._sink.token(len(frame), True)
        else:
            self._sink.stray(frame, True)

    def _bad_request(self, rest: bytes) -> None:
        key, version = (-1, -1) if len(rest) < 8 else (_INT16(rest, 4)[0], _INT16(rest, 6)[0])
        if self.guard.may_be_token(key, version):
            rest = rest[:4]
        elif rest[4:6] in _SECRET_REQUESTS:
            rest = rest[:12]
        self._sink.stray(rest, True)

    def _bad_response(self, rest: bytes) -> None:
        self._sink.stray(self._without_secrets(rest), False)

    def _without_secrets(self, rest: bytes) -> bytes:
        """What may be kept of bytes that are the response to none of the requests that wait, or only its beginning."""
        if self.guard.is_on or any(each[2] == TOKEN for each in self.waiting):
            return rest[:4]
        return rest[:8] if any(each[2] >> 16 in redaction.RESPONSES for each in self.waiting) else rest


def decode_request(payload: bytes) -> Any:
    """The message in the payload of a request. Raises RemoteProtocolError, or LocalProtocolError for a version that does not exist."""
    header, offset = messages.decode_request_header(payload)
    return messages.decode(f"{APIS[header.api_key].name}Request", header.api_version, payload, offset)[0]


def decode_response(key: int, version: int, payload: bytes) -> tuple[Any, int]:
    """The message in the payload of a response, and its version: 0 if the server lacks the version of an ApiVersions request. Raises
    RemoteProtocolError, or LocalProtocolError for a version that does not exist.
    """
    if key == _API_VERSIONS and payload[4:6] == UNSUPPORTED_VERSION:
        version = 0
    _, offset = messages.decode_response_header(key, version, payload)
    return messages.decode(f"{APIS[key].name}Response", version, payload, offset)[0], version


def acks(frame: bytes, version: int, length: int) -> int | None:
    """`acks` of a Produce request whose client id has `length` bytes; None if the bytes end before it, or behind many tagged fields, which
    take time to skip.
    """
    pos = _SHORTEST_REQUEST + max(length, 0)
    try:
        if version >= 9:
            if read_uvarint(frame, pos)[0] > FEW_TAGS:
                return None
            size, pos = read_uvarint(frame, skip_tags(frame, pos))
            pos += max(size - 1, 0)
        elif version >= 3:
            pos += 2 + max(_INT16(frame, pos)[0], 0)
        return int(_INT16(frame, pos)[0])
    except (error, IndexError, RemoteProtocolError):
        return None
