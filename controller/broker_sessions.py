"""Sessions of brokers that registered with the controller: who was heard when, and on which connection (RREG-3, RREG-8).

A session lasts for one time-out after the last request that counts as a heartbeat. Before it ends, the silence of the broker is noted in
ZooKeeper, where the broker reads it: a session ends a third of the time-out after that note at the earliest. (Until then a broker that
cannot reach the controller may rely on it that nobody has fenced it.)

Hearing a broker is a few assignments; one timer serves all sessions. It goes off when something follows from the silence that lasts
longest, puts the event that looks at all sessions, and is set again after that. A session that is over stays here until its broker is
heard again or ends.

Time in which the event loop did not run is not silence of the brokers: what they sent meanwhile has not been read. A timer that goes off
late gives every session the time by which it was late, and a little more where it would be over; once, until its broker is heard again.
And since some loops call timers before they read from sockets, sessions are judged only when they are over still a moment after the timer
went off.

A session is bound to the connection of the last request that counted. Without a secret (`BrokerRegistration.secret_sha256`), another
connection continues it only when that one is closed or the session is over, and only for the same principal at the same address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from klamm.seams.clock import Clock, Timer

LATE_S = 0.1
"""A timer that is later than this tells of a loop that did not run."""

GRACE_S = 0.5
"""After that every session lasts this long at least: a broker that waited for an answer fetches again."""

MOMENT_S = 0.02
"""How long after the end of the first session, and once more after that, sessions are looked at: what has arrived by then is read."""

RETRY_S = 1.0
"""Sessions that are over although they were judged, because ZooKeeper refused what follows from it, are judged again after this time."""

NOTED_AFTER = 0.6
"""The silence of a broker is noted after this part of the time-out: more than a third is left then, for the time that the write takes."""

NOTICE_SHARE = 3
"""The session of a broker ends this part of the time-out after its silence was noted, at the earliest."""

FORGOTTEN_AFTER = 10
"""A fenced broker that has been silent for this number of time-outs gets no more requests, so that none pile up for it."""


class Connection(Protocol):
    """The connection of a request."""

    is_open: bool

    @property
    def host(self) -> str:
        """The address of the client."""

    @property
    def principal(self) -> object:
        """Who the client is."""


class Silence(NamedTuple):
    """What follows from the silence of brokers, by id; each is in one list at most."""

    to_note: list[int]
    """Their silence is to be noted."""
    over: list[int]
    """Their session is over."""
    to_forget: list[int]
    """They get nothing any more."""
    heard_again: list[int]
    """They were heard after their silence was noted."""


class Session:
    """One broker's session. `heard_at` and `noted_at` are the clock's time.

    `connection` and `sender`, its principal and address, are None after a fail-over until the broker is heard.
    """

    __slots__ = ("connection", "heard_at", "is_forgotten", "is_heard_again", "is_over", "is_spared", "noted_at", "sender")

    def __init__(self, heard_at: float, connection: Connection | None) -> None:
        self.heard_at = heard_at
        self.connection = connection
        self.sender = None if connection is None else _sender(connection)
        self.is_over = False
        self.is_forgotten = False
        self.is_spared = False
        self.noted_at: float | None = None
        self.is_heard_again = False


class BrokerSessions:
    """The sessions of one term. Times are in seconds."""

    def __init__(self, clock: Clock, timeout_s: float, due: Callable[[], None]) -> None:
        """`due` is called when something may follow from the silence of a broker, or from its end."""
        self.timeout_s = timeout_s
        self.notice_s = timeout_s / NOTICE_SHARE
        self._clock = clock
        self._due = due
        self._sessions: dict[int, Session] = {}
        self._timer: Timer | None = None
        self._due_at = 0.0
        self._is_second_look = False

    def began(self, broker_id: int, connection: Connection | None, *, is_noted: bool = False) -> None:
        """A broker registered, or is known from an earlier term (`is_noted`: as silent): it has a full time-out from now on."""
        session = self._sessions[broker_id] = Session(self._clock.monotonic(), connection)
        if is_noted:
            session.noted_at = session.heard_at
        self._watch(session)

    def heard(self, broker_id: int, connection: Connection) -> None:
        """A request of this broker arrived that counts as a heartbeat."""
        session = self._sessions[broker_id]
        session.heard_at = self._clock.monotonic()
        if session.connection is not connection:
            session.connection, session.sender = connection, _sender(connection)
        session.is_spared = False
        if session.is_over:
            session.is_over = session.is_forgotten = False
            self._watch(session)
        elif session.noted_at is not None and not session.is_heard_again:
            session.is_heard_again = True
            self._due()

    def heard_at(self) -> dict[int, float]:
        """When each broker was heard last whose session is not over."""
        return {broker_id: session.heard_at for broker_id, session in self._sessions.items() if not session.is_over}

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

    def is_bound_to(self, broker_id: int, connection: Connection) -> bool:
        """Whether the last request in this broker's session came on this connection."""
        session = self._sessions.get(broker_id)
        return session is not None and session.connection is connection

    def may_continue_on(self, broker_id: int, connection: Connection) -> bool:
        """Whether a broker without a secret may continue its session on this connection, which is not the one that it used last."""
        session = self._sessions.get(broker_id)
        if session is None or self.is_held_by_another(broker_id, connection):
            return False
        return session.sender is None or session.sender == _sender(connection)

    def is_held_by_another(self, broker_id: int, connection: Connection) -> bool:
        """Whether the last request in a session that is not over came on a connection that is still open and is not this one."""
        session = self._sessions.get(broker_id)
        if session is None or session.is_over or session.connection is None:
            return False
        return session.connection is not connection and session.connection.is_open

    def silence(self) -> Silence:
        """What follows now. Of the brokers that were heard again nothing is noted any more, as far as this object is concerned."""
        now = self._clock.monotonic()
        result = Silence([], [], [], [])
        for b, session in sorted(self._sessions.items()):
            if session.is_heard_again:
                session.is_heard_again, session.noted_at = False, None
                if now < self._end(session):
                    result.heard_again.append(b)
            if now < self._end(session):
                continue
            if session.is_over:
                result.to_forget.append(b)
            elif session.noted_at is None:
                result.to_note.append(b)
            else:
                result.over.append(b)
        return result

    def noted(self, broker_ids: Iterable[int]) -> None:
        """That these brokers are silent was noted before now."""
        now = self._clock.monotonic()
        for broker_id in broker_ids:
            if broker_id in self._sessions:
                self._sessions[broker_id].noted_at = now

    def closed(self, broker_ids: Iterable[int]) -> None:
        """What follows from the end of these sessions is done."""
        for broker_id in broker_ids:
            session = self._sessions.get(broker_id)
            if session is not None:
                session.is_over, session.is_heard_again, session.noted_at = True, False, None

    def forgotten(self, broker_ids: Iterable[int]) -> None:
        """What follows from long silence of these brokers is done."""
        for broker_id in broker_ids:
            if broker_id in self._sessions:
                self._sessions[broker_id].is_forgotten = True

    def watch(self) -> None:
        """Set the timer to when something follows next."""
        end = min((self._end(session) for session in self._sessions.values()), default=float("inf"))
        if end < float("inf"):
            self._set_timer(end)

    def close(self) -> None:
        """The term is over."""
        self._sessions.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _limit_s(self, session: Session) -> float:
        """The silence from which something follows."""
        if session.is_over:
            return self.timeout_s * FORGOTTEN_AFTER
        return self.timeout_s if session.noted_at is not None else self.timeout_s * NOTED_AFTER

    def _end(self, session: Session) -> float:
        """When silence is to be noted, or then a session is over, or then its broker is to be forgotten."""
        if session.is_forgotten:
            return float("inf")
        end = session.heard_at + self._limit_s(session)
        return end if session.noted_at is None else max(end, session.noted_at + self.notice_s)

    def _watch(self, session: Session) -> None:
        """A session is extended: the timer may be set to an end that comes later than its own."""
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
                    session.heard_at = max(session.heard_at + late_s, now + GRACE_S - self._limit_s(session))
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


def _sender(connection: Connection) -> tuple[object, str]:
    return connection.principal, connection.host
