"""From one request's bytes to one answer's bytes: the table of handlers, and everything that is the same for all of them.

`HANDLERS` is the one place that says which APIs this broker serves. Dispatch, the ApiVersions answer and the coverage page are
computed from it. An API that is not in it does not exist here: its request closes the connection, as on an Apache Kafka broker that does
not expose it (`server/not_offered.py` says so in the log). So do a version out of range and bytes that do not decode; surplus bytes
after the body are ignored. Only ApiVersions answers a version it does not know, in the shape of version 0, so that the client can
ask again.

A frame of more than LARGE_REQUEST_BYTES is decoded, and its answer encoded, in a thread: both are pure, and the event loop goes on
serving others. Handlers of such requests walk long lists in slices (`controller/pace.py`).

`Dispatcher.begin` answers at once, without a task, when the handler is a plain function; a handler that has to wait is a coroutine
function and `begin` returns a coroutine for its answer. A handler's unknown exception is a fault: logged with its traceback and
answered with UNKNOWN_SERVER_ERROR; a problem with ZooKeeper is a line in the log and a code of its own (`server/faults.py`).

Answers of handlers marked `cached` depend on nothing but the request's bytes, the listener and what the node's `answers` are
cleared for (its metadata cache, features, authorizer). They are kept encoded, keyed by the request without its correlation id;
`server/net/connection.py` looks there first and needs neither decoder nor handler for a request it has seen.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.server import faults, request_log
from klamm.server.apis import (
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
    leader_and_isr,
    list_partition_reassignments,
    metadata,
    produce,
    stop_replica,
    update_metadata,
)
from klamm.server.context import ANONYMOUS, CloseConnection, Context, Principal
from klamm.server.not_offered import NotOffered, NotOfferedLog

if TYPE_CHECKING:
    from klamm.server.broker_server import BrokerServer

log = logging.getLogger(__name__)

API_VERSIONS = 18
MAX_CACHED_REQUEST_BYTES = 1024
MAX_CACHED_ANSWERS = 1000
MAX_CACHED_ANSWER_BYTES = 64 << 20

LARGE_REQUEST_BYTES = 256 << 10
"""Requests up to this size are decoded at once: ten thousand partition states or so, some tens of milliseconds at most."""

_KEY_AND_VERSION = Struct(">hh")


class Handler(NamedTuple):
    """`handle(ctx, request)` returns a response, its encoded body, or None for no answer; or a coroutine of one of these.

    `joined`: requests that follow one another on a connection may be begun before the first is answered; what they do happens in
    their order all the same (they go through the controller's queue), and so do the answers leave.
    """

    handle: Callable[[Context, Any], Any]
    cached: bool = False
    joined: bool = False


HANDLERS: dict[int, Handler] = {
    0: Handler(produce.handle),
    3: Handler(metadata.handle, cached=True),
    4: Handler(leader_and_isr.handle),
    5: Handler(stop_replica.handle),
    6: Handler(update_metadata.handle),
    7: Handler(controlled_shutdown.handle),
    API_VERSIONS: Handler(api_versions.handle, cached=True),
    19: Handler(create_topics.handle),
    20: Handler(delete_topics.handle),
    32: Handler(describe_configs.handle),
    33: Handler(alter_configs.handle),
    37: Handler(create_partitions.handle),
    43: Handler(elect_leaders.handle),
    44: Handler(incremental_alter_configs.handle),
    46: Handler(list_partition_reassignments.handle),
    56: Handler(alter_partition.handle, joined=True),
    60: Handler(describe_cluster.handle, cached=True),
    67: Handler(allocate_producer_ids.handle),
}


class Answers:
    """Encoded answers by the bytes of their requests, in two steps, so that nothing of a request has to be understood to find one:
    its first eight bytes (length, API key, version) lead to the length of the whole frame and a dict, what follows the correlation id
    then to the answer's length field and to what follows the correlation id there.

    They hold for one `generation` of the metadata cache and are bounded in number and size.
    """

    __slots__ = ("__weakref__", "_count", "_size", "by_frame", "generation")

    def __init__(self) -> None:
        self.by_frame: dict[bytes, tuple[int, dict[bytes, tuple[bytes, bytes]]]] = {}
        self.generation = 0
        self._count = 0
        self._size = 0
        request_log.may_keep(self)

    def hold_for(self, generation: int) -> None:
        """Drop what was made from another state of the metadata cache."""
        if generation != self.generation:
            self.clear()
            self.generation = generation

    def keep(self, payload: bytes, frame: bytes) -> None:
        """Remember the answer `frame` to the request `payload`."""
        if len(payload) > MAX_CACHED_REQUEST_BYTES:
            return
        if self._count >= MAX_CACHED_ANSWERS or self._size + len(frame) > MAX_CACHED_ANSWER_BYTES:
            self.clear()
        self._count += 1
        self._size += len(frame) + len(payload)
        _, answers = self.by_frame.setdefault(len(payload).to_bytes(4, "big") + payload[:4], (4 + len(payload), {}))
        answers[payload[8:]] = frame[:4], frame[8:]

    def clear(self) -> None:
        self.by_frame.clear()
        self._count = self._size = 0


class Peer(NamedTuple):
    """Who sends requests over a connection, and which cached answers are good for it."""

    listener: str
    host: str
    answers: Answers
    principal: Principal = ANONYMOUS


class Dispatcher:
    """Answers the requests of one node. `begin` raises RemoteProtocolError or CloseConnection when the connection has to be closed."""

    def __init__(self, node: BrokerServer, handlers: Mapping[int, Handler] = HANDLERS) -> None:
        self.node = node
        self._handlers = handlers
        self.not_offered = NotOfferedLog()
        self.offered = tuple(messages.APIS[key] for key in sorted(handlers))
        self._joined = frozenset(key.to_bytes(2, "big") for key, handler in handlers.items() if handler.joined)

    def may_join(self, first: bytes, payload: bytes) -> bool:
        """Whether a request may be begun while `first`, which came before it, still waits for its answer."""
        return payload[:2] == first[:2] and payload[:2] in self._joined

    def begin(self, peer: Peer, payload: bytes, logged: bool = False) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        """One request's answer as a frame, None when it gets none, or a coroutine that returns either.

        `logged` is for `_logged`: this request is in the log already, and the same must come here again.
        """
        if not logged and request_log.log.isEnabledFor(logging.DEBUG):
            return self._logged(peer, payload)
        if len(payload) < 4:
            raise RemoteProtocolError(f"frame of {len(payload)} bytes")
        api_key, version = _KEY_AND_VERSION.unpack_from(payload)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise self._refusal(peer, api_key, payload)
        api = messages.APIS[api_key]
        supported = api.min_version <= version <= api.max_version
        if not supported and api_key != API_VERSIONS:
            raise RemoteProtocolError(f"version {version} of {api.name} is not supported")
        header, offset = messages.decode_request_header(payload)
        if not supported:
            unsupported = messages.encode_response(API_VERSIONS, 0, header.correlation_id, api_versions.UNSUPPORTED_BODY)
            if not logged:
                peer.answers.keep(payload, unsupported)
            return unsupported
        ctx = Context(self.node, api_key, version, header.client_id, peer.principal, peer.listener, peer.host)
        if len(payload) > LARGE_REQUEST_BYTES:
            return self._answer_large(ctx, handler, header.correlation_id, payload, offset)
        request, _ = messages.decode(f"{api.name}Request", version, payload, offset)
        try:
            response = handler.handle(ctx, request)
            if inspect.iscoroutine(response):
                return self._finish(ctx, header.correlation_id, request, response)
            frame = _frame(ctx, header.correlation_id, response)
        except CloseConnection:
            raise
        except Exception as fault:  # noqa: BLE001 whatever a handler raises is our fault, not the client's, and is answered
            return _fault(ctx, header.correlation_id, request, fault)
        if handler.cached and ctx.cacheable and frame is not None and not logged:
            peer.answers.hold_for(self.node.metadata.generation)
            peer.answers.keep(payload, frame)
        return frame

    def _refusal(self, peer: Peer, api_key: int, payload: bytes) -> RemoteProtocolError:
        """Why the connection is closed that asks for an API without a handler."""
        api = messages.APIS.get(api_key)
        if api is None or api.draft:
            return RemoteProtocolError(f"API {api_key} is unknown")
        header, _ = messages.decode_request_header(payload)
        self.not_offered.tell(api_key, header.client_id, peer.host)
        return NotOffered(f"{api.name} is not offered")

    def _logged(self, peer: Peer, payload: bytes) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        """`begin`, with a line in the log when the answer is there."""
        line = request_log.RequestLine(peer.host, peer.listener, payload)
        try:
            answer = self.begin(peer, payload, logged=True)
        except (RemoteProtocolError, CloseConnection) as reason:
            line.closed(reason)
            raise
        if answer is None or isinstance(answer, bytes):
            line.answered(answer)
            return answer
        return self._logged_later(line, answer)

    async def _logged_later(self, line: request_log.RequestLine, pending: Coroutine[Any, Any, bytes | None]) -> bytes | None:
        try:
            answer = await pending
        except CloseConnection as reason:
            line.closed(reason)
            raise
        line.answered(answer)
        return answer

    async def _answer_large(self, ctx: Context, handler: Handler, correlation_id: int, payload: bytes, offset: int) -> bytes | None:
        ctx.large = True
        name = f"{messages.APIS[ctx.api_key].name}Request"
        try:
            request, _ = await asyncio.to_thread(messages.decode, name, ctx.api_version, payload, offset)
        except RemoteProtocolError as error:
            raise CloseConnection(str(error)) from error

        async def handle() -> Any:
            response = handler.handle(ctx, request)
            return await response if inspect.iscoroutine(response) else response

        return await self._finish(ctx, correlation_id, request, handle())

    async def _finish(self, ctx: Context, correlation_id: int, request: Any, pending: Coroutine[Any, Any, Any]) -> bytes | None:
        try:
            response = await pending
            if ctx.large:
                return await asyncio.to_thread(_frame, ctx, correlation_id, response)
            return _frame(ctx, correlation_id, response)
        except CloseConnection:
            raise
        except Exception as fault:  # noqa: BLE001 as in `begin`
            return _fault(ctx, correlation_id, request, fault)


def _frame(ctx: Context, correlation_id: int, response: Any) -> bytes | None:
    if response is None:
        return None
    body = response if isinstance(response, bytes) else messages.encode(response, ctx.api_version)
    return messages.encode_response(ctx.api_key, ctx.api_version, correlation_id, body)


def _fault(ctx: Context, correlation_id: int, request: Any, fault: Exception) -> bytes:
    """The answer to a request whose handler failed; without one the connection must go."""
    code, name = faults.code_of(fault), messages.APIS[ctx.api_key].name
    if code is None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("fault while handling %s version %d from %s", name, ctx.api_version, ctx.client_host, exc_info=fault)
    else:
        log.warning("%s version %d from %s is answered %s: %s", name, ctx.api_version, ctx.client_host, code.name, fault)
    response = faults.response(ctx.api_key, ctx.api_version, request, code)
    frame = _frame(ctx, correlation_id, response)
    if frame is None:
        raise CloseConnection("its request could not be answered")
    return frame
