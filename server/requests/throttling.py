"""Enforces client quotas: handlers that measure each request, put the throttle time into its response, and mute its connection.

Every request counts with the time that the event loop spends on it, a Produce also with its bytes, and a Fetch of a consumer with the bytes
of its response. The response is sent at once and names the longest throttle time; then the connection is not served for that long
(KIP-219). A Fetch above a quota gets no records and does not count with its bytes; it changes nothing in its session but the epoch. A
Produce without acks counts only with its bytes. Requests from brokers as such are neither measured nor throttled: those of the controller,
AlterPartition, ControlledShutdown, and Fetch of followers.

Requests of one connection are handled one after the other, even those that could be handled together, and no response is cached, so that
each request is measured. An error that is no response of the handler (`faults.py`) is not measured.
Source: KIP-13, KIP-124, KIP-219; `KafkaApis`, `RequestHandlerHelper` and `ClientRequestQuotaManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.exchanges.peers import replica_id_of
from klamm.server.requests.context import Context
from klamm.server.requests.delayed_response import DelayedResponse
from klamm.server.requests.quotas import Enforced, znode_name

_THROTTLE_TIME = "throttleTimeMs"


def handle_throttled(enforced: Enforced, handle: Callable[[Context, Any], Any], ctx: Context, request: Any) -> Any:
    """The response of this handler, or a coroutine for it, under quotas."""
    if ctx.api_key == ApiKey.FETCH and replica_id_of(ctx.api_version, request) >= 0:
        return handle(ctx, request)
    throttle = RequestThrottle(enforced, ctx)
    if ctx.api_key == ApiKey.FETCH:
        ctx.peer.throttle = throttle
    try:
        response = handle(ctx, request)
    except BaseException:
        ctx.peer.throttle = None
        raise
    if response.__class__ is DelayedResponse:
        response = response.pending
    if inspect.iscoroutine(response):
        throttle.paused()
        return _settle_later(ctx, throttle, response)
    return throttle.settle(response)


async def _settle_later(ctx: Context, throttle: RequestThrottle, response: Coroutine[Any, Any, Any]) -> Any:
    try:
        settled = await _Steps(throttle, response)
        while settled.__class__ is DelayedResponse:  # nothing is pipelined under quotas
            settled = await _Steps(throttle, settled.pending)
        return throttle.settle(settled)
    finally:
        ctx.peer.throttle = None


class RequestThrottle:
    """One request under the quotas of its client."""

    __slots__ = ("_begun", "_client", "_ctx", "_enforced", "_seconds", "_user", "_wait_ms")

    def __init__(self, enforced: Enforced, ctx: Context) -> None:
        self._enforced = enforced
        self._ctx = ctx
        self._user, self._client = znode_name(ctx.peer.principal.name), znode_name(ctx.client_id or "")
        self._begun = ctx.peer.arrival[1]
        self._seconds = 0.0
        self._wait_ms: int | None = None

    def paused(self) -> None:
        """The event loop does something else."""
        self._seconds += self._ctx.services.clock.monotonic() - self._begun

    def resumed(self) -> None:
        """The event loop goes on with the request."""
        self._begun = self._ctx.services.clock.monotonic()

    def most_fetched(self) -> int | None:
        """The bytes that the client may fetch without being throttled for sure; None without a limit."""
        most = self._enforced.fetched.most_in_window(self._user, self._client)
        return int(most) if most < 1 << 31 else None

    def fetched(self, size: int) -> int:
        """Record a Fetch whose response has this size; returns the throttle time in ms. If it is not 0, the response must be empty."""
        fetched, now_ms = self._enforced.fetched, self._now_ms()
        self.paused()
        wait_ms = max(self._record_time(now_ms), fetched.record(self._user, self._client, size, now_ms))
        self.resumed()
        if wait_ms:
            fetched.take_back(self._user, self._client, size, now_ms)
        self._wait_ms = wait_ms
        return wait_ms

    def settle(self, response: Any) -> Any:
        """Record the request, mute its connection if it must wait; returns the response with the throttle time."""
        ctx = self._ctx
        ctx.peer.throttle = None
        if self._wait_ms is not None:  # a Fetch, whose response has its throttle time
            self._mute(self._wait_ms)
            return response
        self.paused()
        now_ms, wait_ms = self._now_ms(), 0
        if ctx.api_key == ApiKey.PRODUCE:
            wait_ms = self._enforced.produced.record(self._user, self._client, ctx.peer.arrival[0], now_ms)
        if response is None:  # acks=0
            self._mute(wait_ms)
            return None
        wait_ms = max(wait_ms, self._record_time(now_ms))
        own_ms: int = getattr(response, "throttle_time_ms", 0)
        self._mute(max(wait_ms, own_ms))
        return response if wait_ms <= own_ms else with_throttle_time(ctx, response, wait_ms)

    def _record_time(self, now_ms: int) -> int:
        return self._enforced.requests.record(self._user, self._client, self._seconds * 100, now_ms)

    def _mute(self, wait_ms: int) -> None:
        if wait_ms > 0 and self._ctx.peer.mute is not None:
            self._ctx.peer.mute(wait_ms / 1000)

    def _now_ms(self) -> int:
        return int(self._ctx.services.clock.monotonic() * 1000)


class _Steps:
    """Awaits a coroutine, and tells the throttle when the event loop goes on with it and when it pauses."""

    def __init__(self, throttle: RequestThrottle, steps: Coroutine[Any, Any, Any]) -> None:
        self._throttle = throttle
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        throttle, step, value = self._throttle, self._steps.send, None
        while True:
            throttle.resumed()
            try:
                pending = step(value)
            except StopIteration as end:
                throttle.paused()
                throttle.resumed()
                return end.value
            throttle.paused()
            step, value = self._steps.send, None
            try:
                value = yield pending
            except GeneratorExit:
                self._steps.close()
                raise
            except BaseException as problem:  # noqa: BLE001 the coroutine decides what to do with it
                step, value = self._steps.throw, problem


def with_throttle_time(ctx: Context, response: Any, wait_ms: int) -> Any:
    """The response with this throttle time, as far as its version has one."""
    name = f"{APIS[ctx.api_key].name}Response"
    fields = messages.message_type(name).schema.root.fields
    if not any(field.name == _THROTTLE_TIME and ctx.api_version in field.versions for field in fields):
        return response
    if isinstance(response, list):
        response = b"".join(response)
    if isinstance(response, bytes):
        response = messages.decode(name, ctx.api_version, response)[0]
    return response._replace(throttle_time_ms=wait_ms)
