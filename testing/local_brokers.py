"""A cluster whose brokers are in this process, on the event loop of the caller, as the verbs of a cluster for tests need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klamm.control import views
from klamm.control.bodies import checked_filter
from klamm.control.history import Exchange
from klamm.control.holds import Held
from klamm.control.json_object import JsonObject
from klamm.control.steered_cluster import SteeredCluster
from klamm.seams.steering import HoldState
from klamm.server.faults.fault import DiskHit, Fault, Hit
from klamm.testing.steered_cluster import OfOneCluster

__tracebackhide__ = True  # pytest leaves out the lines of this module


class LocalFault:
    """A fault of these brokers."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.number = fault.number

    @property
    def hits(self) -> int:
        return self._fault.hits

    @property
    def matches(self) -> int:
        return self._fault.matches

    @property
    def last(self) -> list[Hit | DiskHit]:
        return list(self._fault.last)

    @property
    def is_removed(self) -> bool:
        return self._fault.removed.is_set()

    def as_json(self) -> JsonObject:
        return views.fault(self._fault)


class LocalHold:
    """A hold of these brokers."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self.number = held.number
        self.body = held.body

    @property
    def state(self) -> HoldState:
        return self._held.hold.state

    @property
    def hits(self) -> int:
        return self._held.hold.hits - self._held.hold.passed

    @property
    def passed(self) -> int:
        return self._held.hold.passed

    @property
    def held(self) -> list[tuple[int, Any]]:
        return [(each.broker_id, each.phase) for each in self._held.hold.held_phases]

    def release(self) -> None:
        self._held.release()


class LocalBrokers(OfOneCluster):
    """The brokers of a `SteeredCluster`."""

    _cluster: SteeredCluster

    def __init__(self, cluster: SteeredCluster) -> None:
        self._cluster = cluster
        self.control = self.now = cluster.control

    async def start(self) -> None:
        await self._cluster.start()

    async def stop(self) -> None:
        await self._cluster.stop()

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        return self._cluster.addresses

    @property
    def controller_id(self) -> int:
        return self._cluster.controller_id

    def fault(self, number: int) -> LocalFault:
        return LocalFault(self._cluster.faults[number])

    def hold(self, number: int) -> LocalHold:
        return LocalHold(self.control.held(number))

    def exchanges(self, **wanted: Any) -> list[Exchange]:
        return list(self.control.history.newest(clients_only=True, **checked_filter(wanted, range(1, self._cluster.count + 1))))

    def last_request(self) -> int:
        return self.control.history.total

    def events(self, since: int) -> list[JsonObject]:
        return self.control.events.since(since)

    def topic_name(self, topic_id: bytes) -> str | None:
        names = (broker.metadata.topic_name(topic_id) for broker in self.control.serving())
        return next((str(name) for name in names if name is not None), None)

    async def replicas(self, topic: str, partition: int) -> Mapping[int, JsonObject]:
        return {broker.id: views.as_seen(broker, topic, partition) for broker in self.control.serving()}

    async def controllers(self) -> tuple[int, Mapping[int, int | None]]:
        return self._cluster.controller_id, {broker.id: broker.metadata.controller_id for broker in self.control.serving()}
