"""A capture becomes a journal for each broker in it, as a proxy before these brokers would have written it.

Bytes that the capture lacks never become frames. A gap within a frame cuts it (`Flag.CUT`). After any other gap, and in a capture that
begins in the middle of a connection, frames are looked for again at the beginnings of segments: requests by their headers, responses by
the correlation ids of these. What is journaled from there on is another connection, and a number of a row is left out, as it is for rows
that are lost: the rules then know that something is missing.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from klamm.journal.captures.packets import BadCapture, Place, segments
from klamm.journal.captures.streams import Conversations, Piece, Sink
from klamm.journal.connection import ConnectionJournal
from klamm.journal.writer import JournalWriter
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind
from klamm.protocol.exchanges.exchanges import Exchanges, ExchangeSink, decode_response
from klamm.protocol.exchanges.peers import other_protocol
from klamm.protocol.exchanges.splitter import HEAD_BYTES, Splitter
from klamm.seams.clock import SystemClock

LISTENER = "CAPTURE"
LARGEST_HELD = 64 << 20
"""Of a larger frame no more is kept."""
LARGEST_METADATA = 1 << 20
"""The ids of brokers are not looked for in a larger response."""
_LARGEST = 1 << 30
_LATER = 8
"""A request may have a version that is this much above the highest that is known here."""
_MUCH = 32 << 20
"""After this many bytes the journals are given time to write."""
_BEFORE_LOGIN = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE))
_HEAD = Struct(">ihhih")
_RESPONSE = Struct(">ii")


class Broker(NamedTuple):
    """A broker of the capture. `node` is its id, None if the capture shall tell it."""

    node: int | None
    host: str
    port: int


class Imported(NamedTuple):
    """What was imported. `brokers` are their ids, `guessed` those of them that the capture does not have."""

    run: str
    brokers: list[int]
    guessed: list[int]
    connections: int
    midway: int
    """Connections whose beginning the capture does not have."""
    gaps: int
    lost: int
    """Bytes that the capture lacks."""
    unread: dict[str, int]
    """Connections of other protocols: TLS, HTTP."""


class CaptureClock(SystemClock):
    """The time of the packet that is processed."""

    def __init__(self) -> None:
        self.base_ns = 0
        self.at_ns = 0

    def at(self, at_ns: int) -> None:
        """Go on to this time; it never goes back."""
        if not self.base_ns:
            self.base_ns = at_ns
        self.at_ns = max(self.at_ns, at_ns - self.base_ns)

    def now_ms(self) -> int:
        return (self.base_ns + self.at_ns) // 1_000_000

    def monotonic(self) -> float:
        return self.at_ns / 1e9


class CaptureWriter(JournalWriter):
    """The journal of a broker whose rows have the times of packets."""

    def __init__(self, lake: Path, run: str, node: int, clock: CaptureClock, public_configs: Set[str]) -> None:
        """Raises JournalRefused."""
        self._packets = clock
        super().__init__(lake, run, node, public_configs=public_configs, clock=clock, is_midway=True)

    def _offset_ns(self) -> int:
        return self._packets.base_ns

    def written(self) -> None:
        """Wait until the rows so far are written."""
        while self.frames and not self.has_ended:
            self.wake()
            time.sleep(0.001)


def import_capture(path: Path, brokers: Sequence[Broker], lake: Path, run: str, public_configs: Set[str]) -> Imported:
    """Write the journals of these brokers. `public_configs` are names of configs whose values may be written.

    Raises BadCapture for a file without a connection to these brokers, JournalRefused.
    """
    places = _places(brokers)
    nodes, guessed = _nodes(path, brokers, places)
    clock = CaptureClock()
    clock.at(next((each.at_ns for each in segments(path)), 1))
    writers: dict[int, CaptureWriter] = {}
    counts = _Counts()

    def begun(client: Place, broker: Place, is_whole: bool) -> Sink:
        node = nodes[places[broker]]
        if node not in writers:
            writers[node] = CaptureWriter(lake, run, node, clock, public_configs)
        counts.connections += 1
        counts.midway += not is_whole
        return _Recorded(writers[node], clock, client, node, is_whole, counts)

    conversations = Conversations(frozenset(places), begun)
    try:
        for segment in segments(path):
            conversations.take(segment)
            counts.fed += segment.size
            if counts.fed > _MUCH:
                counts.fed = 0
                for writer in writers.values():
                    writer.written()
        conversations.end()
    finally:
        for writer in writers.values():
            writer.written()
            writer.close()
    if not counts.connections:
        raise BadCapture(f"{path}: no connection to {', '.join(f'{each.host}:{each.port}' for each in brokers)}{_seen(conversations)}")
    ids = sorted({nodes[index] for index in places.values()})
    return Imported(run, ids, guessed, counts.connections, counts.midway, counts.gaps, counts.lost, dict(counts.unread))


def _seen(conversations: Conversations) -> str:
    """The places that speak most in the capture."""
    most = sorted(conversations.others, key=lambda place: -conversations.others[place])[:4]
    return f"; it has connections of {', '.join(f'{host}:{port}' for host, port in most)}" if most else "; it has no TCP connections"


def _places(brokers: Sequence[Broker]) -> dict[Place, int]:
    """Addresses → index of their broker. Raises BadCapture for a host without one."""
    found: dict[Place, int] = {}
    for index, broker in enumerate(brokers):
        try:
            infos = socket.getaddrinfo(broker.host, broker.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise BadCapture(f"the address of {broker.host} is not known: {getattr(error, 'strerror', None) or error}") from None
        for info in infos:
            found[str(info[4][0]), broker.port] = index
    return found


class _Counts:
    """What was seen in a capture."""

    def __init__(self) -> None:
        self.connections = self.midway = self.gaps = self.lost = self.fed = 0
        self.unread: Counter[str] = Counter()


class _Recorded:
    """One connection on its way into a journal."""

    def __init__(self, writer: CaptureWriter, clock: CaptureClock, client: Place, node: int, is_whole: bool, counts: _Counts) -> None:
        self._writer = writer
        self._clock = clock
        self._client = client
        self._node = node
        self._counts = counts
        self._is_known = False
        """Whether the protocol is known to be Kafka's."""
        self._is_read = True
        self._journal: ConnectionJournal | None = None
        self._requests: Splitter | None = None
        self._responses: Splitter | None = None
        self._first_after_login: int | None = None
        if is_whole:
            self._journal = self._opened()
            self._requests, self._responses = self._splitter(self._request), self._splitter(self._response)
        else:
            writer.seq += 1

    def _opened(self) -> ConnectionJournal:
        name = f"{self._client[0]}:{self._client[1]}"
        identity = f"{name}-{self._writer.seq}"
        return self._writer.connection(ConnectionInfo(self._node, identity, ConnectionKind.ACCEPTED, name, LISTENER))

    def piece(self, is_request: bool, piece: Piece) -> None:
        """See `streams.Sink`."""
        if not self._is_read:
            return
        self._clock.at(piece.at_ns)
        if piece.data and not self._is_known and self._is_other(piece.data):
            return
        if piece.data:
            self._fed(is_request, piece.data)
        if piece.lost:
            self._counts.gaps += 1
            self._counts.lost += piece.lost
            self._lose(is_request, piece.lost)

    def closed(self, by: str) -> None:
        """See `streams.Sink`."""
        if self._journal is not None:
            for splitter in (self._requests, self._responses):
                if splitter is not None:
                    splitter.end()
            self._journal.closed(by)
            self._journal = None

    def _is_other(self, data: bytes) -> bool:
        """Whether the connection is one of another protocol: nothing of it is journaled."""
        self._is_known = True
        other = other_protocol(data)
        if other is not None:
            self._counts.unread[other] += 1
            self._is_read = False
            self.closed("peer")
        return other is not None

    def _fed(self, is_request: bool, data: bytes) -> None:
        if is_request:
            if self._requests is None and _is_request(data):
                self._journal, self._requests = self._opened(), self._splitter(self._request)
            if self._requests is not None:
                self._requests.feed(data)
            return
        if self._responses is None and self._journal is not None and self._is_response(data):
            self._responses = self._splitter(self._response)
        if self._responses is not None:
            self._responses.feed(data)

    def _lose(self, is_request: bool, size: int) -> None:
        splitter = self._requests if is_request else self._responses
        if splitter is None or splitter.lose(size):
            return
        if self._journal is not None:
            self._journal.closed("peer", f"{size} bytes are not in the capture")
        self._writer.seq += 1
        self._responses = self._first_after_login = None
        if is_request:
            self._journal = self._requests = None
        else:
            self._journal = self._opened()

    def _is_response(self, data: bytes) -> bool:
        if len(data) < _RESPONSE.size or self._journal is None:
            return False
        length, correlation_id = _RESPONSE.unpack_from(data)
        return 4 <= length < _LARGEST and self._journal.request_seq(correlation_id) is not None

    def _splitter(self, take: Callable[[bytes, int], None]) -> Splitter:
        return Splitter(take, take_bad(take), lambda head: LARGEST_HELD)

    def _request(self, frame: bytes, size: int) -> None:
        if self._journal is None:
            return
        if len(frame) >= 12 and self._first_after_login is None:
            key = int.from_bytes(frame[4:6], "big", signed=True)
            if key in APIS and key not in _BEFORE_LOGIN:
                self._first_after_login = int.from_bytes(frame[8:12], "big", signed=True)
        self._journal.request_frame(frame, size)

    def _response(self, frame: bytes, size: int) -> None:
        if self._journal is None:
            return
        if len(frame) >= 8 and self._first_after_login == int.from_bytes(frame[4:8], "big", signed=True):
            self._journal.logged_in()
        self._journal.response_frame(frame, size)


