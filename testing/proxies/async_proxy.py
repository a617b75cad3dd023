"""A proxy for programs and tests on the event loop that runs it, and its faults."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, Unpack

from klamm.control.bodies import checked_filter
from klamm.control.verbs.steered_proxy import SteeredProxy
from klamm.server.faults.fault import DiskHit, Fault, Hit
from klamm.testing.arguments import FaultArguments, RequestFilter, fault_body
from klamm.testing.request import Request
from klamm.testing.waits import TIMEOUT_S, WaitTimedOut

__tracebackhide__ = True  # pytest leaves out the lines of this module


class ProxyFault:
    """A fault of a proxy. `with` removes it at the end; its counts stay."""

    def __init__(self, proxy: SteeredProxy, fault: Fault) -> None:
        self._proxy = proxy
        self._fault = fault

    @property
    def number(self) -> int:
        """1, 2, … in the order in which the faults were made."""
        return self._fault.number

    @property
    def hits(self) -> int:
        """How many requests it hit."""
        return self._fault.hits

    @property
    def last(self) -> list[Hit | DiskHit]:
        """The last 100 requests that it hit."""
        return list(self._fault.last)

    async def wait(self, hits: int = 1, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until it has hit this number of requests. Raises WaitTimedOut."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._fault.reached(hits)
        except TimeoutError:
            raise WaitTimedOut(f"not within {timeout_s:g} s: {hits} hits of fault {self.number}, it has {self.hits}") from None

    def remove(self) -> None:
        """End it. Does nothing if it is removed."""
        if not self._fault.removed.is_set():
            self._proxy.control.requests_of_clients.faults.remove(self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


class AsyncProxy:
    """A running proxy, on the event loop that runs it."""

    def __init__(self, proxy: SteeredProxy) -> None:
        self._proxy = proxy

    @property
    def bootstrap_servers(self) -> str:
        """host:port of each listener, the first one first."""
        return self._proxy.bootstrap

    @property
    def control_url(self) -> str | None:
        """Address of the control API, None without `control_port`."""
        return self._proxy.control_url

    async def fault(self, **arguments: Unpack[FaultArguments]) -> ProxyFault:
        """A fault that requests meet from now on, with the arguments of `klamm.testing` that a proxy knows (docs/proxy.md). Raises
        Refused.
        """
        control = self._proxy.control
        return ProxyFault(self._proxy, control.fault_numbered((await control.add_fault(fault_body(arguments)))["id"]))

    async def requests(self, **wanted: Unpack[RequestFilter]) -> list[Request]:
        """The last requests that match, oldest first, as clients sent them and with the responses that they got. Raises Refused."""
        found = self._proxy.control.requests_of_clients.history.newest(**checked_filter(wanted, self._proxy.brokers))
        return [Request(each) for each in reversed([*found])]

    async def clear(self) -> None:
        """Remove all faults."""
        await self._proxy.control.delete_faults()
