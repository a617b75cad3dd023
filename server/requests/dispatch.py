"""From one request's bytes to one response's bytes: everything that is the same for all APIs.

Which APIs there are is said by the table that the dispatcher is given (`server/requests/handlers.py`). A request for an API that is not
in it closes the connection, as on an Apache Kafka broker that does not expose it (`server/requests/not_offered.py` logs it). So do a
version out of range and bytes that do not decode; surplus bytes after the body are ignored. Only ApiVersions has a response to a
version it does not know, in the shape of version 0, so that the client can try again.

A frame of more than LARGE_REQUEST_BYTES is decoded, and its response encoded, in a thread: both are pure, and the event loop goes on
serving others. Handlers of such requests walk long lists in slices (`protocol/pace.py`).

`Dispatcher.begin` returns the response at once, without a task, when the handler is a plain function; a handler that has to wait is a
coroutine function, and `begin` returns a coroutine for its response. A handler's unknown exception is a fault: logged with its traceback,
and the response is UNKNOWN_SERVER_ERROR; a problem with ZooKeeper is a line in the log and has its own code (`server/requests/faults.py`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from struct import Struct
from typing import Any, NamedTuple, Protocol

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.server.requests import faults, request_log
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.requests.not_offered import NotOffered
from klamm.server.requests.peer import Peer
from klamm.server.requests.queued_requests import NOTHING_FOLLOWS, Following
from klamm.server.services import Services

log = logging.getLogger(__name__)

LARGE_REQUEST_BYTES = 256 << 10
"""Requests up to this size are decoded at once: ten thousand partition states or so, some tens of milliseconds at most."""

_KEY_AND_VERSION = Struct(">hh")


Response = bytes | Coroutine[Any, Any, bytes | None] | asyncio.Future[bytes | None] | None
Repeated = Callable[[Peer, bytes, Following], bytes | asyncio.Future[bytes | None] | None]


class Refuse(Protocol):
    """A response that says "the whole request failed with this code"."""

    def __call__(self, request: Any, version: int, code: ErrorCode, message: str | None = None) -> Any:
        """The code at the top where the response has one, and on every element that the request names. None: there is no such
        response, the connection has to be closed.
        """


def no_refusal(request: Any, version: int, code: ErrorCode, message: str | None = None) -> None:
    """Of an API that cannot say that a request failed: its connection is closed."""


class Handler(NamedTuple):
    """One API. `handle(ctx, request)` returns a response, its encoded body (bytes, or a list of pieces), or None for no response; or a
    coroutine of one of these.

    `cached`: the response depends only on what a `ResponseCache` is cleared for.
    `pipelined`: requests that follow one another on a connection may be begun before the first has its response; what they do happens
    in their order all the same (they go through the controller's queue), and the responses leave in their order.
    `repeated` makes a function that handles some requests from their bytes: (peer, payload, those that follow) → frames, a future for
    them, or None, and the handler does it.
    `unsupported_version`: the encoded version 0 of the response to a version out of range; None closes the connection.
    """

    handle: Callable[[Context, Any], Any]
    refuse: Refuse = no_refusal
    cached: bool = False
    pipelined: bool = False
    repeated: Callable[[Services], Repeated] | None = None
    unsupported_version: bytes | None = None


class Dispatcher:
    """Responds to the requests of one broker. `begin` raises RemoteProtocolError or CloseConnection when the connection must be closed."""

    def __init__(self, services: Services, handlers: Mapping[int, Handler]) -> None:
        self.metadata = services.metadata
        """Cached responses are valid for one generation of it."""
        self._services = services
        self._handlers = handlers
        self._repeated = {key.to_bytes(2, "big"): handler.repeated(services) for key, handler in handlers.items() if handler.repeated}
        self._pipelined = frozenset(key.to_bytes(2, "big") for key, handler in handlers.items() if handler.pipelined)

    def is_pipelined(self, api_key: bytes) -> bool:
        """Whether requests of this API, by the first two bytes of its requests, may be under way together."""
        return api_key in self._pipelined

    def may_pipeline(self, api_key: bytes, payload: bytes) -> bool:
        """Whether a request may be begun while one of the API with this key, which came before it, still waits for its response."""
        return payload[:2] == api_key and api_key in self._pipelined

    def begin(self, peer: Peer, payload: bytes, following: Following = NOTHING_FOLLOWS, logged: bool = False) -> Response:
        """One request's response as a frame, None when it gets none, or a coroutine or future for either.

        `following` are the requests that came behind it; some of them may be handled with it, and their responses are behind its own.

        `logged` is for `_logged`: this request is in the log already, and the same must come here again.
        """
        if not logged and request_log.log.isEnabledFor(logging.DEBUG):
            return self._logged(peer, payload)
        repeated = self._repeated.get(payload[:2])
        if repeated is not None and not logged and (frame := repeated(peer, payload, following)) is not None:
            return frame
        if len(payload) < 4:
            raise RemoteProtocolError(f"frame of {len(payload)} bytes")
        api_key, version = _KEY_AND_VERSION.unpack_from(payload)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise self._refusal(peer, api_key, payload)
        api = messages.APIS[api_key]
        supported = api.min_version <= version <= api.max_version
        if not supported and handler.unsupported_version is None:
            raise RemoteProtocolError(f"version {version} of {api.name} is not supported")
        header, offset = messages.decode_request_header(payload)
        if not supported and handler.unsupported_version is not None:
            unsupported = messages.encode_response(api_key, 0, header.correlation_id, handler.unsupported_version)
            if not logged:
                peer.responses.add(payload, unsupported)
            return unsupported
        ctx = Context(self._services, peer, api.key, version, header.client_id, header.correlation_id)
        if len(payload) > LARGE_REQUEST_BYTES:
            return self._respond_to_large(ctx, handler, header.correlation_id, payload, offset)
        request, _ = messages.decode(f"{api.name}Request", version, payload, offset)
        try:
            response = handler.handle(ctx, request)
            if inspect.iscoroutine(response):
                return self._finish(ctx, handler, header.correlation_id, request, response)
            frame = _frame(ctx, header.correlation_id, response)
        except CloseConnection:
            raise
        except Exception as fault:  # noqa: BLE001 whatever a handler raises is our fault, not the client's
            return _fault(ctx, handler, header.correlation_id, request, fault)
        if handler.cached and ctx.cacheable and frame is not None and not logged:
            peer.responses.use_generation(self.metadata.generation)
            peer.responses.add(payload, frame)
        return frame

    def _refusal(self, peer: Peer, api_key: int, payload: bytes) -> RemoteProtocolError:
        """Why a request for an API without a handler closes the connection."""
        api = messages.APIS.get(api_key)
        if api is None or api.draft:
            return RemoteProtocolError(f"API {api_key} is unknown")
        header, _ = messages.decode_request_header(payload)
        self._services.not_offered.write(api_key, header.client_id, peer.host)
        return NotOffered(f"{api.name} is not offered")

    def _logged(self, peer: Peer, payload: bytes) -> Response:
        """`begin`, with a line in the log when the response is there."""
        line = request_log.RequestLine(peer.host, peer.listener, payload, self._services.clock.monotonic)
        try:
            response = self.begin(peer, payload, logged=True)
        except (RemoteProtocolError, CloseConnection) as reason:
            line.closed(reason)
            raise
        if response is None or isinstance(response, bytes):
            line.responded(response)
            return response
        return self._logged_later(line, response)

    async def _logged_later(self, line: request_log.RequestLine, pending: Awaitable[bytes | None]) -> bytes | None:
        try:
            response = await pending
        except CloseConnection as reason:
            line.closed(reason)
            raise
        line.responded(response)
        return response

    async def _respond_to_large(self, ctx: Context, handler: Handler, correlation_id: int, payload: bytes, offset: int) -> bytes | None:
        ctx.large = True
        name = f"{messages.APIS[ctx.api_key].name}Request"
        try:
            request, _ = await asyncio.to_thread(messages.decode, name, ctx.api_version, payload, offset)
        except RemoteProtocolError as error:
            raise CloseConnection(str(error)) from error

        async def handle() -> Any:
            response = handler.handle(ctx, request)
            return await response if inspect.iscoroutine(response) else response

        return await self._finish(ctx, handler, correlation_id, request, handle())

    async def _finish(
        self, ctx: Context, handler: Handler, correlation_id: int, request: Any, pending: Coroutine[Any, Any, Any]
    ) -> bytes | None:
        try:
            response = await pending
            if ctx.large:
                return await asyncio.to_thread(_frame, ctx, correlation_id, response)
            return _frame(ctx, correlation_id, response)
        except CloseConnection:
            raise
        except Exception as fault:  # noqa: BLE001 as in `begin`
            return _fault(ctx, handler, correlation_id, request, fault)


def _frame(ctx: Context, correlation_id: int, response: Any) -> bytes | None:
    if response is None:
        return None
    if type(response) is list:
        return messages.join_response(ctx.api_key, ctx.api_version, correlation_id, response)
    body = response if isinstance(response, bytes) else messages.encode(response, ctx.api_version)
    return messages.encode_response(ctx.api_key, ctx.api_version, correlation_id, body)


def _fault(ctx: Context, handler: Handler, correlation_id: int, request: Any, fault: Exception) -> bytes:
    """The response to a request whose handler failed; without one the connection must go."""
    code, name = faults.code_of(fault), messages.APIS[ctx.api_key].name
    if code is None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("unexpected exception in %s version %d from %s", name, ctx.api_version, ctx.peer.host, exc_info=fault)
    else:
        log.warning("%s version %d from %s gets %s: %s", name, ctx.api_version, ctx.peer.host, code.name, fault)
    frame = _frame(ctx, correlation_id, handler.refuse(request, ctx.api_version, code))
    if frame is None:
        raise CloseConnection("its request has no response that says so")
    return frame