def take_bad(take: Callable[[bytes, int], None]) -> Callable[[bytes], None]:
    """What is left of a frame at the end of a connection, as a frame that is cut; less than a header is nothing."""

    def bad(rest: bytes) -> None:
        if len(rest) >= _HEAD.size:
            take(rest, max(len(rest), 4 + _RESPONSE.unpack_from(rest)[0]))

    return bad


def _is_request(data: bytes) -> bool:
    """Whether a segment begins like a request."""
    if len(data) < _HEAD.size:
        return False
    length, key, version, _, client = _HEAD.unpack_from(data)
    is_known = key in APIS and 0 <= version <= APIS[key].max_version + _LATER
    return is_known and 10 <= length < _LARGEST and -1 <= client <= min(length - 10, 1000)


# --- the ids of brokers


class _Names(ExchangeSink):
    """Looks for the addresses of brokers in responses to Metadata on one connection."""

    def __init__(self, found: dict[Place, int], is_whole: bool) -> None:
        self._found = found
        self._is_whole = is_whole
        self._begin()

    def _begin(self) -> None:
        self._exchanges = Exchanges(self, public=None, request_keep=lambda head: HEAD_BYTES, response_keep=lambda head: LARGEST_METADATA)
        self._has_begun = {True: self._is_whole, False: self._is_whole}

    def piece(self, is_request: bool, piece: Piece) -> None:
        """See `streams.Sink`."""
        exchanges, data = self._exchanges, piece.data
        if not self._has_begun[is_request] and (is_request or self._has_begun[True]):
            waits = len(data) >= _RESPONSE.size and exchanges.place(_RESPONSE.unpack_from(data)[1]) >= 0
            self._has_begun[is_request] = _is_request(data) if is_request else waits
        if self._has_begun[is_request]:
            (exchanges.requests if is_request else exchanges.responses).feed(data)
        if piece.lost:
            self._is_whole = False
            self._begin()

    def closed(self, by: str) -> None:
        """See `streams.Sink`."""

    def request(
        self, frame: bytes, size: int, kind: int, correlation_id: int, has_response: bool, is_masked: bool, cause: object
    ) -> int:
        return kind

    def response(self, state: int, frame: bytes, size: int, special: int) -> None:
        if state >> 16 == ApiKey.METADATA and len(frame) == size and state & 0xFFFF in range(APIS[ApiKey.METADATA].max_version + 1):
            try:
                message: Any = decode_response(ApiKey.METADATA, state & 0xFFFF, frame[4:])[0]
            except RemoteProtocolError:
                return
            for row in message.brokers:
                self._found[row.host, row.port] = row.node_id


