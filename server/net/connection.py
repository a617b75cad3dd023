"""The connection of one client: requests in, responses out, in the order of the requests.

Requests of one connection are handled one after the other, as on an Apache Kafka broker. As long as handlers do not wait, everything
happens inside `data_received` and all responses of one read leave in one write. When a handler has to wait, the frames read so far
are kept, the socket is not read any more, and the rest goes on when that response is there. Requests of an API that may be pipelined are an
exception: while they wait, the next ones of the same API are read and begun, up to a limit, and their responses leave in order. When the
client does not read its responses and the transport's buffer is over its limit, nothing more is read or handled (`flow_control.py`). So a
connection holds at most one read's worth of requests, one unfinished frame, the transport's buffer and the responses in the making.

Repeated requests whose responses are still valid get the bytes of the response cache (`ResponseCache`) while no request is
in progress: the correlation id is put between two pieces of the kept frame.

Whatever is wrong with the input closes this connection with one log line and touches no other. Requests that came before the bad
one get their responses first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from klamm.protocol.clock import Clock
from klamm.protocol.errors import RemoteProtocolError
from klamm.server.net.flow_control import CLOSED, HANDLING, HELD, UNREAD, FlowControl
from klamm.server.net.tap import BrokerTap, ConnectionKind, ConnectionSink, writing_to
from klamm.server.requests.context import CloseConnection
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.requests.not_offered import NotOffered
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.security.authorizer import ANONYMOUS, Principal

WRITE_BYTES = 256 << 10
"""Responses are given to the transport at the latest when they have this size together."""

PIPELINED_REQUESTS = 64
"""The most pipelined requests of a connection that are under way at a time."""

BUFFERED_BYTES = 1 << 20
"""A client that lets more than this wait for it is not served until it reads."""


class ConnectionOwner(Protocol):
    """What a connection needs of its listener; see `Listener`."""

    name: str
    dispatcher: Dispatcher
    """Of new connections."""
    max_request_bytes: int
    tap: BrokerTap | None
    clock: Clock

    def connection_id(self, peer: str) -> str:
        """The id of a new connection from `peer`."""

    def responses_of(self, principal: Principal) -> ResponseCache:
        """The cached responses for the connections of this principal."""

    def opened(self, connection: ClientConnection) -> None:
        """The connection is there."""

    def lost(self, connection: ClientConnection) -> None:
        """The connection is gone."""

    def begun(self, request: asyncio.Task[bytes | None]) -> None:
        """A request has to wait; its task outlives the connection."""

    def log_closing(self, connection: ClientConnection, reason: str) -> None:
        """The connection is closed for what its client did."""


class ClientConnection(asyncio.Protocol):
    """One connection of a listener. `last_used` is the clock's time of the last bytes that came or went.

    Its requests go to a dispatcher of its own, which is that of the listener until `dispatch_to`: before a client has authenticated, or
    while a broker is fenced, another one has them.
    """

    __slots__ = (
        "_api_key",
        "_closing",
        "_due",
        "_flow",
        "_listener",
        "_loop",
        "_metadata",
        "_reason",
        "_responses",
        "_send",
        "_tap",
        "_time",
        "_transport",
        "dispatcher",
        "last_used",
        "name",
        "peer",
    )

    def __init__(self, listener: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self._time = listener.clock.monotonic
        self._responses = listener.responses_of(ANONYMOUS)
        self.dispatcher = listener.dispatcher
        self._metadata = listener.dispatcher.metadata
        self._transport: asyncio.Transport | None = None
        self._tap: ConnectionSink | None = None
        self._closing = False
        self._reason: str | None = None
        self._due: deque[bytes | Exception | asyncio.Future[bytes | None]] = deque()
        """Responses in the order of their requests, the first of which is not there yet."""
        self._api_key = b""
        self.last_used = self._time()
        self.name = "?"
        self.peer: Peer

    # --- what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send: Callable[[bytes], None] = self._transport.write
        self._flow = FlowControl(self._listener.max_request_bytes, self._transport)
        self._transport.set_write_buffer_limits(high=BUFFERED_BYTES)
        address = transport.get_extra_info("peername") or ("?", 0)
        host = address[0].removeprefix("::ffff:")  # IPv4 that came in through a socket for both
        self.name = f"{host}:{address[1]}"
        connection_id = self._listener.connection_id(self.name)
        self.peer = Peer(self._listener.name, host, self._responses, connection=connection_id)
        if self._listener.tap is not None:
            self._tap = self._listener.tap.connection(ConnectionKind.ACCEPTED, self.name, connection_id, self._listener.name)
            self._send = writing_to(self._tap, self._transport.write)
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        # a request that is being handled goes on: what it does to the cluster does not depend on somebody waiting for the response;
        # one that only reads may end
        self.peer.is_open = False
        if self.peer.on_lost is not None:
            self.peer.on_lost()
        self._transport = None
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

    def pause_writing(self) -> None:
        self._flow.stop(UNREAD)

    def resume_writing(self) -> None:
        self.last_used = self._time()
        self._flow.allow(UNREAD)
        if not self._flow.stops:
            self._go_on()

    # --- what the listener wants

    @property
    def busy(self) -> bool:
        """Whether a request is being handled."""
        return bool(self._due)

    def dispatch_to(self, dispatcher: Dispatcher) -> None:
        """Give the further requests of this connection to another dispatcher."""
        self.dispatcher = dispatcher
        self.peer.forget_repeated()

    def identify(self, principal: Principal) -> None:
        """The client is this principal from its next request on; it gets no response that was cached for another one."""
        self.peer.principal = principal
        self.peer.responses = self._responses = self._listener.responses_of(principal)
        self.peer.forget_repeated()

    def hold(self) -> None:
        """Serve nothing until `admit`: this connection is one too many for now."""
        self._flow.stop(HELD)
        self._loop.call_soon(self._flow.repeat_pause)  # uvloop begins to read after `connection_made`, whatever was said there

    def admit(self) -> None:
        """The opposite of `hold`."""
        self._flow.allow(HELD)
        if not self._flow.stops:
            self._go_on()

    def close(self) -> None:
        """Close once what is written has left."""
        self._closing = True
        self._flow.stop(CLOSED)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._flow.stop(CLOSED)
        if self._transport is not None:
            self._transport.abort()

    # --- requests and responses

    def _respond_from_cache(self, data: bytes) -> int:
        """Respond to the requests at the start of `data` that are in the response cache; returns their size in bytes."""
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
                self._send(b"".join(out))
                out = []
                size = 0
                if self._flow.stops:
                    break
        if out:
            self._send(b"".join(out))
        return position

    def _go_on(self) -> None:
        """Handle what may be handled now."""
        if self._due:
            self._pipeline()
        else:
            self._serve([])

    def _serve(self, out: list[bytes]) -> None:
        """Handle frames in order, after the responses in `out`, until something stops it. No response is due."""
        begin = self.dispatcher.begin
        flow = self._flow
        size = 0
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
                elif response is not None:
                    self._write(out)
                    out = []
                    self._api_key = payload[:2]
                    self._wait_for(response)
                    self._pipeline()
                    break
        except NotOffered as error:  # it is in the log already
            self._write(out)
            self._reason = str(error)
            self.close()
        except (RemoteProtocolError, CloseConnection) as error:
            self._write(out)
            self._refuse(str(error))
        else:
            self._write(out)

    def _wait_for(self, response: asyncio.Future[bytes | None] | Coroutine[Any, Any, bytes | None]) -> None:
        """Make this response the last one that is due."""
        if not isinstance(response, asyncio.Future):
            task = self._loop.create_task(response)
            self._listener.begun(task)
            response = task
        self._due.append(response)
        response.add_done_callback(self._completed)

    def _pipeline(self) -> None:
        """Begin the requests that may be under way together with those that wait already."""
        dispatcher, flow, due, api_key = self.dispatcher, self._flow, self._due, self._api_key
        while not flow.stops and (payload := flow.peek()) is not None:
            if len(due) >= PIPELINED_REQUESTS or self.peer.exclusive or not dispatcher.may_pipeline(api_key, payload):
                flow.stop(HANDLING)
                return
            flow.drop()
            try:
                response = dispatcher.begin(self.peer, payload, flow)
            except (RemoteProtocolError, CloseConnection) as error:
                due.append(error)
                flow.stop(HANDLING)
                return
            if isinstance(response, bytes):
                due.append(response)
            elif response is not None:
                self._wait_for(response)
        if self.peer.exclusive or not dispatcher.is_pipelined(api_key):
            flow.stop(HANDLING)
        else:
            flow.read_on()

    def _completed(self, _: asyncio.Future[bytes | None]) -> None:
        """Send the responses that are there, up to the first one that is not, and go on with what came meanwhile."""
        due = self._due
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
                    self._refuse(str(outcome))
                return
        if self._flow.stops & CLOSED:
            return
        if not due:
            self.peer.exclusive = False
            self._flow.allow(HANDLING)
            self._serve(out)
        elif out:
            self._write(out)
            self._flow.allow(HANDLING)
            self._pipeline()

    def _write(self, out: list[bytes]) -> None:
        if out and self._transport is not None:
            self._send(out[0] if len(out) == 1 else b"".join(out))

    def _refuse(self, reason: str) -> None:
        self._reason = reason
        self._listener.log_closing(self, reason)
        self.close()


def _outcome(response: asyncio.Future[bytes | None]) -> bytes | Exception | None:
    """What came of a response: its bytes, None where the request gets none, or why the connection is closed."""
    if response.cancelled():
        return CloseConnection("the broker stops")
    error = response.exception()
    if error is None:
        return response.result()
    if isinstance(error, Exception):
        return error
    raise error
