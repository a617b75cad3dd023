"""Sessions of brokers that registered with the controller: who was heard when, and on which connection (RREG-3, RREG-8).

A session lasts for one time-out after the last request that counts as a heartbeat. Hearing a broker is a few assignments; one timer
serves all sessions. It goes off when the session that was heard longest ago is over, puts the event that looks at all of them, and is set
again after that. A session that is over stays here until its broker is heard again or ends.

Time in which the event loop did not run is not silence of the brokers: what they sent meanwhile has not been read. A timer that goes off
late gives every session the time by which it was late, and a little more where it would be over; once, until its broker is heard again. And
since some loops call timers before they read from sockets, sessions are judged only when they are over still a moment after the timer went
off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from klamm.protocol.clock import Clock, Timer

LATE_S = 0.1
"""A timer that is later than this tells of a loop that did not run."""

GRACE_S = 0.5
"""After that every session lasts this long at least: a broker that waited for an answer fetches again."""

MOMENT_S = 0.02
"""How long after the end of the first session, and once more after that, sessions are looked at: what has arrived by then is read."""

RETRY_S = 1.0
"""Sessions that are over although they were judged, because ZooKeeper refused what follows from it, are judged again after this time."""

FORGOTTEN_AFTER = 10
"""After so many time-outs in silence a fenced broker gets no requests any more, so that none pile up for it."""


class Connection(Protocol):
    """The connection of a request."""

    is_open: bool


class Session:
    """One broker's session. `heard_at` is the clock's time; `connection` is None after a fail-over."""

    __slots__ = ("connection", "heard_at", "is_forgotten", "is_over", "is_spared")

    def __init__(self, heard_at: float, connection: Connection | None) -> None:
        self.heard_at = heard_at
        self.connection = connection
        self.is_over = False
        self.is_forgotten = False
        self.is_spared = False


class BrokerSessions:
    """The sessions of one term. Times are in seconds."""

    def __init__(self, clock: Clock, timeout_s: float, due: Callable[[], None]) -> None:
        """`due` is called when a session may be over."""
        self.timeout_s = timeout_s
        self._clock = clock
        self._due = due
        self._sessions: dict[int, Session] = {}
        self._timer: Timer | None = None
        self._due_at = 0.0
        self._is_second_look = False

    def began(self, broker_id: int, connection: Connection | None) -> None:
        """A broker registered, or is known from an earlier term: it has a full time-out from now on."""
        session = self._sessions[broker_id] = Session(self._clock.monotonic(), connection)
        self._watch(session)

    def heard(self, broker_id: int, connection: Connection) -> None:
        """A request of this broker arrived that counts as a heartbeat."""
        session = self._sessions[broker_id]
        session.heard_at = self._clock.monotonic()
        session.connection = connection
        session.is_spared = False
        if session.is_over:
            session.is_over = session.is_forgotten = False
            self._watch(session)

    def restarted(self) -> None:
        """All have a full time-out from now on."""
        now = self._clock.monotonic()
        for session in self._sessions.values():
            session.heard_at = now

    def ended(self, broker_id: int) -> None:
        """This broker is not registered any more."""
        self._sessions.pop(broker_id, None)

    def is_live(self, broker_id: int) -> bool:
        """Whether this broker has a session that is not over."""
        session = self._sessions.get(broker_id)
        return session is not None and not session.is_over

    def is_remembered(self, broker_id: int) -> bool:
        """Whether this broker has a session, over or not, and was not silent for so long that it is forgotten."""
        session = self._sessions.get(broker_id)
        return session is not None and not session.is_forgotten

    def is_held_by_another(self, broker_id: int, connection: Connection) -> bool:
        """Whether the last request in a session that is not over came on a connection that is still open and is not this one."""
        session = self._sessions.get(broker_id)
        if session is None or session.is_over or session.connection is None:
            return False
        return session.connection is not connection and session.connection.is_open

    def silent(self) -> tuple[list[int], list[int]]:
        """(brokers whose session is over and was not closed, those that were silent for so long that they are to be forgotten), by id."""
        now = self._clock.monotonic()
        silent = sorted(b for b, session in self._sessions.items() if now >= self._end(session))
        return [b for b in silent if not self._sessions[b].is_over], [b for b in silent if self._sessions[b].is_over]

    def closed(self, broker_ids: Iterable[int]) -> None:
        """What follows from the end of these sessions is done."""
        for broker_id in broker_ids:
            if broker_id in self._sessions:
                self._sessions[broker_id].is_over = True

    def forgotten(self, broker_ids: Iterable[int]) -> None:
        """What follows from long silence of these brokers is done."""
        for broker_id in broker_ids:
            if broker_id in self._sessions:
                self._sessions[broker_id].is_forgotten = True

    def watch(self) -> None:
        """Set the timer to the next end of a session."""
        end = min((self._end(session) for session in self._sessions.values()), default=float("inf"))
        if end < float("inf"):
            self._set_timer(end)

    def close(self) -> None:
        """The term is over."""
        self._sessions.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, session: Session) -> float:
        """When a session is over, or its broker is to be forgotten."""
        if session.is_forgotten:
            return float("inf")
        return session.heard_at + self.timeout_s * (FORGOTTEN_AFTER if session.is_over else 1)

    def _watch(self, session: Session) -> None:
        """A session lasts anew: the timer may be set to an end that comes later than its own."""
        if self._timer is None:
            self.watch()
        else:
            self._set_timer(self._end(session))

    def _set_timer(self, end: float) -> None:
        """Look at the sessions when one ends, at `end`, unless the timer goes off sooner."""
        now = self._clock.monotonic()
        due_at = end + MOMENT_S if end > now else now + RETRY_S
        if self._timer is not None:
            if self._due_at <= due_at:
                return
            self._timer.cancel()
        self._due_at = due_at
        self._timer = self._clock.call_later(due_at - now, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        late_s = now - self._due_at
        if late_s > LATE_S:
            for session in self._sessions.values():
                if not session.is_spared:
                    session.is_spared = True
                    session.heard_at += max(late_s, now + GRACE_S - self._end(session))
        if not any(now >= self._end(session) for session in self._sessions.values()):
            self._is_second_look = False
            self.watch()
        elif self._is_second_look:
            self._is_second_look = False
            self._due()
        else:
            self._is_second_look = True
            self._due_at = now + MOMENT_S
            self._timer = self._clock.call_later(MOMENT_S, self._look)
