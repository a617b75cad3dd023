"""`klamm.Proxy`: a proxy in front of any Kafka cluster for programs and tests, with or without asyncio.

`with` runs the proxy on an event loop in its own thread and gives a `BlockingProxy`; `async with` runs it on the caller's loop and gives an
`AsyncProxy`. Both have the same properties and methods: they block in the first, and those that wait are coroutines in the second.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from klamm.control.bodies import checked_filter
from klamm.control.verbs.steered_proxy import SteeredProxy
from klamm.protocol.addresses import address_of
from klamm.proxy.tls import BrokerTls, ClientTls
from klamm.server.faults.fault import DiskHit, Fault, Hit
from klamm.server.local.loop_thread import LoopThread
from klamm.testing.arguments import FaultArguments, RequestFilter, fault_body
from klamm.testing.contexts import Contexts
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


class BlockingProxyFault:
    """A fault of a proxy, for threads. `with` removes it at the end; its counts stay."""

    def __init__(self, fault: ProxyFault, thread: LoopThread) -> None:
        self._fault = fault
        self._thread = thread
        self.number = fault.number

    @property
    def hits(self) -> int:
        """How many requests it hit."""
        return self._fault.hits

    @property
    def last(self) -> list[Hit | DiskHit]:
        """The last 100 requests that it hit."""
        return self._fault.last

    def wait(self, hits: int = 1, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until it has hit this number of requests. Raises WaitTimedOut."""
        self._thread.call(self._fault.wait(hits, timeout_s=timeout_s))

    def remove(self) -> None:
        """End it. Does nothing if it is removed, or if the proxy has ended."""
        if self._thread.runs:
            self._thread.call(self._removed())

    async def _removed(self) -> None:
        self._fault.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


class BlockingProxy:
    """A running proxy, for threads without an event loop. Any thread may use it."""

    def __init__(self, proxy: AsyncProxy, thread: LoopThread) -> None:
        self._proxy = proxy
        self._thread = thread

    @property
    def bootstrap_servers(self) -> str:
        """host:port of each listener, the first one first."""
        return self._proxy.bootstrap_servers

    @property
    def control_url(self) -> str | None:
        """Address of the control API, None without `control_port`."""
        return self._proxy.control_url

    def fault(self, **arguments: Unpack[FaultArguments]) -> BlockingProxyFault:
        """A fault that requests meet from now on: see `AsyncProxy.fault`. Raises Refused."""
        return BlockingProxyFault(self._thread.call(self._proxy.fault(**arguments)), self._thread)

    def requests(self, **wanted: Unpack[RequestFilter]) -> list[Request]:
        """The last requests that match, oldest first: see `AsyncProxy.requests`. Raises Refused."""
        return self._thread.call(self._proxy.requests(**wanted))

    def clear(self) -> None:
        """Remove all faults."""
        self._thread.call(self._proxy.clear())


class Proxy(Contexts[SteeredProxy, BlockingProxy, AsyncProxy]):
    """A proxy in front of a cluster: it is ready when the body of `with` begins, and stops when that ends.

        with klamm.Proxy("kafka-1:9092") as proxy:
            proxy.fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER", first=2)
            produce(proxy.bootstrap_servers)
            assert proxy.requests(api="Produce", error="any")

    With `async with` the methods are coroutines on the caller's loop: `await proxy.fault(…)`.
    """

    subject = "proxy"

    def __init__(
        self,
        upstream: str | Iterable[str],
        *,
        listen: str = "127.0.0.1:0",
        journal: str | os.PathLike[str] | None = None,
        run: str | None = None,
        advertised: str | None = None,
        client_tls: ClientTls | None = None,
        broker_tls: BrokerTls | None = None,
        control_port: int | None = None,
    ) -> None:
        """`upstream` are addresses of brokers, `host:port[,…]`. The other arguments are the options of `klamm proxy`: `journal` is the
        folder of the journals, `client_tls` the certificate that clients see, `broker_tls` how those of brokers are checked
        (`klamm.proxy.tls`). Raises ValueError for what is not host:port.
        """
        super().__init__()
        texts = upstream.split(",") if isinstance(upstream, str) else list(upstream)
        self._upstream = [address_of(text.strip()) for text in texts]
        self._listen = address_of(listen, lowest_port=0)
        self._options: dict[str, Any] = {
            "lake": None if journal is None else Path(journal), "run": run, "advertised": advertised, "client_tls": client_tls,
            "broker_tls": broker_tls, "control_port": control_port,
        }

    def _new(self) -> SteeredProxy:
        return SteeredProxy(self._upstream, self._listen, **self._options)

    def _blocking(self, running: SteeredProxy, thread: LoopThread) -> BlockingProxy:
        return BlockingProxy(AsyncProxy(running), thread)

    def _on_loop(self, running: SteeredProxy) -> AsyncProxy:
        return AsyncProxy(running)
