"""The verbs of a proxy, for threads without an event loop: they block. Any thread may use them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from klamm.seams.blocking import Blocking
from klamm.server.local.loop_thread import LoopThread
from klamm.testing.on_thread import result_on
from klamm.testing.proxies.async_proxy import AsyncProxy, ProxyFault

__tracebackhide__ = True  # pytest leaves out the lines of this module

_NAMES = {"AsyncProxy": "BlockingProxy", "ProxyFault": "BlockingProxyFault"}


class BlockingProxyFault(Blocking, of=ProxyFault, names=_NAMES):
    """A fault of a proxy. `with` removes it at the end; its counts stay."""

    def __init__(self, fault: ProxyFault, thread: LoopThread) -> None:
        self._inner = fault
        self._thread = thread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def _result_of(self, call: Callable[[], Any]) -> Any:
        return result_on(self._thread, call, "proxy")


class BlockingProxy(Blocking, of=AsyncProxy, names=_NAMES):
    """A running proxy, for threads without an event loop."""

    def __init__(self, proxy: AsyncProxy, thread: LoopThread) -> None:
        self._inner = proxy
        self._thread = thread

    def _result_of(self, call: Callable[[], Any]) -> Any:
        value = result_on(self._thread, call, "proxy")
        return BlockingProxyFault(value, self._thread) if isinstance(value, ProxyFault) else value
