"""The verbs of a proxy (`klamm proxy --control-port`): those of `Control` that need no broker of ours. The others are refused by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

from klamm.control import history, views
from klamm.control.bodies import FaultBody, checked_filter, fault_of
from klamm.control.event_log import EventLog
from klamm.control.json_object import JsonObject
from klamm.control.proxied_requests import ProxiedRequests
from klamm.control.refusal import Refused
from klamm.control.verbs.model import MAX_LISTED, Control
from klamm.control.verbs.routes import Route, Verb
from klamm.control.verbs.shared_state import check_timeout
from klamm.control.verbs.table import TABLE, Place
from klamm.server.faults.fault import Fault

__tracebackhide__ = True  # pytest leaves out the lines of this module

_UNKNOWN = ("from_broker", "principal", "disk", "log_dir", "while_")
"""What a filter may have that a proxy does not know."""


class Passed(Protocol):
    """The proxy whose requests are steered."""

    @property
    def brokers(self) -> list[int]:
        """The brokers that were seen."""

    async def topic_ids(self) -> dict[str, bytes]:
        """The topics of the cluster with their ids."""


class ProxyControl:
    """Steers a proxy. A verb has the name and the arguments that it has in `Control`."""

    def __init__(self, proxy: Passed, requests: ProxiedRequests) -> None:
        self.events = EventLog()
        self.requests_of_clients = requests
        self._proxy = proxy
        self._faults = requests.faults

    async def add_fault(self, body: FaultBody) -> JsonObject:
        """A new fault. Raises Refused, also for what a proxy does not know of a request."""
        for name in _UNKNOWN:
            if getattr(body.filter, name) is not None:
                raise Refused(f"a proxy does not know {name.rstrip('_')} of a request: its faults cannot have that")
        if body.effect.slow_disk_ms is not None:
            raise Refused("a proxy has no disks: its faults have no slow_disk_ms")
        parts = fault_of(body, self._proxy.brokers)
        if body.filter.topic is not None or body.filter.topic_id is not None:
            self.requests_of_clients.around.metadata.learn(await self._proxy.topic_ids())
        fault = self._faults.add(*parts)
        self.events.add("fault", views.fault(fault))
        return {"id": fault.number}

    async def faults(self) -> JsonObject:
        """All faults."""
        return {"faults": [views.fault(each) for each in self._faults]}

    async def fault(self, number: int, *, hits: int | None = None, timeout_ms: int = 30_000) -> JsonObject:
        """A fault with its hits. With `hits` it is waited for until it has this number of them."""
        fault = self.fault_numbered(number)
        if hits is not None:
            check_timeout(timeout_ms)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await fault.reached(hits)
            except TimeoutError:
                raise Refused(f"not within {timeout_ms} ms: fault {number} has {fault.hits} of {hits} hits", 408) from None
        return views.fault(fault)

    async def delete_faults(self) -> JsonObject:
        """Remove all faults."""
        return self._deleted([each.number for each in self._faults])

    async def delete_fault(self, number: int) -> JsonObject:
        """Remove a fault."""
        return self._deleted([self.fault_numbered(number).number])

    async def requests(
        self, *, api: str | None = None, client_id: str | None = None, topic: str | None = None, group: str | None = None,
        broker: int | None = None, error: str | None = None, clients: bool = False, after: int = 0, limit: int = 100,
    ) -> JsonObject:
        """The last requests that match, oldest first, as clients sent them and with the responses that they got."""
        if not 1 <= limit <= MAX_LISTED:
            raise Refused(f"limit: from 1 to {MAX_LISTED}")
        wanted = checked_filter({"api": api, "broker": broker, "error": error}, self._proxy.brokers)
        seen = self.requests_of_clients.history
        found = seen.newest(client_id=client_id, topic=topic, group=group, clients_only=clients, after=after, **wanted)
        return {"requests": [history.as_json(each) for each in reversed([*islice(found, limit)])], "total": seen.total}

    async def reset(self) -> JsonObject:
        """Remove all faults."""
        return {"faults": (await self.delete_faults())["deleted"]}

    def fault_numbered(self, number: int) -> Fault:
        """The fault with this number. Raises Refused."""
        try:
            return self._faults[number]
        except KeyError:
            raise Refused(f"there is no fault {number}", 404) from None

    def _deleted(self, numbers: Sequence[int]) -> JsonObject:
        return {"deleted": len(numbers), "faults": [views.fault(self._faults.remove(number)) for number in numbers]}

    def end(self) -> None:
        """The control API ends: no request meets a fault any more."""
        self._faults.clear()


def _refused(place: Place) -> Verb:
    async def refuse(control: ProxyControl, **values: Any) -> Any:
        raise Refused(f"a proxy cannot do {place.method} {place.path} ({place.summary}): it has no brokers", 501)

    return refuse


def _of_proxy(name: str, place: Place) -> Route:
    verb = getattr(ProxyControl, name, None)
    route = Route(place, getattr(Control, name) if verb is None else verb)
    if verb is None:
        route.act = _refused(place)
    return route


PROXY_ROUTES = tuple(_of_proxy(name, place) for name, place in TABLE.items())
"""The table of the control API, for a proxy."""
