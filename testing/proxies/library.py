"""`klamm.Proxy`: a proxy in front of any Kafka cluster for programs and tests, with or without asyncio.

`with` runs the proxy on an event loop in its own thread and gives a `BlockingProxy`; `async with` runs it on the caller's loop and gives an
`AsyncProxy`. Both have the same properties and methods: they block in the first, and those that wait are coroutines in the second.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from klamm.control.verbs.steered_proxy import SteeredProxy
from klamm.protocol.addresses import address_of
from klamm.proxy.tls import BrokerTls, ClientTls
from klamm.server.local.loop_thread import LoopThread
from klamm.testing.contexts import Contexts
from klamm.testing.proxies.async_proxy import AsyncProxy
from klamm.testing.proxies.blocking_proxy import BlockingProxy

__tracebackhide__ = True  # pytest leaves out the lines of this module


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
        (`klamm.proxy.tls`). Raises ValueError for what is not host:port, and for a `run` without a journal.
        """
        super().__init__()
        if run is not None and journal is None:
            raise ValueError("run is the name of a journal's run: it needs journal")
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
