"""What the verbs of a cluster for tests need of it. The brokers are in this process (`LocalCluster`), or in processes of their own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from klamm.control.bodies import HoldBody
from klamm.control.history import Exchange
from klamm.control.json_object import JsonObject
from klamm.seams.steering import HoldState
from klamm.server.faults.fault import DiskHit, Hit

__tracebackhide__ = True  # pytest leaves out the lines of this module

if TYPE_CHECKING:
    from klamm.control.processes.steered_processes import SteeredProcessCluster
    from klamm.control.steered_cluster import SteeredCluster


class SeenFault(Protocol):
    """A fault as it is now; after it was removed, as it was then."""

    number: int

    @property
    def hits(self) -> int: ...
    @property
    def matches(self) -> int: ...
    @property
    def last(self) -> list[Hit | DiskHit]: ...
    @property
    def is_removed(self) -> bool: ...
    def as_json(self) -> JsonObject:
        """As the control API shows it."""


class SeenHold(Protocol):
    """A hold as it is now; after it was deleted, without what it held."""

    number: int
    body: HoldBody

    @property
    def state(self) -> HoldState: ...
    @property
    def hits(self) -> int:
        """How many phases it held."""

    @property
    def passed(self) -> int:
        """How many passed, since they came before the `nth`."""

    @property
    def held(self) -> list[tuple[int, Any]]:
        """(broker, phase) of what is held, in the order of arrival."""

    def release(self) -> None:
        """End it."""


class OfOneCluster:
    """What both kinds read of their `_cluster`, a SteeredCluster or a SteeredProcessCluster."""

    _cluster: SteeredCluster | SteeredProcessCluster

    @property
    def client(self) -> dict[str, str]:
        return self._cluster.client

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    @property
    def zookeeper(self) -> str:
        return self._cluster.zookeeper

    @property
    def control_url(self) -> str | None:
        return self._cluster.control_url

    @property
    def is_crashing(self) -> bool:
        return self._cluster.control.is_crashing

    def last_event(self) -> int:
        return self._cluster.control.events.total


class Steered(Protocol):
    """A cluster. `control` has the verbs of `klamm.control.model.Control`, whose results may have to be awaited (`value_of`). `now` has
    those of them that are not coroutines in `Control`, and they return values.
    """

    control: Any
    now: Any

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        """(id, host, port) of every running broker, sorted by id."""

    @property
    def client(self) -> dict[str, str]:
        """What clients need besides `bootstrap_servers`, with the names of librdkafka."""

    @property
    def controller_id(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def zookeeper(self) -> str: ...
    @property
    def control_url(self) -> str | None: ...
    @property
    def is_crashing(self) -> bool:
        """Whether a broker that reached the phase of a crash is being killed."""

    def fault(self, number: int) -> SeenFault:
        """The fault with this number."""

    def hold(self, number: int) -> SeenHold:
        """The hold with this number."""

    def exchanges(self, **wanted: Any) -> list[Exchange]:
        """Requests of clients that match, newest first, as `History.newest` finds them. Raises what that raises."""

    def last_request(self) -> int:
        """A number that no request has passed yet."""

    def last_event(self) -> int:
        """The number of the last event."""

    def events(self, since: int) -> list[JsonObject]:
        """The events after this number."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""

    async def replicas(self, topic: str, partition: int) -> Mapping[int, JsonObject]:
        """A partition as each running broker sees it (`views.as_seen`)."""

    async def controllers(self) -> tuple[int, Mapping[int, int | None]]:
        """The active controller, -1 without one, and which one each running broker shows."""


async def value_of(done: Any) -> Any:
    """The value of a verb, which may have to be awaited."""
    return await done if inspect.isawaitable(done) else done
