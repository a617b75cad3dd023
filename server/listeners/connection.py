"""The connection of one client: reads requests and writes responses, in the order of the requests.

Requests of one connection are handled one after the other, as on an Apache Kafka broker. If the handlers do not wait, everything happens
inside `data_received`, and the responses to all requests of one read are sent in one write. If a handler has to wait, the frames that were
read are kept, the socket is not read, and the connection continues when that response is ready. Requests of an API that may be pipelined
are an exception: when one has taken effect and only its response is still to come, the next request of the same API is read and begun, up
to a limit. So requests take effect in their order, whatever their handlers wait for, and the responses are sent in order.
If the client does not read its responses and the buffer of the transport exceeds its limit, nothing more is read or handled
(`flow_control.py`). So a connection holds at most the requests of one read, one unfinished frame, the buffer of the transport and the
responses that are being made. While the clients of the broker together have too much unread, responses wait in files instead of the buffer
(`unread_responses.py`).

When a client has closed its half of the connection, every whole request that it sent still takes effect, and the responses are sent.
Then the connection is closed. It looks the same to the broker when a client has closed all of it, until a response cannot be sent: the
requests that were not begun by then are dropped, as by a Kafka broker.

While no request is in progress, a repeated request whose response is still valid is answered from the response cache (`ResponseCache`):
the correlation id is put between two pieces of the cached frame.

Bad input closes this connection, with one log line; other connections are not affected. Requests that came before the bad one get their
responses first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, cast

from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.connections import ConnectionKind, ConnectionSink
from klamm.protocol.framing import BadLength
from klamm.seams.clock import Clock, Timer
from klamm.server.listeners.flow_control import CLOSED, HANDLING, HELD, PAUSED, THROTTLED, FlowControl
from klamm.server.listeners.response_writer import ResponseWriter
from klamm.server.listeners.unread_responses import UnreadResponses
from klamm.server.net.tap import BrokerTap, writing_to
from klamm.server.requests.context import CloseConnection, ClosedOnPurpose
from klamm.server.requests.delayed_response import DelayedResponse
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.requests.peer import Peer, no_request_waits
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.requests.unsupported_apis import NotOffered
from klamm.server.security.authorizer import ANONYMOUS, Principal

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from klamm.server.listeners.authenticator import SaslAuthenticator
    from klamm.server.listeners.listener_security import ListenerSecurity

WRITE_BYTES = 256 << 10
"""Collected responses are written when they have this size together, or earlier."""

TURN_REQUESTS = 500
"""Number of requests of one connection that are handled before others get a turn of the event loop."""
PIPELINED_REQUESTS = 64
"""Maximum number of pipelined requests in progress on one connection."""

BUFFERED_BYTES = 256 << 10
"""A client with more unread responses than this is not served until it reads."""


class ConnectionOwner(Protocol):
    """What a connection needs from its listener; see `Listener`."""

    name: str
    dispatcher: Dispatcher
    """The dispatcher of new connections."""
    max_request_bytes: int
    tap: BrokerTap | None
    clock: Clock
    security: ListenerSecurity | None
    """None for PLAINTEXT."""
    unread: UnreadResponses
    """Of all connections of the broker."""

    def connection_id(self, peer: str) -> str:
        """The id of a new connection from `peer`."""

    def responses_of(self, principal: Principal) -> ResponseCache:
        """The cached responses for the connections of this principal."""

    def opened(self, connection: ClientConnection) -> None:
        """The connection was opened."""

    def lost(self, connection: ClientConnection) -> None:
        """The connection was lost or closed."""

    def begun(self, request: asyncio.Task[bytes | None]) -> None:
        """A request has to wait. Its task may last longer than the connection."""

    def log_closing(self, connection: ClientConnection, reason: str) -> None:
        """Log that the connection is closed because of what its client did."""


class ClientConnection(asyncio.Protocol):
    """One connection of a listener. `last_used` is the time (of the clock) when bytes were last received or sent.

    Its requests go to its own dispatcher. At first this is the dispatcher of the listener; `dispatch_to` changes it, for example when a
    broker is no longer fenced, or when a client has authenticated.
    """

    __slots__ = (
        "_api_key", "_authenticator", "_closing", "_due", "_flow", "_has_effect", "_is_half_closed", "_listener", "_loop",
        "_metadata", "_mute_timer", "_output", "_reason", "_responses", "_tap", "_time", "_transport", "_write", "dispatcher",
        "last_used", "name", "peer",
    )

    def __init__(self, listener: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self._time = listener.clock.monotonic
        self._responses = listener.responses_of(ANONYMOUS)
        self.dispatcher: Dispatcher | SaslAuthenticator = listener.dispatcher
        self._authenticator: SaslAuthenticator | None = None
        """On a listener with SASL, until the client is authenticated; with a lifetime of its session also afterwards."""
        self._metadata = listener.dispatcher.metadata
        self._transport: asyncio.Transport | None = None
        self._tap: ConnectionSink | None = None
        self._closing = False
        self._is_half_closed = False
        """Whether the client has said that it sends nothing more."""
        self._reason: str | None = None
        self._due: deque[bytes | Exception | asyncio.Future[bytes | None]] = deque()
        """Responses in the order of their requests. The first one is still being made."""
        self._has_effect = True
        """Whether all requests that were begun have taken effect. If not, it is the last one that has not; nothing is begun behind it."""
        self._api_key = b""
        self._mute_timer: Timer | None = None
        self.last_used = self._time()
        self.name = "?"
        self.peer: Peer

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        send: Callable[[bytes], None] = self._transport.write
        self._flow = FlowControl(self._listener.max_request_bytes, self._transport)
        self._transport.set_write_buffer_limits(high=BUFFERED_BYTES)
        address = transport.get_extra_info("peername") or ("?", 0)
        host = address[0].removeprefix("::ffff:")  # an IPv4 client on a dual-stack socket
        self.name = f"{host}:{address[1]}"
        connection_id = self._listener.connection_id(self.name)
        self.peer = Peer(self._listener.name, host, self._responses, connection=connection_id)
        self.peer.unread = self._listener.unread
        self.peer.mute = self._mute
        self.peer.took_effect = self._took_effect
        security = self._listener.security
        if self._listener.tap is not None:
            has_sasl = security is not None and security.sasl is not None
            self._tap = self._listener.tap.connection(
                ConnectionKind.ACCEPTED, self.name, connection_id, self._listener.name, has_sasl=has_sasl
            )
            send = writing_to(self._tap, send)
        self._output = ResponseWriter(
            self._transport, send, self._tap, self._flow, self._listener.unread, self._loop, self._give_up, self._sent_file
        )
        self._write = self._output.write
        if security is not None:
            self._secure(security)
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        # a request in progress continues: its effect on the cluster must not depend on a client that waits for the response;
        # a request that only reads may end
        self.peer.is_open = False
        if self.peer.on_lost is not None:
            self.peer.on_lost()
        self.peer.mute = None
        self.peer.took_effect = no_request_waits
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._transport = None
        self._output.end()
        self._flow.stop(CLOSED)
        if self._tap is not None:
            reason = self._reason if self._reason is not None or exc is None else str(exc)
            self._tap.closed("us" if self._closing else "peer", reason)
        self._listener.lost(self)

    def data_received(self, data: bytes) -> None:
        self.last_used = self._time()
        if self._tap is not None:
            self._tap.received(data)
        flow = self._flow
        if flow.between_frames:
            done = self._respond_from_cache(data)
            if done == len(data):
                return
            data = data[done:]
        flow.feed(data)
        if not flow.stops:
            if self._due:
                self._pipeline()
            else:
                self._serve([])

    def eof_received(self) -> bool:
        """Whether the transport stays open, because requests of the client are still to be handled, or their responses to be sent."""
        self._is_half_closed = True
        return self._output.is_in_file or (not self._flow.stops & CLOSED and bool(self._due or self._flow.waiting))

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        self.last_used = self._time()
        was_in_file = self._output.is_in_file
        self._output.resume()
        if not was_in_file and not self._flow.stops:
            self._go_on()

    # --- called by the listener

    @property
    def busy(self) -> bool:
        """Whether a request is being handled whose client is not idle while it waits: one that has closed its half may be gone."""
        return bool(self._due) and not self._is_half_closed

    def dispatch_to(self, dispatcher: Dispatcher) -> None:
        """Give all later requests of this connection to this dispatcher; those of a client that has to authenticate, afterwards."""
        if self._authenticator is None:
            self.dispatcher = dispatcher
        else:
            self._authenticator.target = dispatcher

    def identify(self, principal: Principal) -> None:
        """The client is this principal from its next request on. It does not get responses that were cached for another principal."""
        self.peer.principal = principal
        self.peer.responses = self._responses = self._listener.responses_of(principal)

    def _secure(self, security: ListenerSecurity) -> None:
        """With SASL give requests to an authenticator first. It sees each of them: responses are not taken from the cache.

        With TLS alone the certificate of the client says who it is.
        """
        assert self._transport is not None
        if security.sasl is None:
            try:
                principal = security.principal_of(self._transport.get_extra_info("peercert"))
            except ValueError as problem:
                self._refuse(problem)
                return
            if principal != ANONYMOUS:
                self.authenticated(principal, "TLS", has_lifetime=False)
            return
        self._authenticator = self.dispatcher = security.authenticator(self._listener.dispatcher, self, self._listener.clock)
        self._responses = ResponseCache()
        self._flow.limit(self._authenticator.max_receive_bytes)

    def authenticated(self, principal: Principal, mechanism: str, *, has_lifetime: bool, by_token: bool = False) -> None:
        """The client has authenticated as this principal; see `AuthenticatedConnection`."""
        self.identify(principal)
        self.peer.is_by_token = by_token
        self._flow.limit(self._listener.max_request_bytes)
        if has_lifetime:
            self._responses = ResponseCache()  # each request must come to the authenticator
        elif self._authenticator is not None:
            self.dispatcher, self._authenticator = self._authenticator.target, None
        if self._tap is not None:
            self._tap.authenticated(str(principal), mechanism)

    def hold(self) -> None:
        """Serve nothing until `admit`: there are too many connections, or they come too fast."""
        self._flow.stop(HELD)
        self._loop.call_soon(self._flow.repeat_pause)  # uvloop begins to read after `connection_made`, even if that paused it

    def admit(self) -> None:
        """The opposite of `hold`."""
        self._flow.allow(HELD)
        if not self._flow.stops:
            self._go_on()

    def pause(self) -> None:
        """Serve nothing until `resume`: the broker is paused."""
        self._flow.stop(PAUSED)
        self._loop.call_soon(self._flow.repeat_pause)

    def resume(self) -> None:
        """The opposite of `pause`."""
        self._flow.allow(PAUSED)
        if not self._flow.stops:
            self._go_on()

    def _mute(self, seconds: float) -> None:
        """Serve nothing for this time, but send the responses that are being made: the client is above a quota (KIP-219)."""
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._flow.stop(THROTTLED)
        self._mute_timer = self._listener.clock.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        self._flow.allow(THROTTLED)
        if not self._flow.stops:
            self._go_on()

    def close(self) -> None:
        """Close after the written bytes have been sent."""
        self._closing = True
        self._close()

    def _close(self) -> None:
        self._flow.stop(CLOSED)
        if self._transport is not None and not self._output.is_in_file:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._flow.stop(CLOSED)
        if self._transport is not None:
            self._transport.abort()

    # --- requests and responses

    def _respond_from_cache(self, data: bytes) -> int:
        """Respond to the requests at the start of `data` whose responses are cached; returns the size of these requests in bytes."""
        responses = self._responses
        if responses.generation != self._metadata.generation:
            return 0
        by_frame = responses.by_frame
        out: list[bytes] = []
        position = size = 0
        while (found := by_frame.get(data[position : position + 8])) is not None:
            length, known = found
            kept = known.get(data[position + 12 : position + length])
            if kept is None:
                break
            head, tail = kept
            out += (head, data[position + 8 : position + 12], tail)
            position += length
            size += len(tail)
            if size >= WRITE_BYTES:
                self._write(out)
                out = []
                size = 0
                if self._flow.stops:
                    break
        if out:
            self._write(out)
        return position

    def _go_on(self) -> None:
        """Handle the frames that may be handled now."""
        if self._due:
            self._pipeline()
        else:
            self._serve([])

    def _serve(self, out: list[bytes]) -> None:
        """Write the responses in `out`, then handle frames in order until there is a reason to stop. Only called if no response is due."""
        begin = self.dispatcher.begin
        flow = self._flow
        size, left = 0, TURN_REQUESTS
        try:
            while (payload := flow.next()) is not None:
                response = begin(self.peer, payload, flow)
                if isinstance(response, bytes):
                    out.append(response)
                    size += len(response)
                    if size >= WRITE_BYTES:
                        self._write(out)
                        out = []
                        size = 0
                    response = None
                left -= 1
                if response is None and not left:
                    response, payload = asyncio.sleep(0), b""  # others get a turn
                if response is not None:
                    self._write(out)
                    out = []
                    self._api_key = payload[:2]
                    self._wait_for(response)
                    self._pipeline()
                    break
        except NotOffered as error:  # already logged
            self._write(out)
            self._reason = str(error)
            self.close()
        except (RemoteProtocolError, CloseConnection) as error:
            self._write(out)
            self._refuse(error)
        else:
            self._write(out)
            if self._is_half_closed and not self._due and not flow.stops:
                self._close()

    def _wait_for(self, response: Coroutine[Any, Any, bytes | None] | DelayedResponse) -> None:
        """Make this response the last one that is due."""
        self._has_effect = isinstance(response, DelayedResponse)
        task = self._loop.create_task(response.pending if isinstance(response, DelayedResponse) else response)
        self._listener.begun(task)
        self._due.append(task)
        task.add_done_callback(self._completed)

    def _took_effect(self) -> None:
        """The last request that was begun has taken effect."""
        self._has_effect = True
        if self._due and not self._flow.stops & CLOSED:
            self._flow.allow(HANDLING)
            self._pipeline()

    def _pipeline(self) -> None:
        """Begin the next requests that may be pipelined with those that already wait."""
        dispatcher, flow, due, api_key = self.dispatcher, self._flow, self._due, self._api_key
        while not flow.stops and (payload := flow.peek()) is not None:
            if len(due) >= PIPELINED_REQUESTS or not self._has_effect or not dispatcher.may_pipeline(api_key, payload):
                flow.stop(HANDLING)
                return
            flow.drop()
            try:
                response = dispatcher.begin(self.peer, payload, flow)
            except (RemoteProtocolError, CloseConnection) as error:
                due.append(error)
                self._has_effect = False  # and never will have
                flow.stop(HANDLING)
                return
            if isinstance(response, bytes):
                due.append(response)
            elif response is not None:
                self._wait_for(response)
        if not self._has_effect or not dispatcher.is_pipelined(api_key):
            flow.stop(HANDLING)
        else:
            flow.read_on()

    def _completed(self, request: asyncio.Future[bytes | None]) -> None:
        """Send the responses that are ready, up to the first that is not; then continue with the frames that came in the meantime."""
        due = self._due
        goes_on = not self._has_effect and bool(due) and due[-1] is request and not isinstance(_outcome(request), Exception)
        if goes_on:
            self._has_effect = True
        out: list[bytes] = []
        self.last_used = self._time()
        while due:
            first = due[0]
            if isinstance(first, asyncio.Future) and not first.done():
                break
            outcome = _outcome(first) if isinstance(first, asyncio.Future) else first
            due.popleft()
            if isinstance(outcome, bytes):
                out.append(outcome)
            elif outcome is not None:
                self._write(out)
                if not self._flow.stops & CLOSED:
                    self._refuse(outcome)
                return
        if self._flow.stops & CLOSED:
            return
        if not due:
            self._has_effect = True
            self._flow.allow(HANDLING)
            self._serve(out)
        elif out or goes_on:
            self._write(out)
            self._flow.allow(HANDLING)
            self._pipeline()

    def _sent_file(self) -> None:
        if self._closing and self._transport is not None:
            self._transport.close()
        elif not self._flow.stops:
            self._go_on()

    def _give_up(self, reason: str) -> None:
        """Close at once, because what the client has to read cannot be kept."""
        self._reason = reason
        self._listener.log_closing(self, reason)
        self.abort()

    def _refuse(self, error: Exception) -> None:
        if isinstance(error, BadLength) and self._authenticator is not None:
            self._wait_for(self._authenticator.close_later(str(error)))
            return
        if isinstance(error, CloseConnection) and error.last and self._transport is not None:
            self._write([error.last])
        self._reason = str(error)
        if isinstance(error, ClosedOnPurpose):
            log.debug("closing connection from %s: %s", self.name, self._reason)
        else:
            self._listener.log_closing(self, self._reason)
        self.close()


def _outcome(response: asyncio.Future[bytes | None]) -> bytes | Exception | None:
    """The bytes of a response, None if the request gets no response, or the reason why the connection is closed."""
    if response.cancelled():
        return CloseConnection("the broker is stopping")
    error = response.exception()
    if error is None:
        return response.result()
    if isinstance(error, Exception):
        return error
    raise error
