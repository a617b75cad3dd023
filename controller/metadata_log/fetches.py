"""MetadataFetch: a broker that registered with the controller shows that it is there, and reads the metadata log (controller 25.1).

A fetch is not an event. This is the only part of the controller that runs outside of the controller's task: in the task of the request.
That is safe because it only reads the cluster and the log, and changes only the session of the broker that fetches. What changes the
cluster becomes an event: a fenced broker has read the whole log (BrokerCaughtUp), or a broker wants to stop (BrokerShutdownWanted).

A fetch with broker id -1 and broker epoch -1 is from an observer, which reads the log and is not a broker. The broker epoch keeps out an
earlier registration, but it can be guessed. So a fetch counts as one of a broker only if it comes on the connection on which the broker
was heard last, or carries the secret with which it registered. A broker that registered without a secret may change its connection; see
`broker_sessions`.

Fetches that wait for records get their responses together, soon after records are appended. If records are appended in quick succession,
there is a pause between two rounds of responses, longer if more fetches wait, so that most of the time is left to the controller.

A broker may fetch without having read anything new, but not too often: then the responses on this connection are delayed, and say so
(ThrottleTimeMs). Other connections are not delayed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from klamm.controller.broker_sessions import BrokerSessions, Connection
from klamm.controller.cluster import Cluster
from klamm.controller.events import catalogue as events
from klamm.controller.events.catalogue import Event
from klamm.controller.events.causes import Cause
from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.values import LONGEST_SECRET, BrokerRegistration, BrokerState
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.clock import Clock

log = logging.getLogger("klamm.controller")

NOBODY = -2
"""Stands for a broker id if the connection does not belong to the broker that the request names."""

OBSERVER_ID = -1
"""Broker id and broker epoch of readers of the log that are not brokers."""

NO_CONTROLLER_EPOCH = -1
UNKNOWN = -1

MOST_BYTES = 2 << 20
"""Maximum size of the records in a response, because nothing else runs while they are encoded. The next fetch gets the rest."""

WAKE_S_PER_FETCH = 0.001
"""Pause between two rounds of responses, in seconds for each fetch that waits."""

FETCHES_AT_ONCE, FETCHES_PER_S = 100, 20
"""Fetches without news that a broker may send on a connection without delay; and how many more it may send after each second."""

SHUTDOWN_COST = 10
"""A fetch with WantShutDown counts as this many fetches, because the controller looks at all partitions of the broker."""


class MetadataFetch(NamedTuple):
    """A MetadataFetch request."""

    broker_id: int
    broker_epoch: int
    controller_epoch: int
    offset: int
    max_wait_ms: int
    max_bytes: int
    wants_shutdown: bool = False
    secret: bytes = b""


class MetadataFetched(NamedTuple):
    """A MetadataFetch response. Unknown values are -1."""

    error: ErrorCode
    may_go: bool = False
    """The result code: whether a broker that wants to stop may do so now."""
    state: int = UNKNOWN
    controller_epoch: int = UNKNOWN
    start_offset: int = UNKNOWN
    high_watermark: int = UNKNOWN
    records: bytes | None = None
    throttle_ms: int = 0


NOT_CONTROLLER = MetadataFetched(ErrorCode.NOT_CONTROLLER)


class _Pace:
    """How many fetches without news a broker may send on a connection: `left` at the time `at`. It has fetched up to `offset`."""

    __slots__ = ("at", "is_stranger", "left", "offset")

    def __init__(self, at: float) -> None:
        self.at = at
        self.is_stranger = False
        """Whether it was logged that this connection uses the id and the epoch of a broker that it does not belong to."""
        self.left = float(FETCHES_AT_ONCE)
        self.offset = -1

    def delay(self, now: float, cost: int) -> float:
        """Seconds to delay the response to a fetch that counts as `cost` fetches."""
        self.left = min(self.left + (now - self.at) * FETCHES_PER_S, FETCHES_AT_ONCE) - cost
        self.at = now
        return max(-self.left / FETCHES_PER_S, 0.0)


class MetadataFetches:
    """The fetches of a controller's term."""

    def __init__(
        self,
        cluster: Cluster,
        log: MetadataLog,
        sessions: BrokerSessions,
        clock: Clock,
        interval_s: float,
        put: Callable[[Event, Cause], None],
    ) -> None:
        """`interval_s`: heartbeat interval, which is also the longest that a fetch waits. `put` puts an event on the controller's queue."""
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
        """Offset that each waiting fetch waits for."""
        self._is_listening = False
        self._answered_at = float("-inf")
        self._is_over = False

    async def fetch(self, fetch: MetadataFetch, connection: Connection, cause: Cause) -> MetadataFetched:
        """Wait for the response to a fetch. The cases are in the order of the table in controller 25.1."""
        error = self._sender_error(fetch, connection)
        is_broker = not _is_observer(fetch)
        is_heard = error is None
        if error is None:
            if is_broker:
                self._sessions.heard(fetch.broker_id, connection)
            error = self._place_error(fetch)
        if error is ErrorCode.STALE_BROKER_EPOCH and fetch.broker_epoch == self._cluster.registrations[fetch.broker_id].epoch:
            self._warn(fetch, connection)
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
        if is_heard:  # the cluster may have changed while the fetch waited
            error = self._sender_error(fetch, connection)
            if error is ErrorCode.BROKER_ID_NOT_REGISTERED and self._has_stopped(fetch):
                error, may_go = None, True
            if error is None:
                error = self._place_error(fetch)
        return self._answer(fetch, error, throttle_s, may_go)

    def caught_up_handled(self, brokers: Iterable[tuple[int, int]]) -> None:
        """BrokerCaughtUp events of these brokers (id, epoch) were processed: their next fetches may cause new ones."""
        self._caught_up.difference_update(brokers)

    def close(self) -> None:
        """The term is over: all waiting fetches get NOT_CONTROLLER."""
        self._is_over = True
        for future in self._waiting:
            _finish(future)

    # --- the table of 25.1

    def _sender_error(self, fetch: MetadataFetch, connection: Connection) -> ErrorCode | None:
        """The error if the sender may not fetch. Such a fetch is not a heartbeat."""
        if self._is_over or not self._log.has_begun or fetch.controller_epoch > self._cluster.epoch:
            return ErrorCode.NOT_CONTROLLER
        if _is_observer(fetch):
            return None
        registration = self._cluster.registrations.get(fetch.broker_id)
        if registration is None or registration.state is BrokerState.OFFLINE:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        if fetch.broker_epoch == registration.epoch and self._is_from(fetch, registration, connection):
            return None
        return ErrorCode.STALE_BROKER_EPOCH

    def _is_from(self, fetch: MetadataFetch, registration: BrokerRegistration, connection: Connection) -> bool:
        """Whether a fetch with the epoch of this registration is from its broker."""
        if self._sessions.is_bound_to(fetch.broker_id, connection):
            return True
        if registration.secret_sha256:
            digest = hashlib.sha256(fetch.secret[:LONGEST_SECRET]).hexdigest()
            return hmac.compare_digest(digest.encode(), registration.secret_sha256.encode())
        return self._sessions.may_continue_on(fetch.broker_id, connection)

    def _place_error(self, fetch: MetadataFetch) -> ErrorCode | None:
        """The error if the epoch or the offset is wrong. Such a fetch is a heartbeat nevertheless."""
        if fetch.controller_epoch not in (NO_CONTROLLER_EPOCH, self._cluster.epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        if not self._log.start_offset <= _offset(fetch) <= self._log.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return None

    def _answer(self, fetch: MetadataFetch, error: ErrorCode | None, throttle_s: float, may_go: bool = False) -> MetadataFetched:
        """Make the response from the current state."""
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
        """Whether this fetch shows that a fenced broker has read the whole log, and no event reports that yet (RREG-7)."""
        if fetch.controller_epoch == NO_CONTROLLER_EPOCH or fetch.wants_shutdown or fetch.offset != self._log.high_watermark:
            return False
        registration = self._cluster.registrations[fetch.broker_id]
        if registration.state is not BrokerState.FENCED or fetch.broker_id in self._cluster.brokers:
            return False
        return (fetch.broker_id, fetch.broker_epoch) not in self._caught_up

    # --- brokers that stop

    async def _shut_down(self, fetch: MetadataFetch, cause: Cause) -> bool:
        """Ask the controller to move leaders away from a broker. Returns whether the broker may stop. Raises ApiError.

        Fetches that arrive before the result share it.
        """
        key = fetch.broker_id, fetch.broker_epoch
        future = self._shutdowns.get(key)
        if future is None:
            future = self._shutdowns[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: self._shutdown_answered(key, done))
            self._put(events.BrokerShutdownWanted(*key, future), cause)
        return await asyncio.shield(future)

    def _shutdown_answered(self, key: tuple[int, int], answer: asyncio.Future[bool]) -> None:
        """Forget the attempt, so that a later fetch makes a new one. Retrieves the error, because maybe nobody waits for it any more."""
        del self._shutdowns[key]
        if not answer.cancelled():
            answer.exception()

    def _has_stopped(self, fetch: MetadataFetch) -> bool:
        """Whether the broker went offline after its fetch had arrived."""
        registration = self._cluster.registrations.get(fetch.broker_id)
        return registration is not None and registration.epoch == fetch.broker_epoch

    # --- pace

    def _throttle(self, fetch: MetadataFetch, connection: Connection, *, is_heard: bool, has_place: bool) -> float:
        """Seconds to delay the response to a fetch. Fetches with a wrong broker id or epoch share one limit for each connection."""
        now = self._clock.monotonic()
        pace = self._pace(connection, fetch.broker_id if is_heard else NOBODY, now)
        if not has_place or fetch.controller_epoch != self._cluster.epoch:
            pace.offset, has_news = -1, False
        else:
            has_news = fetch.offset > pace.offset
            pace.offset = max(fetch.offset, pace.offset)
        return pace.delay(now, SHUTDOWN_COST if fetch.wants_shutdown else 0 if has_news else 1)

    def _pace(self, connection: Connection, broker_id: int, now: float) -> _Pace:
        """The pace of a broker, or of `NOBODY`, on a connection. Those of closed connections are dropped now and then."""
        pace = self._paces.get((connection, broker_id))
        if pace is None:
            if len(self._paces) >= self._most_paces:
                self._paces = {each: its for each, its in self._paces.items() if each[0].is_open}
                self._most_paces = max(2 * len(self._paces), 64)
            pace = self._paces[connection, broker_id] = _Pace(now)
        return pace

    def _warn(self, fetch: MetadataFetch, connection: Connection) -> None:
        """Log, once for each connection, that a fetch has the id and the epoch of a broker and is not from it."""
        pace = self._pace(connection, NOBODY, self._clock.monotonic())
        if not pace.is_stranger:
            pace.is_stranger = True
            log.warning(
                "a metadata fetch with id and epoch of broker %d from %s is refused: it is not from that broker",
                fetch.broker_id, connection.host,
            )

    # --- waiting

    async def _wait(self, offset: int, seconds: float) -> None:
        """Wait for the record with this offset, at most this many seconds."""
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
        """Records were appended: respond to the waiting fetches, but not too soon after the last time."""
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
    """The offset at which a fetch reads. A broker that knows no controller epoch begins at 0."""
    return 0 if fetch.controller_epoch == NO_CONTROLLER_EPOCH else fetch.offset


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
