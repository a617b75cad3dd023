"""Handlers with faults: what a request goes through while there are faults for its API.

A dispatcher takes these handlers only for the APIs of present faults (`server/requests/dispatch.py`); their requests are handled one after
the other, each for itself, and no response is cached. Errors are given where the real code would give them: if a fault is about a part of
the request, such as a partition, the rest is handled for real. A request that reads gets its real response with the error in it; of a
request that changes something the part is left out, so that nothing happens to it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.nouns import ZERO_UUID
from klamm.server.faults import message_parts
from klamm.server.faults.fault import BrokerFaults, Fault, Hit, RequestFilter
from klamm.server.faults.message_parts import Wanted
from klamm.server.faults.other_values import with_values
from klamm.server.requests.changed_frame import ChangedFrame
from klamm.server.requests.context import ClosedOnPurpose

if TYPE_CHECKING:
    from klamm.protocol.errors import ErrorCode
    from klamm.seams.clock import Clock

_GROUP_KEY = 0
_UNKNOWN_TAG = b"\x01\xe7\x07\x05klamm"
"""One tagged field, number 999, of five bytes."""


class RefuseRequest(Protocol):
    """Makes the response for a request that failed as a whole; None if the API has none."""

    def __call__(self, request: Any, version: int, code: ErrorCode, message: str | None = None) -> Any: ...


class AskedBy(Protocol):
    """The client of a request."""

    on_lost: Callable[[], None] | None

    @property
    def principal(self) -> object: ...
    @property
    def connection(self) -> str: ...
    @property
    def is_open(self) -> bool: ...


class Topics(Protocol):
    """The names and ids of topics."""

    @property
    def topics(self) -> Mapping[str, Any]: ...
    def topic_name(self, topic_id: bytes, /) -> str | None: ...


class Known(Protocol):
    """What is known beside the request: the time, topics, and the fetch sessions."""

    @property
    def clock(self) -> Clock: ...
    @property
    def metadata(self) -> Topics: ...
    @property
    def fetches(self) -> Any: ...


class Asked(Protocol):
    """A request: the `Context` of a broker's handler, or what a proxy has of it (`control/proxied_requests.py`)."""

    @property
    def api_key(self) -> ApiKey: ...
    @property
    def api_version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def peer(self) -> AskedBy: ...
    @property
    def services(self) -> Known: ...


class Real(NamedTuple):
    """What is done without faults: `handle` handles a request, `refuse` makes a response with an error, `encode` a frame."""

    handle: Callable[[Any, Any], Any]
    refuse: RefuseRequest
    encode: Callable[[Any, int, Any], bytes | None]


def handle_faulty(faults: BrokerFaults, real: Real, ctx: Asked, request: Any) -> Any:
    """The response to a request under the present faults, or a coroutine for it."""
    broker = faults.broker_id
    hit: Hit | None = None
    struck: list[tuple[Fault, Wanted | None]] = []
    for fault in faults.of(ctx.api_key):
        heads = fault.filter
        assert isinstance(heads, RequestFilter)
        if not heads.matches(broker, ctx.api_version, ctx.client_id, str(ctx.peer.principal)):
            continue
        wanted = _wanted(ctx, request, heads) if heads.parts else None
        if heads.parts and (wanted is None or not _is_about(ctx, request, wanted)):
            continue
        if hit is None:
            name = APIS[ctx.api_key].name
            hit = Hit(ctx.services.clock.now_ms(), broker, ctx.client_id, name, ctx.api_version, ctx.correlation_id)
        if fault.takes(hit):
            struck.append((fault, wanted))
            if faults.written is not None:
                faults.written(fault.number, fault.effect.changes(), ctx.peer.connection, ctx.correlation_id)
    return _Struck(ctx, real, request, struck).respond() if struck else real.handle(ctx, request)


def _wanted(ctx: Asked, request: Any, heads: RequestFilter) -> Wanted | None:
    """What the filter wants of this request's parts; None if the request cannot be about them."""
    values = dict(heads.parts)
    if ctx.api_key == ApiKey.FIND_COORDINATOR:
        key = "group" if request.key_type == _GROUP_KEY else "transactional_id"
        if values.keys() != {key}:
            return None
        values = {"coordinator_key": values[key]}
    topic_id = ZERO_UUID
    if values.get("topic").__class__ is bytes:
        topic_id, name = values["topic"], ctx.services.metadata.topic_name(values["topic"])
        values["topic"] = name
    elif "topic" in values:
        known = ctx.services.metadata.topics.get(values["topic"])
        topic_id = ZERO_UUID if known is None else known.topic_id
    return Wanted(values, topic_id)


