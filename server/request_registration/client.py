"""The broker's side of RegisterBroker: it registers with the controller, then fetches the metadata log for ever (controller 25).

A fetch is also the heartbeat. Its response has the records that this broker has not applied yet. One task registers and fetches, one
request at a time, on one kept connection. After a failure it tries again, with a back-off that grows up to RETRY_MOST_S:

* no controller, no connection, connection lost, no response, NOT_CONTROLLER: it looks up the controller again;
* FENCED_LEADER_EPOCH, OFFSET_OUT_OF_RANGE: the log is another one, or begins later; the view starts again at the beginning of the log;
* STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED: the broker registers again, and keeps its offset in the log (RREG-9, RREG-21);
* DUPLICATE_BROKER_REGISTRATION: another broker has the id, or the controller still has the former registration; the broker tries again.

To stop, a broker fetches with WantShutDown until the controller lets it go (RREG-10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from klamm.broker.metadata_view import MetadataView
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import BrokerRegistration, BrokerState, StoreLost
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ErrorCode, RegistrationRefused, RemoteProtocolError
from klamm.protocol.exchanges.connections import ConnectionKind
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import Clock
from klamm.seams.value_class import dataclass
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.net.controller_requests import versions
from klamm.server.net.kept_connection import KeptConnection
from klamm.server.net.tap import BrokerTap
from klamm.server.request_registration.controller_finder import ControllerFinder
from klamm.server.request_registration.own_state import OwnState
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.requests import ZkError

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity

R = TypeVar("R")

log = logging.getLogger(__name__)

RETRY_LEAST_S, RETRY_MOST_S = 0.02, 1.0
"""Back-off after a failed request: the first one, and the maximum."""
SHUTDOWN_LEAST_S = 0.05
"""First pause after a fetch with WantShutDown that did not let the broker go; it grows up to RETRY_MOST_S."""
PATIENCE_S = 1.0
"""Failures that last longer than this are logged as warnings."""
LOOKS = 4
"""Reads of ZooKeeper within the time for which one read counts, while the controller does not respond."""
LEAST_WAIT_MS = 10
"""Minimum wait of a fetch without new records, even if the configs give less."""
MAX_BYTES = 1 << 20
GO_OFFLINE = 1
"""ResultCode of MetadataFetch: the broker may stop."""


class ControllerLost(ConnectionError):
    """The controller is not known, or the broker at the other end is not the controller."""


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """The configs of a broker that registers by request. Times are in milliseconds."""

    rack: str | None
    heartbeat_interval_ms: int
    session_timeout_ms: int
    first_registration_ms: int
    socket_timeout_ms: int
    zookeeper_timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> RegistrationOptions:
        get = config.get
        return cls(
            get("broker.rack"), get("broker.heartbeat.interval.ms"), get("broker.session.timeout.ms"),
            get("initial.broker.registration.timeout.ms"), get("controller.socket.timeout.ms"),
            get("zookeeper.session.timeout.ms"),
        )


class RegistrationClient:
    """Registers one broker and keeps `view` and `own` up to date. `endpoints` returns the endpoints to register."""

    def __init__(
        self,
        identity: BrokerIdentity,
        options: RegistrationOptions,
        endpoints: Callable[[], tuple[Endpoint, ...]],
        finder: ControllerFinder,
        stored: Callable[[], Awaitable[BrokerRegistration | None]],
        on_serving: Callable[[bool], None],
        tap: BrokerTap | None,
        clock: Clock,
        security: OutgoingSecurity | None = None,
        secret: bytes = b"",
    ) -> None:
        """`stored` reads this broker's registration from ZooKeeper. It may raise StoreLost, ZkError and Unreadable.

        `secret` is in every request, so that the controller knows the broker on any connection.
        """
        self.own = OwnState(identity, options.session_timeout_ms, on_serving, clock)
        self.view = MetadataView()
        """The state of the cluster according to the metadata log."""
        self._identity = identity
        self._options = options
        self._secret = secret
        self._endpoints = endpoints
        self._finder = finder
        self._stored = stored
        self._clock = clock
        self._connection = KeptConnection(
            "controller", ConnectionKind.TO_CONTROLLER, str(identity.broker_id), lambda: finder.endpoint, tap, clock, security=security
        )
        self._has_registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._must_register = True
        self._task: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        """Reads this broker's registration in ZooKeeper while the controller does not respond."""
        self._session_until = 0.0
        """The ZooKeeper session lasts at least until this time. Only known while this broker is the controller."""
        self._retry_s = RETRY_LEAST_S
        self._failing_since: float | None = None
        self._failure = ""
        """Why the last request failed; empty after a success."""
        self._said = ""
        """The failure that was logged as a warning."""

    @property
    def controller_endpoint(self) -> Endpoint | None:
        """The endpoint of the controller, None if it is not known."""
        return self._finder.endpoint

    # --- life

    async def start(self) -> None:
        """Start the task; returns when the controller has registered this broker for the first time. Raises RegistrationRefused."""
        loop = asyncio.get_running_loop()
        self._task, self._looking = loop.create_task(self._run()), loop.create_task(self._look())
        limit_s = self._options.first_registration_ms / 1000
        try:
            async with self._clock.timeout(limit_s):
                await self._has_registered
        except TimeoutError:
            reason = self._failure or "it did not respond"
            raise RegistrationRefused(
                f"broker {self._identity.broker_id} could not register with the controller within {limit_s:g} s: {reason}"
            ) from None

    def register_again(self) -> None:
        """Register the present endpoints at once, because they have changed."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._run_after(self._task))

    def session_expired(self) -> None:
        """The ZooKeeper session has expired. If this broker was the controller, the next controller fences it (RREG-13)."""
        if self._is_controller:
            self._finder.forget()
            self.own.session_expired()

    async def leave(self, limit_s: float, *, patient: bool) -> bool:
        """Request the controlled shutdown of RREG-10; returns whether the controller let this broker go within `limit_s`. The broker serves
        clients in the meantime.

        With `patient` false it does not wait for leaders that cannot be moved at once.
        """
        await self._end_task()
        if self.own.state is BrokerState.OFFLINE:
            return True
        wait_s = SHUTDOWN_LEAST_S
        try:
            async with self._clock.timeout(limit_s):
                while not await self._fetch_to_leave():
                    if not patient and self._failing_since is None:
                        return False
                    await self._clock.sleep(wait_s)
                    wait_s = min(2 * wait_s, RETRY_MOST_S)
        except TimeoutError:
            return False
        self.own.offline("it is stopping")
        return True

    async def close(self) -> None:
        """End at once."""
        await self._end_task()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self._connection.close()
        self.own.close()
        if not self._has_registered.cancel() and not self._has_registered.cancelled():
            self._has_registered.exception()  # retrieved, in case nobody waits for it any more

    async def _end_task(self) -> None:
        """Cancel the task. A request in flight is abandoned by closing the connection."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._connection.close()

    # --- the loop

    async def _run_after(self, former: asyncio.Task[None]) -> None:
        """Register again on a new connection, after the former, cancelled task has ended."""
        await asyncio.gather(former, return_exceptions=True)
        self._connection.close()
        self._must_register = True
        await self._run()

    async def _run(self) -> None:
        while True:
            try:
                if self._must_register:
                    await self._register()
                else:
                    await self._fetch(want_shut_down=False)
            except (OSError, RemoteProtocolError) as error:
                self._failed(error)
                await self._clock.sleep(self._retry_s)
            except Exception as fault:
                log.exception("broker %d: unexpected exception in its registration", self._identity.broker_id)
                self._failed(fault)
                await self._clock.sleep(RETRY_MOST_S)

    async def _look(self) -> None:
        """While the controller does not respond, extend the lease if ZooKeeper does not show this broker as fenced or silent (RREG-24)."""
        own, notice_s = self.own, self.own.notice_s
        while True:
            await self._clock.sleep(max(own.remaining_s - notice_s, notice_s / LOOKS))
            if not own.serves or own.remaining_s > notice_s or self._is_controller:
                continue
            sent = self._clock.monotonic()
            try:
                async with self._clock.timeout(notice_s):
                    own.stored(await self._stored(), sent)
            except (StoreLost, ZkError, Unreadable, TimeoutError) as error:
                log.debug("broker %d: cannot read its registration: %s", self._identity.broker_id, error)
            except Exception:
                log.exception("broker %d: unexpected exception while reading its registration", self._identity.broker_id)

    async def _register(self) -> None:
        """Send one RegisterBroker request. Raises OSError and RemoteProtocolError."""
        kind = messages.RegisterBrokerRequest
        rows = [
            kind.Endpoint(port=port, host=host, listener=listener, security_protocol=protocol)
            for listener, host, port, protocol in self._endpoints()
        ]
        request = kind(broker_id=self._identity.broker_id, rack_id=self._options.rack, endpoints=rows, secret=self._secret)
        if await self._finder.look() is None and self._finder.lacks and not self._has_registered.done():
            refusal = f"broker {self._identity.broker_id} cannot register: {self._finder.lacks}"
            self._has_registered.set_exception(RegistrationRefused(refusal))
        timeout_ms = min(self._options.socket_timeout_ms, max(self._options.session_timeout_ms, 1000))
        response = await self._exchange(ApiKey.REGISTER_BROKER, request, timeout_ms / 1000)
        code = _code(response)
        if code is ErrorCode.NONE:
            self._must_register = False
            self.own.registered(response.broker_epoch)
            self._finder.take_part()
            self._succeeded()
            if not self._has_registered.done():
                self._has_registered.set_result(None)
            return
        if code is ErrorCode.NOT_CONTROLLER:
            raise ControllerLost("it is not the controller")
        named = code.name if response.error_message is None else f"{code.name}, {response.error_message}"
        reason = f"the controller refuses to register broker {self._identity.broker_id}: {named}"
        if code in (ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED) and not self._has_registered.done():
            self._has_registered.set_exception(RegistrationRefused(reason))
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._finder.id_in_use()
        raise RemoteProtocolError(reason)

    async def _fetch(self, want_shut_down: bool) -> int:
        """Send one MetadataFetch request and process its response; returns the ResultCode. Raises OSError and RemoteProtocolError."""
        view, epoch = self.view, self._identity.broker_epoch
        max_wait_ms = self._max_wait_ms()
        request = messages.MetadataFetchRequest(
            broker_id=self._identity.broker_id, broker_epoch=epoch, controller_epoch=view.controller_epoch, fetch_offset=view.next_offset,
            max_wait_ms=max_wait_ms, max_bytes=MAX_BYTES, want_shut_down=want_shut_down, secret=self._secret,
        )
        await self._finder.look()  # before it is compared: this broker may have become the controller since its last fetch
        was_controller = self._is_controller
        if was_controller:
            await self._see_session()
        sent = self._clock.monotonic()
        timeout_ms = max_wait_ms + max(self._options.session_timeout_ms // 4, 500)
        response = await self._exchange(ApiKey.METADATA_FETCH, request, timeout_ms / 1000)
        if was_controller and not self._is_controller:
            raise ControllerLost("this broker was the controller, and its ZooKeeper session has expired")
        code = _code(response)
        match code:
            case ErrorCode.NONE:
                self._heard(sent)
                self._apply(response)
            case ErrorCode.FENCED_LEADER_EPOCH | ErrorCode.OFFSET_OUT_OF_RANGE:
                self._heard(sent)
                view.restart(response.controller_epoch, max(response.log_start_offset, 0))
            case ErrorCode.STALE_BROKER_EPOCH | ErrorCode.BROKER_ID_NOT_REGISTERED:
                self._must_register = True
                self.own.offline(f"the controller does not know epoch {epoch}: {code.name}")
            case ErrorCode.NOT_CONTROLLER:
                raise ControllerLost("it is not the controller")
            case _:
                needed = " (it needs CLUSTER_ACTION on the cluster)" if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else ""
                raise RemoteProtocolError(f"the controller responds to a fetch of the metadata log with {code.name}{needed}")
        self._succeeded()
        return int(response.result_code)

    @property
    def _is_controller(self) -> bool:
        """Whether this broker fetches from itself, because it is the controller."""
        return self._finder.controller_id == self._identity.broker_id

    def _heard(self, sent: float) -> None:
        if self._is_controller:
            self.own.own_heartbeat(sent, self._session_until)
        else:
            self.own.heartbeat(sent)

    async def _see_session(self) -> None:
        """Read from ZooKeeper. If it responds, the session lasts for its time-out, counted from the time of the request."""
        sent = self._clock.monotonic()
        try:
            async with self._clock.timeout(min(self._options.zookeeper_timeout_ms, self._options.session_timeout_ms) / 1000 / LOOKS):
                await self._stored()
        except Unreadable:
            pass
        except (StoreLost, ZkError, TimeoutError) as error:
            log.debug("broker %d, the controller, has no response from ZooKeeper: %s", self._identity.broker_id, error)
            return
        self._session_until = sent + self._options.zookeeper_timeout_ms / 1000

    def _max_wait_ms(self) -> int:
        """The heartbeat interval, or less if the lease would end before the next response."""
        options = self._options
        wait_ms = min(options.heartbeat_interval_ms, options.session_timeout_ms // 2)
        if self.own.serves:
            wait_ms = min(wait_ms, int(self.own.remaining_s * 500))
        return max(wait_ms, LEAST_WAIT_MS)

    def _apply(self, response: messages.MetadataFetchResponse) -> None:
        """Apply the records of a response. After an invalid record the log is read again from its start."""
        view = self.view
        try:
            view.apply(bytes(response.records or b""), response.controller_epoch, self.own.apply)
        except RemoteProtocolError:
            view.restart(response.controller_epoch, max(response.log_start_offset, 0))
            raise
        if view.next_offset >= response.high_watermark:
            self.own.caught_up(view.brokers.get(self._identity.broker_id), response.state)
        else:
            self.own.behind(response.state)

    async def _fetch_to_leave(self) -> bool:
        """Send one fetch with WantShutDown; returns whether this broker may stop."""
        try:
            result = await self._fetch(want_shut_down=True)
        except (OSError, RemoteProtocolError) as error:
            self._failed(error)
            return False
        return result == GO_OFFLINE or self.own.state is BrokerState.OFFLINE

    # --- requests

    async def _exchange(self, api_key: ApiKey, request: messages.Request[R], timeout_s: float) -> R:
        """The response of the controller. Raises OSError and RemoteProtocolError."""
        if await self._finder.look() is None:
            raise ControllerLost(self._finder.lacks or "it is not known")
        if await self._connection.connect(timeout_s) and api_key not in await versions(self._connection, timeout_s):
            self._connection.close()  # a broker without the API would close the connection, and log an error each time
            raise ControllerLost(f"it does not support {APIS[api_key].name}")
        payload, offset = await self._connection.exchange(api_key, 0, messages.encode(request, 0), timeout_s)
        response: R
        response, _ = messages.decode(f"{APIS[api_key].name}Response", 0, payload, offset)
        return response

    def _succeeded(self) -> None:
        self._retry_s = RETRY_LEAST_S
        if self._said:
            log.info("broker %d: the controller responds again", self._identity.broker_id)
        self._failing_since, self._failure, self._said = None, "", ""

    def _failed(self, error: Exception) -> None:
        """A request failed: increase the back-off, look up the controller again, and log a warning if failures continue."""
        now = self._clock.monotonic()
        reason = self._failure = str(error) or "no response in time"
        if not isinstance(error, ControllerLost):
            self._connection.close()
        self._finder.forget()
        self._retry_s = min(self._retry_s * 1.5, RETRY_MOST_S)
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > PATIENCE_S and reason != self._said:
            log.warning("broker %d: the controller: %s", self._identity.broker_id, reason)
            self._said = reason
        else:
            log.debug("broker %d: the controller: %s", self._identity.broker_id, reason)


def _code(response: messages.RegisterBrokerResponse | messages.MetadataFetchResponse) -> ErrorCode:
    """The error code of a response. Raises RemoteProtocolError if the code does not exist."""
    try:
        return ErrorCode(response.error_code)
    except ValueError:
        raise RemoteProtocolError(f"there is no error code {response.error_code}") from None
