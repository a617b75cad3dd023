"""What the verbs of a cluster for tests need of it. The brokers are in this process, or in processes of their own."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from klamm.control.bodies import HoldBody
from klamm.control.history import at_ms_of
from klamm.control.json_object import JsonObject
from klamm.control.verbs.model import Control
from klamm.control.verbs.shares import ALL, FaultShares
from klamm.seams.steering import HoldState, phase_from_json
from klamm.server.faults.fault import DiskHit, Hit
from klamm.server.phases import phase_named

__tracebackhide__ = True  # pytest leaves out the lines of this module

T = TypeVar("T")


class Steered(Protocol):
    """A cluster. The verbs of `control` are called by `now` or `then`: they belong to its event loop, which may be that of a thread."""

    @property
    def control(self) -> Control: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def now(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb returns that waits for nothing, or for some milliseconds."""

    async def then(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb returns."""

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of every running broker, sorted by id."""

    @property
    def metrics_ports(self) -> dict[int, int]:
        """The port of each broker's metrics, by broker id."""

    @property
    def client(self) -> dict[str, str]:
        """What clients need besides `bootstrap_servers`, with the names of librdkafka."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def zookeeper(self) -> str: ...
    @property
    def control_url(self) -> str | None: ...


class SeenFault:
    """A fault as it is now; after it was removed, as it was then."""

    def __init__(self, cluster: Steered, number: int) -> None:
        self.number = number
        self._cluster = cluster
        self._share = cluster.control.fault_shares(number)

    @property
    def is_removed(self) -> bool:
        return self.number not in self._cluster.control.state.faults

    def look(self) -> FaultShares:
        """Its counts."""
        if not self.is_removed and ALL not in self._cluster.control.parts.parts:
            self._cluster.now(self._cluster.control.state.look_at_faults())
        return self._share

    @property
    def last(self) -> list[Hit | DiskHit]:
        return [_hit(row) for row in self.look().as_json()["last"]]


def _hit(row: JsonObject) -> Hit | DiskHit:
    values = {name: value for name, value in row.items() if name not in ("at", "disk")} | {"at_ms": at_ms_of(row["at"])}
    return DiskHit(operation=row["disk"], **values) if "disk" in row else Hit(**values)


class SeenHold:
    """A hold as it is now; after it was deleted, without what it held."""

    def __init__(self, cluster: Steered, number: int) -> None:
        self.number = number
        self._cluster = cluster
        self._share = cluster.control.hold_shares(number)

    @property
    def body(self) -> HoldBody:
        return self._share.body

    @property
    def is_deleted(self) -> bool:
        return self.number not in self._cluster.control.state.holds

    def _look(self) -> None:
        if not self.is_deleted and ALL not in self._cluster.control.parts.parts:
            self._cluster.now(self._cluster.control.state.look_at_holds())

    @property
    def state(self) -> HoldState:
        self._look()
        return self._share.state

    @property
    def hits(self) -> int:
        """How many phases it held."""
        self._look()
        return self._share.taken

    @property
    def passed(self) -> int:
        """How many passed, since they came before the `nth`."""
        self._look()
        return self._share.hits - self._share.taken

    @property
    def held(self) -> list[tuple[int, Any]]:
        """(broker, phase) of what is held, in the order of arrival."""
        self._look()
        kind = phase_named(self.body.phase)
        return [(row["broker"], phase_from_json(kind, row)) for row in self._share.held]

    def release(self) -> None:
        """End it."""
        if not self.is_deleted:
            self._cluster.now(self._cluster.control.release(self.number))
