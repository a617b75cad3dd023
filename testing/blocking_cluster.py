"""The verbs of a cluster for tests, for threads without an event loop: they block. Any thread may use them."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from klamm.control.refusal import Refused
from klamm.server.local.loop_thread import LoopThread
from klamm.testing.async_cluster import AsyncCluster
from klamm.testing.fault import Fault
from klamm.testing.hold import Hold
from klamm.testing.on_thread import OnThread
from klamm.testing.steered_cluster import Steered
from klamm.testing.waits import LOOK_S, TIMEOUT_S, T, WaitTimedOut

__tracebackhide__ = True  # pytest leaves out the lines of this module

_NAMES = {"AsyncCluster": "BlockingCluster", "Fault": "BlockingFault", "Hold": "BlockingHold"}


class BlockingFault(OnThread, of=Fault, names=_NAMES):
    """A fault. `with` removes it at the end; its counts stay."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()


class BlockingHold(OnThread, of=Hold, names=_NAMES):
    """A hold. `with` releases it at the end; its counts stay."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class BlockingCluster(OnThread, of=AsyncCluster, names=_NAMES):
    """A running cluster, for threads without an event loop."""

    def __init__(self, cluster: Steered | AsyncCluster, thread: LoopThread) -> None:
        super().__init__(cluster if isinstance(cluster, AsyncCluster) else AsyncCluster(cluster), thread)

    def wait_until(self, condition: Callable[[], T], what: str = "the condition", *, timeout_s: float = TIMEOUT_S) -> T:
        """Wait until the condition returns something true, and return that. It is called on this thread. Raises WaitTimedOut."""
        if timeout_s < 0:
            raise Refused("timeout_s: 0 or more")
        begun, end = self._inner.here(), time.monotonic() + timeout_s
        while not (value := condition()):
            if time.monotonic() >= end:
                raise WaitTimedOut(self._result_of(lambda: self._inner.wait_text(what, timeout_s, begun)))
            time.sleep(LOOK_S)
        return value
