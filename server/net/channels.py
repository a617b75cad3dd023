"""The controller's channels to the brokers: each broker has one FIFO queue and one connection with at most one request in flight.

A request that cannot be delivered is sent again every 100 ms, with a new correlation id, until it has a response or the broker is removed.
For the controller a broker exists as long as it is registered. So a request whose response was lost arrives twice. After two seconds of
failures the retries are a second apart. Kafka continues every 100 ms, but a registration can name the port of a server that is not a
broker. The client id is the controller's broker id; each channel counts its correlation ids from 0; ApiVersions is not sent. A connection
is opened when there is something to send. Everything happens in callbacks of the event loop, without a task for each broker. Source:
controller 13.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.connections import Cause, ConnectionKind, ControllerEvent
from klamm.seams.clock import SYSTEM_CLOCK, Clock, Timer
from klamm.server.net.log_limit import LimitedLog
from klamm.server.net.outgoing_connections import OutgoingConnection, dial
from klamm.server.net.tap import BrokerTap

if TYPE_CHECKING:
    from klamm.controller.propagation.batch import BrokerResponse
    from klamm.server.security.outgoing_security import OutgoingSecurity

log = logging.getLogger(__name__)

RETRY_S = 0.1
QUICK_TRIES = 20
SLOW_RETRY_S = 1.0
LOG_INTERVAL_S = 30.0

OnResponse = Callable[["BrokerResponse"], None]


class _QueuedRequest(NamedTuple):
    api_key: int
    version: int
    body: bytes
    on_response: OnResponse | None
    ignorable: Callable[[bytes, int], bool] | None = None
    cause: Cause | None = None
    since_s: float = 0.0
    """When it was queued, where somebody wants to know."""


class _Channel:
    """Queue and connection of one broker. `_queue[0]` is the request in flight while `_sent` is true."""

    def __init__(
        self, client_id: str, broker_id: int, host: str, port: int, timeout_s: float, tap: BrokerTap | None, clock: Clock,
        queued: Callable[[int, float], None] | None, security: OutgoingSecurity | None,
    ) -> None:
        self._security = security
        self.host = host
        self.port = port
        self._client_id = client_id
        self._broker_id = broker_id
        self._name = f"broker {broker_id} at {host}:{port}"
        self._timeout_s = timeout_s
        self._tap = tap
        self._clock = clock
        self._queued = queued
        self._queue: deque[_QueuedRequest] = deque()
        self._correlation_id = -1
        self._connection: OutgoingConnection | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._sent = False
        self._closed = False
        self._failures = 0
        self._complained = False
        self._limited_log = LimitedLog(log, self._name, 1, LOG_INTERVAL_S, clock)

    @property
    def is_busy(self) -> bool:
        return self._sent or self._dialing is not None

    @property
    def waiting(self) -> int:
        """Requests that were not sent yet."""
        return len(self._queue) - self._sent

    def send(self, request: _QueuedRequest) -> None:
        self._queue.append(request if self._queued is None else request._replace(since_s=self._clock.monotonic()))
        if not self._sent:
            self._advance()

    def close(self) -> None:
        self._closed = True
        self._limited_log.end_period()
        self._queue.clear()
        self._hang_up()
        if self._dialing is not None:
            self._dialing.cancel()
            self._dialing = None

    def _advance(self) -> None:
        """Send the first request, or open the connection for it. Does nothing if the channel is connecting, or a timer runs."""
        if not self._queue or self._closed or self._timer is not None or self._dialing is not None:
            return
        if self._connection is not None and self._connection.is_due(self._clock.monotonic()):
            self._hang_up()
        if self._connection is None:
            self._dialing = asyncio.get_running_loop().create_task(self._dial())
            return
        request = self._queue[0]
        self._correlation_id = messages.id_after(self._correlation_id)
        frame = messages.encode_request(request.api_key, request.version, self._correlation_id, self._client_id, request.body)
        self._sent = True
        if self._queued is not None and not self._failures:
            self._queued(self._broker_id, self._clock.monotonic() - request.since_s)
        self._timer = self._clock.call_later(self._timeout_s, self._no_response)
        self._connection.send(frame, request.cause)

    async def _dial(self) -> None:
        tap = None
        if self._tap is not None:
            tap = partial(self._tap.connection, ConnectionKind.CHANNEL, f"{self.host}:{self.port}", peer_id=self._broker_id)
        try:
            connection = await dial(
                self.host, self.port, self._on_payload, self._on_lost, self._timeout_s, tap, self._clock, self._security, self._client_id
            )
        except OSError as error:
            self._dialing = None
            self._retry_later(f"cannot connect: {error}")
            return
        except Exception as fault:
            log.exception("unexpected exception while connecting to %s", self._name)
            self._dialing = None
            self._retry_later(f"cannot connect: {fault}")
            return
        self._dialing = None
        if self._closed:
            connection.close()
            return
        self._connection = connection
        self._advance()

    def _on_payload(self, payload: bytes) -> None:
        if not self._sent:
            raise RemoteProtocolError("a response without a request")
        request = self._queue[0]
        correlation_id, offset = messages.decode_response_header(request.api_key, request.version, payload)
        if correlation_id != self._correlation_id:
            raise RemoteProtocolError(f"response to request {correlation_id} instead of {self._correlation_id}")
        ignored = request.ignorable is not None and request.ignorable(payload, offset)
        response: BrokerResponse | None = None
        if not ignored:
            response, _ = messages.decode(f"{messages.APIS[request.api_key].name}Response", request.version, payload, offset)
        self._queue.popleft()
        self._sent = False
        self._failures = 0
        if self._complained:
            log.info("%s responds again", self._name)
            self._complained = False
        self._stop_timer()
        self._advance()
        if request.on_response is not None and response is not None:
            try:
                request.on_response(response)
            except Exception:  # an exception of a callback must not stop the requests that follow
                log.exception("cannot handle the response of %s", self._name)

    def _on_lost(self, reason: Exception | None) -> None:
        self._connection = None
        if self._sent:
            self._retry_later(f"connection lost: {reason or 'closed by the peer'}")

    def _no_response(self) -> None:
        self._timer = None
        self._retry_later(f"no response within {self._timeout_s:g} s")

    def _retry_later(self, why: str) -> None:
        self._hang_up()
        if self._closed:
            return
        self._failures += 1
        # not logged after the first failure: the broker is probably stopping, or is back very soon
        if self._failures > 1 and self._limited_log.warning(
            "%s: %s; %d attempts failed, %d requests are waiting", self._name, why, self._failures, len(self._queue)
        ):
            self._complained = True
        retry_s = RETRY_S if self._failures <= QUICK_TRIES else SLOW_RETRY_S
        self._timer = self._clock.call_later(retry_s, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._advance()

    def _hang_up(self) -> None:
        self._sent = False
        self._stop_timer()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Channels:
    """The channels of one controller. `timeout_s` limits a connection attempt and the wait for a response (controller.socket.timeout.ms).
    """

    def __init__(
        self, own_id: int, timeout_s: float = 30.0, tap: BrokerTap | None = None, clock: Clock = SYSTEM_CLOCK,
        queued: Callable[[int, float], None] | None = None, security: OutgoingSecurity | None = None,
    ) -> None:
        """`queued` gets the broker and the seconds that a request waited for its turn, when it is sent for the first time. `security` is
        None for PLAINTEXT.
        """
        self._security = security
        self._queued = queued
        self._client_id = str(own_id)
        self._timeout_s = timeout_s
        self._tap = tap
        self._clock = clock
        self._channels: dict[int, _Channel] = {}

    @property
    def broker_ids(self) -> frozenset[int]:
        return frozenset(self._channels)

    def add_broker(self, broker_id: int, host: str, port: int) -> None:
        """Start a channel. An existing one is replaced, and its queued requests are dropped."""
        self.remove_broker(broker_id)
        self._channels[broker_id] = _Channel(
            self._client_id, broker_id, host, port, self._timeout_s, self._tap, self._clock, self._queued, self._security
        )

    def queue_sizes(self) -> dict[int, int]:
        """By broker: requests that wait for their turn."""
        return {broker_id: channel.waiting for broker_id, channel in self._channels.items()}

    def remove_broker(self, broker_id: int) -> None:
        """Close a channel and drop its queued requests. Does nothing for an unknown id."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def send(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        body: bytes,
        on_response: OnResponse | None = None,
        ignorable: Callable[[bytes, int], bool] | None = None,
        event: int | None = None,
        batch: int | None = None,
    ) -> None:
        """Queue one encoded request. Does nothing if the broker has no channel.

        `on_response` gets the decoded response. `ignorable` gets the bytes of the response (payload, offset of the body); if it returns
        True, the response is not decoded and `on_response` not called. `event` and `batch` are the numbers of the controller's event and of
        its batch of requests, for a tap.
        """
        channel = self._channels.get(broker_id)
        if channel is None:
            log.debug("no channel to broker %d: a request of API %d is dropped", broker_id, api_key)
            return
        cause = None if self._tap is None or event is None else ControllerEvent(event, batch)
        channel.send(_QueuedRequest(api_key, version, body, on_response, ignorable, cause))

    @property
    def are_idle(self) -> bool:
        """Whether no connection is being opened and no request waits for its response."""
        return not any(channel.is_busy for channel in self._channels.values())

    def close(self) -> None:
        """Close all channels. New ones may be added afterwards, in the next term of this controller."""
        for broker_id in list(self._channels):
            self.remove_broker(broker_id)
