"""Counts requests and connections by the frames that a tap sees (`server/net/tap.py`): those from the response cache too.

A request counts when its response is written, as in Kafka. Responses leave in the order of their requests, so a request whose response
is passed over gets none (Produce with acks=0). The response to a Fetch request of some thousand partitions is decoded once more for its
error codes: that is the price of an endpoint, which a broker without one does not pay.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.framing import ANY_LENGTH, BadLength, FrameReader
from klamm.server.metrics.distribution import SIZES, Distribution
from klamm.server.metrics.error_codes import ErrorCodes
from klamm.server.net.tap import Cause, ConnectionInfo, ConnectionKind, ConnectionSink, NoSink

log = logging.getLogger(__name__)

REPLICA_STATE_SINCE = 15
"""Version of Fetch since which the replica id is a tagged field."""
LARGE_BYTES = 64 << 10
_REPLICA_STATE = b"\1\1\x0d"
"""One tagged field, number 1, with 13 bytes: replica id, broker epoch, and that no fields follow."""


class OpenRequest(NamedTuple):
    """A request that came and has no response yet."""

    correlation_id: int
    api: str
    version: int
    size: int
    since_s: float
    names: tuple[str, ...]
    """Names under which it counts: Fetch is also FetchConsumer or FetchFollower."""


class RequestCounts:
    """Requests, errors and connections of one broker: a `ByteTap`."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """(request, version) → how many got their response, or need none."""
        self.errors: Counter[tuple[str, str]] = Counter()
        """(request, error) → how often it is in responses."""
        self.total_time: defaultdict[str, Distribution] = defaultdict(Distribution)
        """By request, from its last byte to its response, in ms."""
        self.request_size: defaultdict[str, Distribution] = defaultdict(_sizes)
        """By request, in bytes, without the length of the frame."""
        self.open: Counter[str] = Counter()
        """By API: requests without a response until now."""
        self.fetches: Counter[tuple[str, str, int]] = Counter()
        """(client id, host, port) → responses to fetches of this broker, by leader."""
        self.sockets: defaultdict[str, SocketCounts] = defaultdict(SocketCounts)
        """By listener."""
        self.time_s = time_s
        self.error_codes = ErrorCodes()

    def connection(self, info: ConnectionInfo) -> ConnectionSink:
        if info.kind is ConnectionKind.ACCEPTED:
            return AcceptedSink(self, self.sockets[info.listener or ""])
        if info.kind is ConnectionKind.TO_LEADER:
            return LeaderSink(self, info.peer, info.peer_id)
        return NoSink()

    def responded(self, request: OpenRequest, payload: bytes | None) -> None:
        """A response was written; None: the request needs none."""
        self.requests[request.api, request.version] += 1
        elapsed_ms = (self.time_s() - request.since_s) * 1000
        for name in request.names:
            self.total_time[name].add(elapsed_ms)
            self.request_size[name].add(request.size)
        if payload is None:
            return
        try:
            _, offset = messages.decode_response_header(ApiKey(_KEYS[request.api]), request.version, payload)
            codes = self.error_codes.count(request.api, request.version, payload, offset)
        except (RemoteProtocolError, KeyError, ValueError):  # ApiVersions in a version that we do not have
            codes = {int(ErrorCode.UNSUPPORTED_VERSION): 1}
        for code, count in codes.items():
            for name in request.names:
                self.errors[name, ErrorCode(code).name] += count


_KEYS = {api.name: api.key for api in messages.APIS.values()}


def _sizes() -> Distribution:
    return Distribution(SIZES)


class SocketCounts:
    """What goes through the connections of one listener."""

    def __init__(self) -> None:
        self.open = self.created = self.closed = self.bytes_in = self.bytes_out = self.requests = self.responses = 0


class AcceptedSink:
    """One connection of a client, another broker or a controller."""

    __slots__ = ("_counts", "_open", "_reader", "_sent", "_socket")

    def __init__(self, counts: RequestCounts, socket: SocketCounts) -> None:
        self._counts = counts
        self._socket = socket
        self._open: deque[OpenRequest] = deque()
        self._reader: FrameReader | None = FrameReader(ANY_LENGTH)
        self._sent = FrameReader(ANY_LENGTH)
        socket.open += 1
        socket.created += 1

    def received(self, data: bytes) -> None:
        self._socket.bytes_in += len(data)
        if self._reader is None:
            return
        try:
            payloads = self._reader.feed(data)
        except BadLength as error:
            payloads = error.payloads
            self._reader = None
        for payload in payloads:
            request = _request(payload, self._counts.time_s())
            if request is not None:
                self._open.append(request)
                self._counts.open[request.api] += 1
                self._socket.requests += 1

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        self._socket.bytes_out += len(data)
        try:
            for payload in self._sent.feed(data):
                self._socket.responses += 1
                self._responded(payload)
        except Exception:  # what cannot be counted goes its way all the same
            log.exception("a response could not be counted")

    def _responded(self, payload: bytes) -> None:
        correlation_id = int.from_bytes(payload[:4], "big", signed=True)
        while self._open:
            request = self._open.popleft()
            self._counts.open[request.api] -= 1
            if request.correlation_id == correlation_id:
                self._counts.responded(request, payload)
                return
            self._counts.responded(request, None)

    def authenticated(self, principal: str, mechanism: str) -> None:
        """Does nothing: authentications are not counted."""

    def closed(self, by: str, reason: str | None = None) -> None:
        self._socket.open -= 1
        self._socket.closed += 1
        for request in self._open:
            self._counts.open[request.api] -= 1
        self._open.clear()


class LeaderSink:
    """The connection to a leader: counts the responses to fetches."""

    __slots__ = ("_client_id", "_counts", "_leader", "_peer", "_reader", "_waiting")

    def __init__(self, counts: RequestCounts, peer: str, leader: int | None) -> None:
        host, _, port = peer.rpartition(":")
        self._peer = host, int(port)
        self._leader = leader
        self._counts = counts
        self._reader = FrameReader(ANY_LENGTH)
        self._waiting: deque[bool] = deque()
        """Of each request without a response: whether it is a fetch."""
        self._client_id = ""

    def received(self, data: bytes) -> None:
        try:
            for _ in self._reader.feed(data):
                if self._waiting and self._waiting.popleft():
                    self._counts.fetches[(self._client_id, *self._peer)] += 1
        except BadLength:
            self._waiting.clear()

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        is_fetch = int.from_bytes(data[4:6], "big") == ApiKey.FETCH
        if is_fetch and not self._client_id:
            number = (messages.decode_request_header(data[4:], messages.FEW_TAGS)[0].client_id or "").rpartition("-")[2]
            self._client_id = f"ReplicaFetcherThread-{number}-{self._leader}"
        self._waiting.append(is_fetch)

    def authenticated(self, principal: str, mechanism: str) -> None:
        """Does nothing: authentications are not counted."""

    def closed(self, by: str, reason: str | None = None) -> None:
        self._waiting.clear()


def _request(payload: bytes, now_s: float) -> OpenRequest | None:
    """What came, None for what is no request."""
    if len(payload) < 8:
        return None
    key, version = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
    api = messages.APIS.get(key)
    if api is None:
        return None
    names: tuple[str, ...] = (api.name,)
    if key == ApiKey.FETCH:
        names = (api.name, "FetchFollower" if _is_follower(payload, version) else "FetchConsumer")
    return OpenRequest(int.from_bytes(payload[4:8], "big", signed=True), api.name, version, len(payload), now_s, names)


def _is_follower(payload: bytes, version: int) -> bool:
    """Whether a Fetch request is that of a follower. A large one is not decoded here, on the event loop: only its last bytes are
    looked at, which have the replica id if it was encoded as Kafka does it.
    """
    if version >= REPLICA_STATE_SINCE and len(payload) > LARGE_BYTES:
        return payload[-16:-13] == _REPLICA_STATE and payload[-13] < 0x80
    try:
        _, offset = messages.decode_request_header(payload, messages.FEW_TAGS)
        if offset < 0:
            return False
        if version < REPLICA_STATE_SINCE:
            return int.from_bytes(payload[offset : offset + 4], "big", signed=True) >= 0
        replica_id: int = messages.decode("FetchRequest", version, payload, offset)[0].replica_state.replica_id
    except RemoteProtocolError:
        return False
    return replica_id >= 0