def _is_about(ctx: Asked, request: Any, wanted: Wanted) -> bool:
    """Whether a request is about the wanted parts."""
    if message_parts.split(request, ctx.api_version, wanted)[0] is not None:
        return True
    if ctx.api_key == ApiKey.FETCH:
        return _is_in_session(ctx, request, wanted)
    if "resource" in str(request._fields):
        return False
    return message_parts.says_all(request, ctx.api_version, wanted)


def _is_in_session(ctx: Asked, request: messages.FetchRequest, wanted: Wanted) -> bool:
    session = ctx.services.fetches.sessions.get(request.session_id)
    if session is None or request.session_epoch <= 0 or "topic" not in wanted.values:
        return False
    index = wanted.values.get("partition")
    return any(
        (wanted.is_one("topic", topic.name) or wanted.is_one("topic", topic.topic_id)) and (index is None or index in topic.partitions)
        for topic in session.partitions.topics.values()
    )


class _Struck:
    """A request that faults hit."""

    def __init__(self, ctx: Asked, real: Real, request: Any, struck: list[tuple[Fault, Wanted | None]]) -> None:
        self._ctx = ctx
        self._real = real
        self._request = request
        self._struck = struck

    async def respond(self) -> Any:
        """The response, or what stands for it. Raises CloseConnection."""
        before = [(fault, wanted) for fault, wanted in self._struck if not fault.effect.after_work]
        after = [(fault, wanted) for fault, wanted in self._struck if fault.effect.after_work]
        for fault, _ in before:
            await self._delay(fault)
        ends = next(((fault, wanted) for fault, wanted in before if _ends_before_work(fault)), None)
        response = await (self._work() if ends is None else self._instead(*ends))
        for fault, wanted in (*before, *after):
            if fault.effect.after_work:
                await self._delay(fault)
                response = await self._after(fault, wanted, response)
            response = self._changed(fault, response)
            if isinstance(response, ChangedFrame):
                break
        return response

    async def _delay(self, fault: Fault) -> None:
        """Wait as long as the fault says; its removal does not shorten that."""
        if fault.effect.delay_ms:
            await self._ctx.services.clock.sleep(fault.effect.delay_ms / 1000)

    async def _work(self) -> Any:
        response = self._real.handle(self._ctx, self._request)
        while inspect.isawaitable(response):  # a coroutine may return a DelayedResponse
            response = await response
        return response

    async def _instead(self, fault: Fault, wanted: Wanted | None) -> Any:
        """What happens instead of the work, or of a part of it."""
        effect = fault.effect
        if effect.is_dropped:
            await self._hang(fault)
        if effect.close is not None:
            raise ClosedOnPurpose(f"fault {fault.number} closes the connection before the response")
        assert effect.error is not None
        if wanted is None:
            return self._refused(fault, self._request)
        if APIS[self._ctx.api_key].reads:
            if self._ctx.api_key == ApiKey.FETCH:
                self._request = self._request._replace(max_wait_ms=0)
            return self._with_error(fault, wanted, await self._work())
        matched, rest = message_parts.split(self._request, self._ctx.api_version, wanted)
        if matched is None:
            return self._with_error(fault, wanted, await self._work())
        refused = self._refused(fault, matched)
        if rest is None:
            return refused
        self._request = rest
        real = await self._work()
        return real if real is None or refused is None else message_parts.merge(self._message(real), self._message(refused))

    async def _after(self, fault: Fault, wanted: Wanted | None, response: Any) -> Any:
        """What happens when the work is done."""
        effect = fault.effect
        if effect.is_dropped:
            await self._hang(fault)
        if effect.is_lost:
            return None
        if effect.close == "before":
            raise ClosedOnPurpose(f"fault {fault.number} closes the connection before the response")
        if effect.error is not None and response is not None:
            return self._refused(fault, self._request) if wanted is None else self._with_error(fault, wanted, response)
        return response

    def _changed(self, fault: Fault, response: Any) -> Any:
        """A response with what the fault changes in its frame. Raises CloseConnection, with what is sent before."""
        effect, ctx = fault.effect, self._ctx
        if response is None:
            return None
        if effect.throttle_time_ms is not None:
            response = self._message(response)._replace(throttle_time_ms=effect.throttle_time_ms)
        if effect.values is not None:
            response = with_values(self._message(response), ctx.api_version, effect.values)
        is_whole = effect.close not in ("amid", "after") and not effect.is_corrupt and effect.truncate is None
        if is_whole and effect.correlation_id is None and not effect.has_unknown_tags:
            return response
        frame = self._real.encode(ctx, ctx.correlation_id + (effect.correlation_id or 0), response) or b""
        if effect.has_unknown_tags:
            frame = _with_unknown_tags(frame, ctx.api_key, ctx.api_version)
        if effect.close == "amid":
            raise ClosedOnPurpose(f"fault {fault.number} closes the connection amid the response", frame[: max(5, len(frame) // 2)])
        if effect.close == "after":
            raise ClosedOnPurpose(f"fault {fault.number} closes the connection after the response", frame)
        if effect.is_corrupt:
            frame = frame[:8] + bytes(byte ^ 0xFF for byte in frame[8:])
        if effect.truncate is not None:
            payload = frame[4:][: effect.truncate]
            frame = len(payload).to_bytes(4, "big") + payload
        return ChangedFrame(frame)

    async def _hang(self, fault: Fault) -> None:
        """Respond never: until the client closes the connection, or the fault is removed."""
        gone = asyncio.Event()
        peer = self._ctx.peer
        peer.on_lost = gone.set
        waits = [asyncio.ensure_future(event.wait()) for event in (gone, fault.removed)]
        try:
            if peer.is_open:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            peer.on_lost = None
            for each in waits:
                each.cancel()
        raise ClosedOnPurpose(f"fault {fault.number} left a request of {APIS[self._ctx.api_key].name} without a response")

    def _refused(self, fault: Fault, request: Any) -> Any:
        """The response that refuses a request with the error of the fault. Raises CloseConnection where the API has none."""
        effect = fault.effect
        assert effect.error is not None
        response = self._real.refuse(request, self._ctx.api_version, effect.error, effect.message)
        if response is None:
            raise ClosedOnPurpose(f"fault {fault.number}: {APIS[self._ctx.api_key].name} has no response with an error")
        return response

    def _with_error(self, fault: Fault, wanted: Wanted, response: Any) -> Any:
        """A response with the error of the fault where it is about the wanted parts."""
        if response is None:
            return None
        effect, version = fault.effect, self._ctx.api_version
        assert effect.error is not None
        message, is_changed = message_parts.change(self._message(response), version, wanted, effect.error, effect.message)
        if not is_changed and self._ctx.api_key == ApiKey.FETCH:
            return _with_row(message, self._ctx, wanted, effect.error)
        return message

    def _message(self, response: Any) -> Any:
        """A response as a message all of whose parts are messages: a handler may give bytes, or rows that are encoded already."""
        ctx = self._ctx
        frame = self._real.encode(ctx, ctx.correlation_id, response) or b""
        name = APIS[ctx.api_key].name
        _, offset = messages.decode_response_header(ctx.api_key, ctx.api_version, frame[4:])
        return messages.decode(f"{name}Response", ctx.api_version, frame[4:], offset)[0]


def _ends_before_work(fault: Fault) -> bool:
    effect = fault.effect
    return effect.is_dropped or effect.close == "before" or effect.error is not None


def _with_unknown_tags(frame: bytes, api_key: int, version: int) -> bytes:
    """A response frame with a tagged field that no client knows, in its header and at the end of its body, where they have none."""
    api, payload = APIS[api_key], frame[4:]
    if api.is_flexible(version):
        root = messages.message_type(f"{api.name}Response").schema.root
        if payload[-1:] == b"\0" and not any(field.is_tagged(version) for field in root.fields):
            payload = payload[:-1] + _UNKNOWN_TAG
        if api.response_header_version(version) == 1 and payload[4] == 0:
            payload = payload[:4] + _UNKNOWN_TAG + payload[5:]
    return len(payload).to_bytes(4, "big") + payload


def _with_row(response: Any, ctx: Asked, wanted: Wanted, code: int) -> Any:
    """An incremental Fetch response with a row for a partition that had nothing new."""
    kind = messages.FetchResponse
    if "partition" not in wanted.values or response.error_code:
        return response
    row = kind.PartitionData(wanted.values["partition"], code, -1, records=b"")
    topic = kind.FetchableTopicResponse(topic=wanted.values["topic"], topic_id=wanted.topic_id, partitions=[row])
    return response._replace(responses=[*response.responses, topic])
