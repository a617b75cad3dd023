"""The bytes of TCP connections in their order: duplicates are dropped, what came early waits, and what never came is a gap."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from klamm.journal.captures.packets import Place, TcpSegment

PATIENCE = 256
"""A hole is a gap when this many further segments of the connection came without filling it."""
MOST_EARLY = 64 << 20
"""Bytes that wait behind a hole."""
LATE_NS = 1_000_000_000
"""How long packets may still come after both ends have closed a connection, and how long after its beginning that may be repeated."""
_ALL = 1 << 32


class Piece(NamedTuple):
    """Bytes of one direction, then a number of bytes that are not in the capture."""

    at_ns: int
    data: bytes
    lost: int = 0


class Sink(Protocol):
    """Gets what both ends of one connection said, in order of time."""

    def piece(self, is_request: bool, piece: Piece) -> None:
        """Bytes of the client, or of the broker."""

    def closed(self, by: str) -> None:
        """The connection ended: `peer` if the client ended it, `us` if the broker did. Called once."""


class Half:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.begun: TcpSegment | None = None
        """The segment with which it began, if that was seen."""
        self.next: int | None = None
        """The sequence number of the next byte."""
        self._end: int | None = None
        """The sequence number of its end, until everything before was seen."""
        self.early: dict[int, TcpSegment] = {}
        self.early_bytes = 0
        self._acked: int | None = None
        self._acked_ns = 0
        """When the receiver first confirmed bytes that were not seen."""
        self._last_ns = 0

    @property
    def has_hole(self) -> bool:
        """Whether bytes are known to have come that were not seen: there are later ones, or the receiver has confirmed them."""
        return bool(self.early) or self._behind > 0

    @property
    def _behind(self) -> int:
        """How many bytes the receiver has confirmed that were not seen."""
        return 0 if self.next is None or self._acked is None else _distance(self.next, self._acked)

    def confirmed(self, ack: int, at_ns: int) -> None:
        """The receiver has everything before this number."""
        if self._acked is None or _distance(self._acked, ack) > 0:
            if self._behind <= 0:
                self._acked_ns = at_ns
            self._acked = ack

    def take(self, segment: TcpSegment) -> list[Piece]:
        """What is in order now."""
        if segment.begins:
            self.begun = self.begun or segment
            segment = segment._replace(seq=(segment.seq + 1) % _ALL)
            if self.next is None:
                self.next = segment.seq
        if segment.ends:
            self._end = (segment.seq + segment.size) % _ALL
            self.confirmed(self._end, segment.at_ns)
        if not segment.size:
            self._pass_end()
            return []
        if self.next is None:
            self.next = segment.seq
        ahead = _distance(self.next, segment.seq)
        if ahead > 0:
            known = self.early.get(segment.seq)
            if known is None or known.size < segment.size:
                self.early[segment.seq] = segment
                self.early_bytes += len(segment.data) - (0 if known is None else len(known.data))
            return []
        return [*self._pass(segment, -ahead), *self._drain(segment.at_ns)]

    def give_up(self) -> list[Piece]:
        """The bytes that came early, and the gap before them."""
        if self.next is None or not self.has_hole:
            return []
        begun = self.next
        first = min(self.early, key=lambda seq: _distance(begun, seq)) if self.early else (begun + self._behind) % _ALL
        self.next = first
        came_ns = self.early[first].at_ns if self.early else self._acked_ns
        at_ns = self._at(min(came_ns, self._acked_ns) if self._behind >= 0 else came_ns)
        return [Piece(at_ns, b"", _distance(begun, first)), *self._drain(at_ns)]

    def _pass(self, segment: TcpSegment, known: int) -> list[Piece]:
        """The bytes of a segment but the first, which are known."""
        if known >= segment.size or self.next is None:
            return []
        self.next = (self.next + segment.size - known) % _ALL
        data = segment.data[known:]
        return [Piece(self._at(segment.at_ns), data, segment.size - known - len(data))]

    def _drain(self, at_ns: int) -> list[Piece]:
        pieces: list[Piece] = []
        while self.early and self.next is not None:
            begun = self.next
            seq = min(self.early, key=lambda seq: _distance(begun, seq))
            ahead = _distance(begun, seq)
            if ahead > 0:
                break
            segment = self.early.pop(seq)
            self.early_bytes -= len(segment.data)
            pieces += self._pass(segment._replace(at_ns=max(at_ns, segment.at_ns)), -ahead)
        self._pass_end()
        return pieces

    def _pass_end(self) -> None:
        if self.next is not None and self.next == self._end:
            self.next, self._end = (self.next + 1) % _ALL, None  # the end has a number too

    def _at(self, at_ns: int) -> int:
        self._last_ns = max(self._last_ns, at_ns)
        return self._last_ns


class Conversation:
    """One connection of a client. Both directions wait while one of them has a hole: a response never comes before its request."""

    def __init__(self, client: Place, sink: Sink) -> None:
        self._client = client
        self._sink = sink
        self._there, self._back = Half(), Half()
        self._queue: list[tuple[bool, Piece]] = []
        self._waited = 0
        self._ended: set[bool] = set()
        self._by = ""
        """Who ended it first."""
        self.is_over = False

    def take(self, segment: TcpSegment) -> None:
        """Process the next segment of the capture."""
        is_request = segment.source == self._client
        half, other = (self._there, self._back) if is_request else (self._back, self._there)
        if segment.ack is not None and not self._ended:
            other.confirmed(segment.ack, segment.at_ns)
        self._queue += [(is_request, piece) for piece in half.take(segment)]
        if self._has_hole:
            self._waited += 1
            if self._waited > PATIENCE or self._there.early_bytes + self._back.early_bytes > MOST_EARLY:
                self._give_up()
        if not self._has_hole:
            self._flush()
        if segment.ends:
            self._ended.add(is_request)
            self._by = self._by or ("peer" if is_request else "us")
        if segment.resets or (self.has_ended and not self._has_hole):
            self.end("peer" if is_request else "us")

    def end(self, by: str = "peer") -> None:
        """Nothing more of this connection comes. `by` ended it, unless an end was seen before."""
        if not self.is_over:
            self.is_over = True
            while self._has_hole:
                self._give_up()
            self._flush()
            self._sink.closed(self._by or by)

    def may_begin_with(self, segment: TcpSegment) -> bool:
        """Whether the client began it with this segment, which comes again, or nothing of the client was seen."""
        begun = self._there.begun
        if begun is None or self.has_ended:
            return self._there.next is None
        return begun.seq == segment.seq and segment.at_ns - begun.at_ns < LATE_NS

    @property
    def has_ended(self) -> bool:
        """Whether both ends have ended it. Packets may come late all the same."""
        return len(self._ended) == 2

    @property
    def _has_hole(self) -> bool:
        return self._there.has_hole or self._back.has_hole

    def _give_up(self) -> None:
        self._queue += [(True, piece) for piece in self._there.give_up()] + [(False, piece) for piece in self._back.give_up()]
        self._waited = 0

    def _flush(self) -> None:
        self._waited = 0
        queue, self._queue = self._queue, []
        for is_request, piece in sorted(queue, key=lambda each: (each[1].at_ns, bool(each[1].data))) if len(queue) > 1 else queue:
            self._sink.piece(is_request, piece)


class Conversations:
    """All connections to the brokers at some places. `begun` makes the sink of a connection, from client, broker, and whether the capture
    has its beginning.
    """

    def __init__(self, brokers: frozenset[Place], begun: Callable[[Place, Place, bool], Sink]) -> None:
        self._brokers = brokers
        self._begun = begun
        self._open: dict[tuple[Place, Place], Conversation] = {}
        self._late: deque[tuple[int, tuple[Place, Place], Conversation]] = deque()
        """Those that have ended but lack packets, and until when these are waited for."""
        self.others: dict[Place, int] = {}
        """Segments to and from other places: how many."""

    def take(self, segment: TcpSegment) -> None:
        """Process the next segment of the capture."""
        self._end_late(segment.at_ns)
        if segment.target in self._brokers:
            client, broker = segment.source, segment.target
        elif segment.source in self._brokers:
            client, broker = segment.target, segment.source
        else:
            for place in (segment.source, segment.target):
                if place in self.others or len(self.others) < 10_000:
                    self.others[place] = self.others.get(place, 0) + 1
            return
        found = self._open.get((client, broker))
        is_first = segment.begins and segment.source == client
        if found is not None and is_first and segment.size == 0 and not found.may_begin_with(segment):
            found.end()  # the port of the client is used again
            found = None
        if found is None or found.is_over:
            if not segment.begins and (segment.ends or segment.resets or not segment.size):
                return
            found = self._open[client, broker] = Conversation(client, self._begun(client, broker, segment.begins))
        found.take(segment)
        if found.is_over:
            del self._open[client, broker]
        elif segment.ends and found.has_ended:
            self._late.append((segment.at_ns + LATE_NS, (client, broker), found))

    def _end_late(self, at_ns: int) -> None:
        while self._late and self._late[0][0] < at_ns:
            _, ends, late = self._late.popleft()
            late.end()
            if self._open.get(ends) is late:
                del self._open[ends]

    def end(self) -> None:
        """The capture ends. Connections that are still open end with it."""
        for each in self._open.values():
            each.end()
        self._open.clear()


def _distance(begun: int, seq: int) -> int:
    """How far a sequence number is ahead of another; negative if it is behind it."""
    return (seq - begun + (1 << 31)) % _ALL - (1 << 31)
