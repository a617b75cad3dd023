"""From the bytes of a request to the bytes of its response: everything that is the same for all APIs.

A table of handlers defines the APIs of a dispatcher (`server/apis/handlers.py`). A request for an API that is not in the table closes
the connection, as on an Apache Kafka broker that does not expose the API (`server/requests/unsupported_apis.py` logs it). A version out of
range and bytes that cannot be decoded also close the connection; extra bytes after the body are ignored. Only ApiVersions responds to an
unsupported version, in the layout of version 0, so that the client can try again.

A request of more than LARGE_REQUEST_BYTES (of Produce LARGE_PRODUCE_BYTES), or with many tagged fields in its header, is decoded in a
thread, and its response is encoded in a thread, so that the event loop can serve other clients. Handlers of such requests process long
lists in slices (`seams/pace.py`).

A shortcut decodes requests that repeat earlier ones of their connection (`protocol/shortcuts/repeated_requests.py`); it gives what the
codec gives. Requests of some APIs that came together are handled together (`Handler.handle_run`).

If the handler is a plain function, `Dispatcher.begin` returns the response at once, without a task. A handler that has to wait returns a
coroutine, and so does `begin`. Requests of a connection take effect in their order: behind a coroutine the connection begins no other
request, unless a `DelayedResponse` says that the request has taken effect (`delayed_response.py`). With an `ApiError` of a handler the
whole request fails, as in Apache Kafka. An unknown exception is a fault: it is logged with its traceback, and the response is
UNKNOWN_SERVER_ERROR. A problem with ZooKeeper is logged in one line and has its own error code (`server/requests/faults.py`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ApiError, ErrorCode, RemoteProtocolError
from klamm.protocol.shortcuts.repeated_requests import Shape
from klamm.protocol.shortcuts.response_frames import encode_frame
from klamm.server.requests import faults, request_log
from klamm.server.requests.changed_frame import ChangedFrame
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.requests.delayed_response import DelayedResponse, Refuse
from klamm.server.requests.peer import Peer
from klamm.server.requests.queued_requests import NOTHING_FOLLOWS, Following, Run
from klamm.server.requests.quotas import Enforced
from klamm.server.requests.services import Services
from klamm.server.requests.unsupported_apis import NotOffered

if TYPE_CHECKING:
    from klamm.server.faults.fault import BrokerFaults

log = logging.getLogger(__name__)

LARGE_REQUEST_BYTES = 64 << 10
"""Larger requests are decoded in a thread. A list of this size can have twenty thousand entries, some tens of milliseconds at most."""
LARGE_PRODUCE_BYTES = 256 << 10
"""The same for Produce, whose requests are mostly records, which are not decoded."""

_KEY_AND_VERSION = Struct(">hh")


RUN_BYTES = 32 << 10
"""Requests that came together are handled together up to this size."""

Response = bytes | Coroutine[Any, Any, bytes | None] | DelayedResponse | None


def no_refusal(request: Any, version: int, code: ErrorCode, message: str | None = None) -> None:
    """For an API whose responses have no error code: the connection is closed."""


class Handler(NamedTuple):
    """One API. `handle(ctx, request)` returns a response, its encoded body (bytes, or a list of pieces), None for no response, a coroutine
    that returns one of these, or a DelayedResponse for one of these; a coroutine may return a DelayedResponse too.

    `cached`: the response depends only on the request and on state whose changes clear the `ResponseCache`.
    `pipelined`: the next requests of a connection may be begun when the first has taken effect, before it has its response. The responses
    are sent in order.
    `handle_run(ctx, requests)` handles requests that came together and differ in their records only. It may leave some at the end. It
    returns None, and does nothing, if the first must be handled alone. What it handles has taken effect when it returns.
    `unsupported_version`: the encoded response, in version 0, to a version out of range; None closes the connection.
    `versions`: the oldest and newest version that is handled; None for all that Klamm has.
    """

    handle: Callable[[Context, Any], Any]
    refuse: Refuse = no_refusal
    cached: bool = False
    pipelined: bool = False
    handle_run: Callable[[Context, Sequence[Any]], Run | None] | None = None
    unsupported_version: bytes | None = None
    versions: tuple[int, int] | None = None


class Dispatcher:
    """Responds to the requests of one broker. `begin` raises RemoteProtocolError or CloseConnection if the connection must be closed."""

    def __init__(self, services: Services, handlers: Mapping[int, Handler]) -> None:
        self.metadata = services.metadata
        """The metadata cache; cached responses are valid for one generation of it."""
        self._services = services
        self._plain = handlers
        services.client_quotas.listeners.append(self._choose_handlers)
        if services.faults is not None:
            services.faults.faults.tell(self._choose_handlers)
        self._choose_handlers()

    def _choose_handlers(self) -> None:
        """Take the handlers that measure requests while there are client quotas, those that heed faults while there are faults, else the
        plain ones.
        """
        faults, enforced = self._services.faults, self._services.client_quotas.enforced
        handlers = self._plain
        if faults is not None and len(faults.faults):
            handlers = _faulty(handlers, faults)
        if enforced is not None:
            handlers = _throttled(handlers, enforced)
        self._handlers = handlers
        self._is_measured = enforced is not None
        self._pipelined = frozenset(key.to_bytes(2, "big") for key, handler in handlers.items() if handler.pipelined)

    def is_pipelined(self, api_key: bytes) -> bool:
        """Whether several requests of this API may be in progress on a connection. `api_key` is the first two bytes of a request."""
        return api_key in self._pipelined

    def may_pipeline(self, api_key: bytes, payload: bytes) -> bool:
        """Whether a request may be begun while an earlier request of the API `api_key` still waits for its response."""
        return payload[:2] == api_key and api_key in self._pipelined

    def begin(self, peer: Peer, payload: bytes, following: Following = NOTHING_FOLLOWS, logged: bool = False) -> Response:
        """Handle a request. Returns the response as a frame, None if there is no response, or a coroutine or DelayedResponse for one of
        these. Behind a coroutine no other request of the connection may be begun before it has ended, or has called `peer.took_effect`.

        `following` are the requests after it on the connection. Some of them may be handled with it; then the frame also contains their
        responses.

        `logged` is set by `_logged`, which calls this method again for a request that it logs.
        """
        if not logged and request_log.log.isEnabledFor(logging.DEBUG):
            return self._logged(peer, payload)
        if self._is_measured:
            peer.arrival = len(payload), self._services.clock.monotonic()
        repeated = peer.repeated.find(payload)
        if repeated is not None and (handler := self._handlers.get(repeated[0].header[0])) is not None:
            shape, correlation_id, request = repeated
            key, version, _, client_id = shape.header
            ctx = Context(self._services, peer, messages.APIS[key].key, version, client_id, correlation_id)
            if handler.handle_run is not None and following.peek() is not None:
                frames = self._respond_together(ctx, handler, shape, request, len(payload), following)
                if frames is not None:
                    return frames
            return self._respond(ctx, handler, request)
        if len(payload) < 4:
            raise RemoteProtocolError(f"frame of {len(payload)} bytes")
        api_key, version = _KEY_AND_VERSION.unpack_from(payload)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise self._refusal(peer, api_key, payload)
        api = messages.APIS[api_key]
        oldest, newest = (api.min_version, api.max_version) if handler.versions is None else handler.versions
        supported = oldest <= version <= newest
        if not supported and handler.unsupported_version is None:
            raise RemoteProtocolError(f"version {version} of {api.name} is not supported")
        header, offset = messages.decode_request_header(payload, messages.FEW_TAGS)
        if not supported and handler.unsupported_version is not None:
            unsupported = messages.encode_response(api_key, 0, header.correlation_id, handler.unsupported_version)
            if offset < 0:
                return _if_header_is_valid(payload, unsupported)
            if not logged:
                peer.responses.add(payload, unsupported)
            return unsupported
        ctx = Context(self._services, peer, api.key, version, header.client_id, header.correlation_id)
        is_large = len(payload) > LARGE_REQUEST_BYTES and (api_key != ApiKey.PRODUCE or len(payload) > LARGE_PRODUCE_BYTES)
        if is_large or offset < 0:
            return self._respond_to_large(ctx, handler, payload, offset)
        request, _ = messages.decode(f"{api.name}Request", version, payload, offset)
        peer.repeated.learn(payload, header, request)
        response = self._respond(ctx, handler, request)
        if handler.cached and ctx.cacheable and type(response) is bytes and not logged:
            peer.responses.use_generation(self.metadata.generation)
            peer.responses.add(payload, response)
        return response

    def _respond(self, ctx: Context, handler: Handler, request: Any) -> Response:
        """The response to one request that is decoded."""
        try:
            response = handler.handle(ctx, request)
            if response.__class__ is DelayedResponse:
                if response.refuse is not None:
                    return DelayedResponse(self._finish(ctx, response.refuse, None, response))
                return DelayedResponse(self._finish(ctx, handler.refuse, request, response))
            if inspect.iscoroutine(response):
                return self._finish(ctx, handler.refuse, request, response)
            return _frame(ctx, ctx.correlation_id, response)
        except CloseConnection:
            raise
        except Exception as fault:  # noqa: BLE001 whatever a handler raises is our fault, not the client's
            return _fault(ctx, handler.refuse, ctx.correlation_id, request, fault)

    def _respond_together(
        self, ctx: Context, handler: Handler, shape: Shape, request: Any, size: int, following: Following
    ) -> bytes | DelayedResponse | None:
        """The responses to a request of `size` bytes and those that follow it in the same shape; None if it has to be handled alone."""
        numbers, requests, payloads = [ctx.correlation_id], [request], []
        while (payload := following.peek()) is not None:
            size += len(payload)
            decoded = shape.decode(payload) if size <= RUN_BYTES else None
            if decoded is None:
                break
            following.drop()
            payloads.append(payload)
            numbers.append(decoded[0])
            requests.append(decoded[1])
        if not payloads or handler.handle_run is None:
            return None
        try:
            run = handler.handle_run(ctx, requests)
        except Exception as fault:  # noqa: BLE001 as in `_respond`
            return b"".join([_fault(ctx, handler.refuse, *each, fault) for each in zip(numbers, requests, strict=True)])
        following.put_back(payloads if run is None else payloads[run.length - 1 :])
        if run is None:
            return None
        if isinstance(run.responses, Awaitable):
            return DelayedResponse(_finish_run(ctx, numbers, run.responses))
        return _frames(ctx, numbers, run.responses)

    def _refusal(self, peer: Peer, api_key: int, payload: bytes) -> RemoteProtocolError:
        """The error for a request to an API without a handler; it closes the connection."""
        api = messages.APIS.get(api_key)
        if api is None or api.draft:
            return RemoteProtocolError(f"API {api_key} is unknown")
        header, _ = messages.decode_request_header(payload, messages.FEW_TAGS)
        self._services.not_offered.write(api_key, header.client_id, peer.host)
        return NotOffered(f"{api.name} is not offered")

    def refusal(self, peer: Peer, payload: bytes, code: ErrorCode) -> bytes | None:
        """The response to a request that fails as a whole with this code; None if its API has no such response. Nothing is done for it.

        Raises RemoteProtocolError if the request is malformed, or its API or version is not offered.
        """
        header, offset = messages.decode_request_header(payload)
        handler, api = self._plain.get(header.api_key), messages.APIS.get(header.api_key)
        if handler is None or api is None or not api.min_version <= header.api_version <= api.max_version:
            raise RemoteProtocolError(f"API {header.api_key} in version {header.api_version} is not offered")
        request, _ = messages.decode(f"{api.name}Request", header.api_version, payload, offset)
        ctx = Context(self._services, peer, api.key, header.api_version, header.client_id, header.correlation_id)
        return _frame(ctx, header.correlation_id, handler.refuse(request, header.api_version, code))

    def _logged(self, peer: Peer, payload: bytes) -> Response:
        """Call `begin`, and log a line when the response is made."""
        line = request_log.RequestLine(peer.host, peer.listener, payload, self._services.clock.monotonic)
        try:
            response = self.begin(peer, payload, logged=True)
        except (RemoteProtocolError, CloseConnection) as reason:
            line.closed(reason)
            raise
        if response is None or isinstance(response, bytes):
            line.responded(response)
            return response
        later = self._logged_later(line, response)
        return DelayedResponse(later) if isinstance(response, DelayedResponse) else later

    async def _logged_later(self, line: request_log.RequestLine, pending: Awaitable[bytes | None]) -> bytes | None:
        try:
            response = await pending
        except CloseConnection as reason:
            line.closed(reason)
            raise
        line.responded(response)
        return response

    async def _respond_to_large(self, ctx: Context, handler: Handler, payload: bytes, offset: int) -> bytes | None:
        ctx.large = True
        name = f"{messages.APIS[ctx.api_key].name}Request"
        try:
            request = await asyncio.to_thread(_decoded, name, ctx.api_version, payload, offset)
        except RemoteProtocolError as error:
            raise CloseConnection(str(error)) from error

        pending = self._finish(ctx, handler.refuse, request, _handle(ctx, handler, request))
        del payload, request
        return await pending

    async def _finish(self, ctx: Context, refuse: Refuse, request: Any, pending: Awaitable[Any]) -> bytes | None:
        try:
            response = await pending
            if response.__class__ is DelayedResponse:
                if response.refuse is not None:
                    refuse, request = response.refuse, None
                ctx.peer.took_effect()
                response = await response
            if ctx.large:
                return await asyncio.to_thread(_frame, ctx, ctx.correlation_id, response)
            return _frame(ctx, ctx.correlation_id, response)
        except CloseConnection:
            raise
        except Exception as fault:  # noqa: BLE001 as in `_respond`
            if ctx.large:
                return await asyncio.to_thread(_fault, ctx, refuse, ctx.correlation_id, request, fault)
            return _fault(ctx, refuse, ctx.correlation_id, request, fault)


async def _handle(ctx: Context, handler: Handler, request: Any) -> Any:
    """What the handler says to a large request."""
    response = handler.handle(ctx, request)
    if inspect.iscoroutine(response):
        del request
        return await response
    return response


def _faulty(handlers: Mapping[int, Handler], faults: BrokerFaults) -> dict[int, Handler]:
    """Handlers that heed the present faults, each request for itself; those of APIs without faults as they are."""
    from klamm.server.requests.fault_handlers import Real, handle_faulty  # most brokers have no faults

    def alone(handler: Handler) -> Handler:
        real = Real(handler.handle, handler.refuse, _frame)
        return handler._replace(handle=partial(handle_faulty, faults, real), cached=False, pipelined=False, handle_run=None)

    return {key: alone(handler) if faults.of(messages.APIS[key].key) else handler for key, handler in handlers.items()}


def _throttled(handlers: Mapping[int, Handler], enforced: Enforced) -> dict[int, Handler]:
    """Handlers that do the same under quotas, each request for itself; those for requests from brokers as they are."""
    from klamm.server.requests.throttling import handle_throttled  # most brokers have no quotas

    return {
        key: handler
        if messages.APIS[key].is_unmeasured
        else handler._replace(handle=partial(handle_throttled, enforced, handler.handle), cached=False, pipelined=False, handle_run=None)
        for key, handler in handlers.items()
    }


def _decoded(name: str, version: int, payload: bytes, offset: int) -> Any:
    """The request in a payload; `offset` is where its body starts, -1 if that is not known. Raises RemoteProtocolError."""
    start = messages.decode_request_header(payload)[1] if offset < 0 else offset
    return messages.decode(name, version, payload, start)[0]


async def _if_header_is_valid(payload: bytes, response: bytes) -> bytes:
    """The response to a request whose header has many tagged fields. Raises CloseConnection if these are malformed."""
    try:
        await asyncio.to_thread(messages.decode_request_header, payload)
    except RemoteProtocolError as error:
        raise CloseConnection(str(error)) from error
    return response


def _frame(ctx: Context, correlation_id: int, response: Any) -> bytes | None:
    if response is None:
        return None
    if type(response) is ChangedFrame:
        return response
    if type(response) is list:
        return messages.join_response(ctx.api_key, ctx.api_version, correlation_id, response)
    if isinstance(response, bytes):
        return messages.encode_response(ctx.api_key, ctx.api_version, correlation_id, response)
    return encode_frame(ctx.api_key, ctx.api_version, correlation_id, response)


def _frames(ctx: Context, numbers: Sequence[int], responses: Iterable[Any]) -> bytes:
    """The frames of the responses to requests with these correlation ids, as far as they get one."""
    frames = [_frame(ctx, number, response) for number, response in zip(numbers, responses)]  # noqa: B905 the last ones may be left
    return b"".join([frame for frame in frames if frame is not None])


async def _finish_run(ctx: Context, numbers: Sequence[int], responses: Awaitable[Iterable[Any]]) -> bytes:
    return _frames(ctx, numbers, await responses)


def _fault(ctx: Context, refuse: Refuse, correlation_id: int, request: Any, fault: Exception) -> bytes:
    """The response to a request whose handler raised `fault`. Raises CloseConnection if the API has no such response."""
    ctx.cacheable = False
    code, message, name = faults.code_of(fault), None, messages.APIS[ctx.api_key].name
    if isinstance(fault, ApiError):
        code, message = fault.code, fault.message
    elif code is None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("unexpected exception in %s version %d from %s", name, ctx.api_version, ctx.peer.host, exc_info=fault)
    else:
        log.warning("%s version %d from %s gets %s: %s", name, ctx.api_version, ctx.peer.host, code.name, fault)
    frame = _frame(ctx, correlation_id, refuse(request, ctx.api_version, code, message))
    if frame is None:
        raise CloseConnection(f"{name} failed, and its response cannot contain an error")
    return frame
