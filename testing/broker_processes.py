"""A cluster whose brokers are in processes of their own, as the verbs of a cluster for tests need it.

It runs on an event loop in a thread of its own. So a verb that returns a value can wait for the processes, some milliseconds, on any
thread, also on that of the caller's event loop. Logs are on disk, so that a broker that is killed finds them again.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from klamm.control.processes.steered_processes import SteeredProcessCluster
from klamm.server.local.loop_thread import LoopThread
from klamm.zk.embedded.server import EmbeddedZooKeeper

__tracebackhide__ = True  # pytest leaves out the lines of this module

CHILD = [sys.executable, "-m", "klamm.cli.serving.owned_broker", "warning"]
T = TypeVar("T")


class BrokerProcesses(SteeredProcessCluster):
    """A `SteeredProcessCluster` that any thread and any event loop may use (`Steered`)."""

    def __init__(self, *, data_dir: Path | None = None, zookeeper: str | None = None, **shape: Any) -> None:
        """`shape` are the other arguments of `SteeredProcessCluster`."""
        self._temporary = None if data_dir is not None else tempfile.TemporaryDirectory(prefix="klamm-", ignore_cleanup_errors=True)
        folder = data_dir if self._temporary is None else Path(self._temporary.name)
        server = EmbeddedZooKeeper() if zookeeper is None and data_dir is None else zookeeper
        super().__init__(CHILD, data_dir=folder, zookeeper=server, **shape)
        self.requests.is_followed = True
        self._thread: LoopThread | None = None

    async def start(self) -> None:
        """Start the thread of the owner, and the processes. Raises what the cluster raises; then call `stop`."""
        self._thread = LoopThread("klamm-processes")
        await self.then(super().start())

    async def stop(self) -> None:
        """Stop the processes, and the thread."""
        if self._thread is None:
            return
        try:
            await self.then(super().stop())
        finally:
            await asyncio.to_thread(self._thread.close)
            if self._temporary is not None:
                await asyncio.to_thread(self._temporary.cleanup)

    def now(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb returns, after some milliseconds."""
        assert self._thread is not None
        return self._thread.call(work)

    async def then(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb returns."""
        assert self._thread is not None
        return await asyncio.wrap_future(self._thread.begin(work))
