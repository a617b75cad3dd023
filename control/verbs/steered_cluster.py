"""A local cluster with everything that steers it: its history, a clock that can be moved, and the HTTP interface."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from klamm.control.bodies import checked_filter
from klamm.control.broker_control import BrokerControl
from klamm.control.history import Exchange, History
from klamm.control.json_object import JsonObject
from klamm.control.verbs.model import Control
from klamm.control.verbs.parts import OwnPart, Parts
from klamm.control.verbs.served_control import ServedControl
from klamm.control.verbs.shares import ALL
from klamm.controller.changes import Change, Subscriber
from klamm.seams.steering import HeldPhase
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.changed_configs import sessions_of
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.steered_clock import SteeredClock

log = logging.getLogger(__name__)
__tracebackhide__ = True  # pytest leaves out the lines of this module

T = TypeVar("T")


class _Told:
    """Gives the control what happens at the brokers."""

    def __init__(self, control: Control) -> None:
        self._control = control

    @property
    def has_readers(self) -> bool:
        """Whether somebody reads events."""
        return self._control.events.has_readers

    def add(self, kind: str, what: JsonObject) -> None:
        """Something happened."""
        self._control.take(ALL, kind, what)


class OwnRequests:
    """The requests of the brokers in this process (`control/verbs/cluster.py`)."""

    def __init__(self, own: BrokerControl, cluster: LocalCluster) -> None:
        self._own = own
        self._cluster = cluster

    @property
    def total(self) -> int:
        """How many there were since the start."""
        return self._own.history.total

    async def requests(self, **query: Any) -> JsonObject:
        """The last requests that match."""
        return await self._own.requests(**query)

    async def exchanges(self, **wanted: Any) -> list[Exchange]:
        """Requests of clients that match, newest first."""
        return list(self._own.history.newest(clients_only=True, **checked_filter(wanted, range(1, self._cluster.count + 1))))

    def last(self) -> int:
        """A number that no request has passed yet."""
        return self._own.history.total

    def newest(self, **wanted: Any) -> list[Exchange]:
        """All requests that match, newest first."""
        return list(self._own.history.newest(**wanted))

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
        names = (broker.metadata.topic_name(topic_id) for broker in self._own.serving())
        return next((str(name) for name in names if name is not None), None)


class SteeredCluster(ServedControl, LocalCluster):
    """A `LocalCluster` that serves its control API while it runs. `control` has the same verbs for programs on its event loop."""

    def __init__(
        self, brokers: int = 3, *, control_host: str = "127.0.0.1", control_port: int | None = 0, control_token: str | None = None,
        seams: Seams | None = None, **shape: Any,
    ) -> None:
        """`control_port`: 0 for a free one, None for no HTTP. `shape` are the other arguments of `LocalCluster`.

        Raises CannotServe: an address beyond loopback without a token.
        """
        history, clock = History(), SteeredClock()
        given = Seams() if seams is None else seams
        own = replace(given, clock=clock, history=history, subscriber=self._subscriber, watch_coordinators=lambda _: self._own.coordinated)
        super().__init__(brokers, can_stand=True, seams=own, **shape)
        self._given_subscriber = given.subscriber
        parts = Parts({}, lambda: self.count)
        self.control = Control(self, parts, clock, sessions_of(lambda: self.awake))
        self._serve(self.control, control_host, control_port, control_token)
        self._own = BrokerControl(self, history, clock, _Told(self.control), self._crash_held)
        self._own.present = self.control.state
        self.requests = self.control.history = OwnRequests(self._own, self)
        parts.parts[ALL] = OwnPart(self._own)

    async def start(self) -> None:
        """Start the control API and the cluster; return when both are ready. Raises CannotServe, and what the cluster raises."""
        await self._start_server()
        try:
            await super().start()
            await self.control.remember()
        except BaseException:
            await self._end_control()
            raise

    async def stop(self) -> None:
        """End the control API, let everything go on that is held, and stop the cluster."""
        self.steering.release_at_end(log)
        await self._end_control()
        await super().stop()

    def now(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb of `control` returns that does not suspend, because it needs nothing but what brokers of this process have."""
        try:
            work.send(None)
        except StopIteration as done:
            value: T = done.value
            return value
        work.close()
        raise RuntimeError("this verb has to be awaited")

    async def then(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb of `control` returns."""
        return await work

    def _crash_held(self, number: int, at: HeldPhase[Any]) -> None:
        """Kill the broker that reached a phase. Every event of the loop that comes later finds it dead."""
        self.control.crashed(at.broker_id, type(at.phase).__name__)

    def _subscriber(self, broker_id: int) -> Subscriber:
        other, changed = self._given_subscriber(broker_id), partial(self._own.changed, broker_id)
        if other is None:
            return changed

        def both(change: Change) -> None:
            other(change)
            changed(change)

        return both

    async def _end_control(self) -> None:
        await self.control.let_go()
        await self._stop_server()
        self.faults.clear()
        self.control.state.close()