def _nodes(path: Path, brokers: Sequence[Broker], places: dict[Place, int]) -> tuple[list[int], list[int]]:
    """The id of each broker, and those of them that nobody tells: the lowest that are free."""
    nodes = [each.node for each in brokers]
    found: dict[Place, int] = {}
    conversations = Conversations(frozenset(places), lambda client, broker, is_whole: _Names(found, is_whole))
    for number, segment in enumerate(segments(path) if None in nodes else ()):
        conversations.take(segment)
        if number % 1000 == 0 and None not in [_told(each, found, brokers) for each in brokers]:
            break
    nodes = [_told(each, found, brokers) for each in brokers]
    free = (number for number in range(1, 1 << 31) if number not in nodes)
    guessed = [next(free) if node is None else -1 for node in nodes]
    return [other if node is None else node for node, other in zip(nodes, guessed, strict=True)], [each for each in guessed if each >= 0]


def _told(broker: Broker, found: dict[Place, int], brokers: Sequence[Broker]) -> int | None:
    """The id of a broker, by its address, or by its port if no other has it: it may have another name in the cluster."""
    if broker.node is not None or (broker.host, broker.port) in found:
        return broker.node if broker.node is not None else found[broker.host, broker.port]
    same = {node for (_, port), node in found.items() if port == broker.port}
    is_alone = sum(each.port == broker.port for each in brokers) == 1
    return same.pop() if len(same) == 1 and is_alone else None
