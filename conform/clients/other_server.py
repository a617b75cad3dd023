"""A server that is not of the suite, behind a proxy of its own: what cases for clients need of a cluster, as far as it has it.

Cases that steer the cluster are Missing there. Those that only use topics, records and groups are decided by the frames at the proxy.
"""

from __future__ import annotations

from typing import Any, NoReturn

from klamm.conform.case import Absent, Unreachable
from klamm.conform.lab import Lab
from klamm.control.verbs.steered_proxy import SteeredProxy
from klamm.protocol.addresses import Address
from klamm.proxy.proxy import ProxyRefused
from klamm.testing.request import Request


class OtherServer:
    """The server at an address. `async with` runs the proxy; raises Unreachable."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._proxy = SteeredProxy([address])
        self._begun = 0
        self.faults: list[Any] = []

    async def __aenter__(self) -> OtherServer:
        try:
            await self._proxy.start()
        except ProxyRefused as reason:
            raise Unreachable(str(reason)) from None
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._proxy.stop()

    def again(self) -> OtherServer:
        """A case begins: requests of the past are not seen any more."""
        self._begun = max((each.number for each in self.requests()), default=self._begun)
        return self

    @property
    def bootstrap_servers(self) -> str:
        """Where clients find the proxy."""
        return self._proxy.bootstrap

    def topic_name(self, name: str) -> str:
        """No name is known before the topic is created."""
        return name

    def requests(self) -> list[Request]:
        """Those of the case, oldest first."""
        return [Request(each) for each in reversed([*self._proxy.control.requests_of_clients.history.newest(after=self._begun)])]

    def fault(self, **arguments: Any) -> NoReturn:
        """The suite has no faults here."""
        raise Absent("the case steers the cluster, which only one of the suite lets it do")

    def __getattr__(self, verb: str) -> Any:
        """All other verbs steer the cluster."""
        if verb.startswith("_"):
            raise AttributeError(verb)
        return self.fault


async def create(lab: Lab, partitions: int | None, more: dict[str, Any]) -> str:
    """The name of a new topic. Raises Absent for one with certain replicas or configs."""
    if more:
        raise Absent("the case places replicas, which only a cluster of the suite lets it do")
    return await lab.topic(partitions or 1)
