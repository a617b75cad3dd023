"""The verbs of a proxy, for threads without an event loop: they block. Any thread may use them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from klamm.testing.on_thread import OnThread
from klamm.testing.proxies.async_proxy import AsyncProxy, ProxyFault

__tracebackhide__ = True  # pytest leaves out the lines of this module

_NAMES = {"AsyncProxy": "BlockingProxy", "ProxyFault": "BlockingProxyFault"}


class BlockingProxyFault(OnThread, of=ProxyFault, names=_NAMES):
    """A fault of a proxy. `with` removes it at the end; its counts stay."""

    subject = "proxy"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


class BlockingProxy(OnThread, of=AsyncProxy, names=_NAMES):
    """A running proxy, for threads without an event loop."""

    subject = "proxy"
