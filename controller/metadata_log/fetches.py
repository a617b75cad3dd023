"""MetadataFetch: a broker that registered with the controller shows that it is there, and reads the metadata log (controller 25.1).

A fetch is no event: it looks at what the controller knows, restarts the broker's session, and is answered with records or waits for some.
It becomes an event where something has to change: a fenced broker that has read everything (BrokerCaughtUp), a broker that wants to stop
(BrokerShutdownWanted).

Who fetches with id -1 and epoch -1 is an observer: it reads the log and is no broker. A broker with the id of another one is kept out by
the broker epoch.

Fetches that wait are answered together when records are appended, the first time at once. While records come in quick succession the next
time is the later the more fetches wait, so that answering leaves most of the time to the controller.
A broker may fetch now and then without having read anything new; beyond that its fetches on this connection are answered late, and say so
(ThrottleTimeMs). Nobody else waits for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from klamm.controller.cluster import Cluster
from klamm.controller.events import catalogue as events
from klamm.controller.events.catalogue import Event
from klamm.controller.events.causes import Cause
from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.registrations.broker_sessions import BrokerSessions, Connection
from klamm.controller.values import BrokerState
from klamm.protocol.clock import Clock
from klamm.protocol.errors import ApiError, ErrorCode

NOBODY = -2
"""In place of a broker id: the connection does not belong to the broker that the request names."""

OBSERVER_ID = -1
"""The broker id of readers of the log that are no brokers; their broker epoch is -1 too."""

NO_CONTROLLER_EPOCH = -1
UNKNOWN = -1

MOST_BYTES = 2 << 20
"""Records of one answer: nothing else runs while they are encoded. A client that takes more gets them with its next fetch."""

WAKE_S_PER_FETCH = 0.001
"""Seconds for each waiting fetch before they are answered again."""

FETCHES_AT_ONCE, FETCHES_PER_S = 100, 20
"""A broker may fetch this often on a connection without having read anything new; so much of it comes back."""

SHUTDOWN_COST = 10
"""As many fetches counts one that asks for the shutdown: the controller looks at all partitions of the broker."""


class MetadataFetch(NamedTuple):
    """A MetadataFetch request."""

    broker_id: int
    broker_epoch: int
    controller_epoch: int
    offset: int
    max_wait_ms: int
    max_bytes: int
    wants_shutdown: bool = False


class MetadataFetched(NamedTuple):
    """A MetadataFetch response; what is not known is -1."""

    error: ErrorCode
    may_go: bool = False
    """Whether the broker, which wants to stop, may do so now (the result code)."""
    state: int = UNKNOWN
    controller_epoch: int = UNKNOWN
    start_offset: int = UNKNOWN
    high_watermark: int = UNKNOWN
    records: bytes | None = None
    throttle_ms: int = 0


NOT_CONTROLLER = MetadataFetched(ErrorCode.NOT_CONTROLLER)


class _Pace:
    """What a broker may fetch on a connection without news: `left` fetches at the time `at`. It has fetched from `offset`, or less."""

    __slots__ = ("at", "left", "offset")

    def __init__(self, at: float) -> None:
        self.at = at
        self.left = float(FETCHES_AT_ONCE)
        self.offset = -1

    def delay(self, now: float, cost: int) -> float:
        """Seconds until a fetch that costs so much may be answered."""
        self.left = min(self.left + (now - self.at) * FETCHES_PER_S, FETCHES_AT_ONCE) - cost
        self.at = now
        return max(-self.left / FETCHES_PER_S, 0.0)


class MetadataFetches:
    """The fetches of one term."""

    def __init__(
        self,
        cluster: Cluster,
        log: MetadataLog,
        sessions: BrokerSessions,
        clock: Clock,
        interval_s: float,
        put: Callable[[Event, Cause], None],
    ) -> None:
        """`interval_s` is the interval of heartbeats, the longest that a fetch waits; `put` puts an event on the controller's queue."""
        self._cluster = cluster
        self._log = log
        self._sessions = sessions
        self._clock = clock
        self._interval_s = interval_s
        self._put = put
        self._paces: dict[tuple[Connection, int], _Pace] = {}
        self._most_paces = 64
        self._caught_up: set[tuple[int, int]] = set()
        self._shutdowns: dict[tuple[int, int], asyncio.Future[bool]] = {}
        self._waiting: dict[asyncio.Future[None], int] = {}
        """Fetches that wait, and for which offset."""
        self._is_listening = False
        self._answered_at = float("-inf")
        self._is_over = False

    async def fetch(self, fetch: MetadataFetch, connection: Connection, cause: Cause) -> MetadataFetched:
        """The answer to a fetch, as soon as there is one. The cases are in the order of the table."""
        error = self._sender_error(fetch)
        is_broker = not _is_observer(fetch)
        is_heard = error is None
        if error is None:
            if is_broker:
                self._sessions.heard(fetch.broker_id, connection)
            error = self._place_error(fetch)
        throttle_s = self._throttle(fetch, connection, is_heard=is_heard, has_place=error is None)
        if is_broker and error is None and self._is_caught_up(fetch):
            self._caught_up.add((fetch.broker_id, fetch.broker_epoch))
            self._put(events.BrokerCaughtUp(fetch.broker_id, fetch.broker_epoch), cause)
        if throttle_s > 0:
            await self._clock.sleep(throttle_s)
        may_go = False
        if is_heard and is_broker and fetch.wants_shutdown:
            try:
                may_go = await self._shut_down(fetch, cause)
            except ApiError as refusal:
                return self._answer(fetch, refusal.code, throttle_s)
        elif error is None and _offset(fetch) == self._log.high_watermark:
            await self._wait(_offset(fetch), min(fetch.max_wait_ms / 1000, self._interval_s) - throttle_s)
        if is_heard:  # much may have happened meanwhile
            error = self._sender_error(fetch)
            if error is ErrorCode.BROKER_ID_NOT_REGISTERED and self._has_stopped(fetch):
                error, may_go = None, True
            if error is None:
                error = self._place_error(fetch)
        return self._answer(fetch, error, throttle_s, may_go)

    def caught_up_handled(self, brokers: Iterable[tuple[int, int]]) -> None:
        """The events about these brokers (id, epoch) were processed: their next fetches may put other ones."""
        self._caught_up.difference_update(brokers)

    def close(self) -> None:
        """The term is over: what waits learns that another controller has to be asked."""
        self._is_over = True
        for future in self._waiting:
            _finish(future)

    # --- the table of 25.1

    def _sender_error(self, fetch: MetadataFetch) -> ErrorCode | None:
        """What is wrong with who fetches: this is no heartbeat."""
        if self._is_over or not self._log.has_begun or fetch.controller_epoch > self._cluster.epoch:
            return ErrorCode.NOT_CONTROLLER
        if _is_observer(fetch):
            return None
        registration = self._cluster.registrations.get(fetch.broker_id)
        if registration is None or registration.state is BrokerState.OFFLINE:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        return ErrorCode.STALE_BROKER_EPOCH if fetch.broker_epoch != registration.epoch else None

    def _place_error(self, fetch: MetadataFetch) -> ErrorCode | None:
        """What is wrong with where it fetches: a heartbeat all the same."""
        if fetch.controller_epoch not in (NO_CONTROLLER_EPOCH, self._cluster.epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        if not self._log.start_offset <= _offset(fetch) <= self._log.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return None

    def _answer(self, fetch: MetadataFetch, error: ErrorCode | None, throttle_s: float, may_go: bool = False) -> MetadataFetched:
        """The answer as things are now."""
        throttle_ms = round(throttle_s * 1000)
        if self._is_over or not self._log.has_begun:
            return NOT_CONTROLLER._replace(throttle_ms=throttle_ms)
        records = None if error is not None else self._log.read(_offset(fetch), min(max(fetch.max_bytes, 1), MOST_BYTES))
        registration = None if _is_observer(fetch) else self._cluster.registrations.get(fetch.broker_id)
        return MetadataFetched(
            ErrorCode.NONE if error is None else error, may_go, BrokerState.OFFLINE if registration is None else registration.state,
            self._cluster.epoch, self._log.start_offset, self._log.high_watermark, records, throttle_ms,
        )

    def _is_caught_up(self, fetch: MetadataFetch) -> bool:
        """Whether a fetch without an error shows that a fenced broker has read everything, and no event says so yet (RREG-7)."""
        if fetch.controller_epoch == NO_CONTROLLER_EPOCH or fetch.wants_shutdown or fetch.offset != self._log.high_watermark:
            return False
        registration = self._cluster.registrations[fetch.broker_id]
        if registration.state is not BrokerState.FENCED or fetch.broker_id in self._cluster.brokers:
            return False
        return (fetch.broker_id, fetch.broker_epoch) not in self._caught_up

    # --- brokers that stop

    async def _shut_down(self, fetch: MetadataFetch, cause: Cause) -> bool:
        """The controller moves leaders away from a broker; whether it may go. Fetches at the same time share one try. Raises ApiError."""
        key = fetch.broker_id, fetch.broker_epoch
        future = self._shutdowns.get(key)
        if future is None:
            future = self._shutdowns[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: self._shutdown_answered(key, done))
            self._put(events.BrokerShutdownWanted(*key, future), cause)
        return await asyncio.shield(future)

    def _shutdown_answered(self, key: tuple[int, int], answer: asyncio.Future[bool]) -> None:
        """A later fetch is another try. Where nobody waits any more, nobody but this looks at an error."""
        del self._shutdowns[key]
        if not answer.cancelled():
            answer.exception()

    def _has_stopped(self, fetch: MetadataFetch) -> bool:
        """Whether the broker went offline after its fetch had arrived."""
        registration = self._cluster.registrations.get(fetch.broker_id)
        return registration is not None and registration.epoch == fetch.broker_epoch

    # --- pace

    def _throttle(self, fetch: MetadataFetch, connection: Connection, *, is_heard: bool, has_place: bool) -> float:
        """Seconds by which the answer to a fetch is late. Fetches that are not of the broker that they name share one pace."""
        key = connection, fetch.broker_id if is_heard else NOBODY
        pace = self._paces.get(key)
        now = self._clock.monotonic()
        if pace is None:
            if len(self._paces) >= self._most_paces:
                self._paces = {each: its for each, its in self._paces.items() if each[0].is_open}
                self._most_paces = max(2 * len(self._paces), 64)
            pace = self._paces[key] = _Pace(now)
        if not has_place or fetch.controller_epoch != self._cluster.epoch:
            pace.offset, has_news = -1, False
        else:
            has_news = fetch.offset > pace.offset
            pace.offset = max(fetch.offset, pace.offset)
        return pace.delay(now, SHUTDOWN_COST if fetch.wants_shutdown else 0 if has_news else 1)

    # --- waiting

    async def _wait(self, offset: int, seconds: float) -> None:
        """Wait for the record with this offset, at most so long."""
        if seconds <= 0 or self._is_over:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = offset
        self._listen()
        timer = self._clock.call_later(seconds, _finish, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.pop(future, None)

    def _listen(self) -> None:
        if not self._is_listening:
            self._is_listening = True
            self._log.on_append(self._appended)

    def _appended(self) -> None:
        """Records were appended: answer who waits, not too soon after the last time."""
        left_s = self._answered_at + len(self._waiting) * WAKE_S_PER_FETCH - self._clock.monotonic()
        if left_s > 0:
            self._clock.call_later(left_s, self._answer_waiting)
        else:
            asyncio.get_running_loop().call_soon(self._answer_waiting)

    def _answer_waiting(self) -> None:
        self._answered_at = self._clock.monotonic()
        self._is_listening = False
        end = self._log.high_watermark
        for future, offset in self._waiting.items():
            if offset < end:
                _finish(future)
        if self._waiting:
            self._listen()


def _is_observer(fetch: MetadataFetch) -> bool:
    return fetch.broker_id == OBSERVER_ID and fetch.broker_epoch == OBSERVER_ID


def _offset(fetch: MetadataFetch) -> int:
    """Where a fetch reads: a broker that knows no controller epoch begins at 0."""
    return 0 if fetch.controller_epoch == NO_CONTROLLER_EPOCH else fetch.offset


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
