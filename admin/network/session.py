"""Chooses the broker for a request: the controller, a certain broker, or any broker.

The session knows the brokers and the controller from the last Metadata response. If the controller responds NOT_CONTROLLER, or its
connection is lost, the session looks for the controller again, each time at another broker, until the deadline of the call. A request whose
response was lost is sent again, so a broker may handle it twice.

A lookup tries the brokers of the last Metadata response and the bootstrap servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from functools import partial
from typing import Any, TypeVar

from klamm.admin.calls.errors import AdminError, BadResponse, Disconnected, TimedOut, Unsupported, response_error
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.settings import Address, Settings
from klamm.admin.calls.values import Broker
from klamm.admin.network.pool import Connections, Make
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Outcomes = dict[K, AdminError | None]

RETRY_BACKOFF_S = 0.1
"""Pause between two attempts."""

_NAMES_WITHOUT_CREATION = 4
"""Since this version a request can forbid the broker to create topics that do not exist."""

_ELSEWHERE = (Disconnected, TimedOut, BadResponse)
"""Errors of one broker, after which another broker is tried."""


class Session:
    """The brokers and the controller of one client's cluster."""

    def __init__(self, settings: Settings) -> None:
        self._bootstrap = settings.bootstrap
        self._connections = Connections(settings)
        self._brokers: dict[int, Broker] = {}
        self._controller_id = -1
        self._turn = 0

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    # Any broker

    async def to_any(self, scope: Scope, key: ApiKey, make: Make) -> tuple[Any, int]:
        """Response and version of the first broker that responds. Unsupported is raised at once, without trying another broker."""
        while True:
            candidates = self._candidates()
            for _ in candidates:
                address = candidates[self._turn % len(candidates)]
                try:
                    return await self._connections.send(scope, address, key, make, scope.attempt())
                except _ELSEWHERE as error:
                    self._note(scope, error)
                    self._turn += 1
            await scope.pause(RETRY_BACKOFF_S)

    def try_another(self) -> None:
        """Send the next request of `to_any` to another broker: the metadata of the last one may be old."""
        self._turn += 1

    def _candidates(self) -> list[Address]:
        """Addresses to try: the brokers of the last Metadata response, and the bootstrap servers."""
        return list(dict.fromkeys([*((broker.host, broker.port) for broker in self._brokers.values()), *self._bootstrap]))

    async def metadata(self, scope: Scope, make: Make | None = None) -> tuple[Any, int]:
        """A Metadata response of any broker, without topics unless `make` requests some. The session keeps its brokers and controller."""
        response, version = await self.to_any(scope, ApiKey.METADATA, make or _no_topics)
        self._brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self._controller_id = response.controller_id
        return response, version

    def broker_ids(self) -> list[int]:
        """The live brokers of the last Metadata response, in order."""
        return sorted(self._brokers)

    # A certain broker

    async def to_broker(self, scope: Scope, broker_id: int, key: ApiKey, make: Make, until: float | None = None) -> tuple[Any, int]:
        """Response and version of this broker. Raises BROKER_NOT_AVAILABLE if it is not in the cluster, and Disconnected at once if it is
        not reachable. `until` is the deadline of the response on the monotonic clock; None means the deadline of the call.
        """
        end = scope.until if until is None else until
        broker = self._brokers.get(broker_id)
        if broker is not None:
            try:
                return await self._connections.send(scope, (broker.host, broker.port), key, make, end)
            except Disconnected as error:
                self._note(scope, error)
        await self.metadata(scope)
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise response_error(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id} in the cluster")
        return await self._connections.send(scope, (broker.host, broker.port), key, make, end)

    # The controller

    async def to_controller(self, scope: Scope, key: ApiKey, make: Make, refused: Callable[[Any], bool]) -> tuple[Any, int]:
        """Response and version of the active controller. `refused` returns whether a response is NOT_CONTROLLER.

        A NOT_CONTROLLER response is returned only if there is no time for another attempt.
        """
        while True:
            fresh = self._controller_id not in self._brokers
            controller = await self.controller(scope)
            try:
                response = await self._connections.send(scope, (controller.host, controller.port), key, make, scope.until)
            except Disconnected as error:
                self._note(scope, error)
            except TimedOut:
                self._forget_controller()  # later calls do not wait for this broker again, unless it is still the controller
                raise
            except Unsupported:
                if fresh:
                    raise
            else:
                if not refused(response[0]) or scope.remaining_s <= RETRY_BACKOFF_S:
                    return response
                scope.last_error = response_error(
                    ErrorCode.NOT_CONTROLLER, f"broker {controller.id} is the controller in the metadata, but not the active controller"
                )
            self._forget_controller()
            await scope.pause(RETRY_BACKOFF_S)

    async def each_to_controller(
        self,
        scope: Scope,
        key: ApiKey,
        wanted: Iterable[K] | None,
        make: Callable[[list[K] | None, int], Any],
        read: Callable[[Any], Outcomes[K]],
    ) -> Outcomes[K]:
        """The outcome of each key of a request to the controller. `wanted` None means all keys.

        Keys with NOT_CONTROLLER are sent again, to the new controller, until the deadline. The others keep their outcome.
        """
        pending = None if wanted is None else list(wanted)
        outcomes: Outcomes[K] = dict.fromkeys(
            pending or (), response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response")
        )
        refused: list[K] = []
        while True:
            try:
                response, _ = await self.to_controller(scope, key, partial(make, pending), _never)
            except AdminError as error:
                if not refused:
                    raise
                return outcomes | dict.fromkeys(refused, error)
            got = read(response)
            outcomes |= got
            refused = [each for each, error in got.items() if error is not None and error.code is ErrorCode.NOT_CONTROLLER]
            if not refused or scope.remaining_s <= RETRY_BACKOFF_S:
                return outcomes
            if len(refused) < len(got):
                pending = refused
            self._forget_controller()
            await scope.pause(RETRY_BACKOFF_S)

    async def controller(self, scope: Scope) -> Broker:
        """The active controller. It is looked up if it is not known."""
        while True:
            controller = self._brokers.get(self._controller_id)
            if controller is not None:
                return controller
            await self.metadata(scope)
            if self._controller_id not in self._brokers:
                scope.last_error = response_error(ErrorCode.NOT_CONTROLLER, "the cluster has no active controller")
                self._turn += 1
                await scope.pause(RETRY_BACKOFF_S)

    async def supports(self, scope: Scope, key: int) -> bool:
        """Whether the active controller supports the API in a version that this client can send."""
        while True:
            controller = await self.controller(scope)
            try:
                return await self._connections.supports(scope, (controller.host, controller.port), key, scope.until)
            except Disconnected as error:
                self._note(scope, error)
            self._forget_controller()
            await scope.pause(RETRY_BACKOFF_S)

    def _forget_controller(self) -> None:
        self._controller_id = -1
        self._turn += 1

    # Side by side

    async def gather(self, coroutines: dict[K, Coroutine[Any, Any, T]]) -> dict[K, T | AdminError]:
        """The results of the coroutines, which run in parallel; if one raised an AdminError, the error. They end by the deadline of the
        call.
        """
        outcomes = await asyncio.gather(*coroutines.values(), return_exceptions=True)
        results: dict[K, T | AdminError] = {}
        for key, outcome in zip(coroutines, outcomes, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, AdminError):
                raise outcome
            results[key] = outcome
        return results

    def _note(self, scope: Scope, error: AdminError) -> None:
        """Keep the error as the last one. If no time is left, raise TimedOut.

        The error of an attempt that was cut off by the deadline is not kept: the one before it says more.
        """
        if scope.remaining_s > 0:
            scope.last_error = error
            if scope.on_retry is not None:
                scope.on_retry(error)
            return
        before = scope.last_error
        is_cut_off = isinstance(error, TimedOut) or (isinstance(error, Disconnected) and isinstance(before, BadResponse))
        cause = before if is_cut_off and before is not None else error
        if isinstance(cause, TimedOut):  # its text has the time of the call
            raise TimedOut(cause.message) from error
        scope.last_error = cause
        raise scope.too_late() from error


def metadata_of_topics(topics: list[str] | None) -> Make:
    """Builds a Metadata request for these topics, or for all. For old brokers it is always for all: they would create missing ones."""

    def make(version: int) -> messages.MetadataRequest:
        if version == 0:
            raise Unsupported("the broker is older than Kafka 0.10: its Metadata response does not have the controller")
        if topics is None or version < _NAMES_WITHOUT_CREATION:
            return messages.MetadataRequest(topics=None, allow_auto_topic_creation=version < _NAMES_WITHOUT_CREATION)
        named = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        return messages.MetadataRequest(topics=named, allow_auto_topic_creation=False)

    return make


def _no_topics(version: int) -> messages.MetadataRequest:
    """A request for brokers and controller only. Version 0 is not possible: it has no controller, and an empty list of topics means all
    topics.
    """
    if version == 0:
        raise Unsupported("the broker is older than Kafka 0.10: its Metadata response does not have the controller")
    return messages.MetadataRequest(topics=[])


def _never(_response: Any) -> bool:
    """Always false: this response has no error for the whole request."""
    return False
