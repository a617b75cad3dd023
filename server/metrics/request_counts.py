"""Counts requests and connections by the frames that a tap sees (`server/net/tap.py`): those from the response cache too.

A request counts when its response is written, as in Kafka, and at once if it has none (Produce with acks=0). The response to a Fetch
request of some thousand partitions is decoded once more for its error codes: that is the price of an endpoint, which a broker without one
does not pay.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.connections import Cause, ConnectionInfo, ConnectionKind, ConnectionSink, NoSink
from klamm.protocol.exchanges.error_codes import error_counts, error_name
from klamm.protocol.exchanges.exchanges import Exchanges, ExchangeSink, decode_response
from klamm.protocol.exchanges.peers import is_follower
from klamm.server.metrics.distribution import SIZES, Distribution

log = logging.getLogger(__name__)


class OpenRequest(NamedTuple):
    """A request that came and has no response yet."""

    key: int
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
            codes = error_counts(*decode_response(request.key, request.version, payload))
        except RemoteProtocolError:  # a fault changed its bytes
            return
        for code, count in codes.items():
            for name in request.names:
                self.errors[name, error_name(code)] += count


def _sizes() -> Distribution:
    return Distribution(SIZES)


class SocketCounts:
    """What goes through the connections of one listener."""

    def __init__(self) -> None:
        self.open = self.created = self.closed = self.bytes_in = self.bytes_out = self.requests = self.responses = 0


class AcceptedSink(ExchangeSink):
    """One connection of a client, another broker or a controller: its bytes, and what was said in them."""

    __slots__ = ("_counts", "_exchanges", "_socket")

    def __init__(self, counts: RequestCounts, socket: SocketCounts) -> None:
        self._counts = counts
        self._socket = socket
        self._exchanges = Exchanges(self, public=None)
        socket.open += 1
        socket.created += 1

    def received(self, data: bytes) -> None:
        self._socket.bytes_in += len(data)
        self._exchanges.received(data)

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        self._socket.bytes_out += len(data)
        try:
            self._exchanges.sent(data)
        except Exception:  # what cannot be counted goes its way all the same
            log.exception("a response could not be counted")

    def authenticated(self, principal: str, mechanism: str) -> None:
        """Authentications are not counted."""
        self._exchanges.guard.authenticated()

    def closed(self, by: str, reason: str | None = None) -> None:
        self._socket.open -= 1
        self._socket.closed += 1
        for _, request, _ in self._exchanges.waiting:
            if request is not None:
                self._counts.open[request.api] -= 1
        self._exchanges.waiting.clear()

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: object
    ) -> OpenRequest | None:
        key, version = kind >> 16, kind & 0xFFFF
        api = messages.APIS.get(key)
        if api is None:
            return None
        names: tuple[str, ...] = (api.name,)
        if key == ApiKey.FETCH:
            names = (api.name, "FetchFollower" if is_follower(frame[4:], version) else "FetchConsumer")
        request = OpenRequest(key, api.name, version, size - 4, self._counts.time_s(), names)
        self._socket.requests += 1
        if has_response:
            self._counts.open[api.name] += 1
        else:
            self._counts.responded(request, None)
        return request

    def response(self, state: OpenRequest | None, frame: bytes, size: int, special: int) -> None:
        self._socket.responses += 1
        if state is not None:
            self._counts.open[state.api] -= 1
            self._counts.responded(state, frame[4:])

    def token(self, size: int, is_request: bool) -> None:
        """A token is not a request."""
        self._socket.responses += not is_request

    def unmatched(self, frame: bytes, correlation_id: int | None) -> None:
        """A response to no known request."""
        self._socket.responses += 1


class LeaderSink(ExchangeSink):
    """The connection to a leader: counts the responses to fetches."""

    __slots__ = ("_client_id", "_counts", "_exchanges", "_leader", "_peer", "received")

    def __init__(self, counts: RequestCounts, peer: str, leader: int | None) -> None:
        host, _, port = peer.rpartition(":")
        self._peer = host, int(port)
        self._leader = leader
        self._counts = counts
        self._client_id = ""
        self._exchanges = Exchanges(self, is_ours=True, public=None)
        self.received = self._exchanges.received

    def sent(self, data: bytes, cause: Cause | None = None) -> None:
        self._exchanges.sent(data)

    def authenticated(self, principal: str, mechanism: str) -> None:
        """Does nothing: authentications are not counted."""

    def closed(self, by: str, reason: str | None = None) -> None:
        """Does nothing: fetches without a response do not count."""

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: object
    ) -> bool:
        is_fetch = kind >> 16 == ApiKey.FETCH
        if is_fetch and not self._client_id:
            number = (messages.decode_request_header(frame[4:], messages.FEW_TAGS)[0].client_id or "").rpartition("-")[2]
            self._client_id = f"ReplicaFetcherThread-{number}-{self._leader}"
        return is_fetch

    def response(self, asked: bool, frame: bytes, size: int, special: int) -> None:
        if asked:
            self._counts.fetches[(self._client_id, *self._peer)] += 1
