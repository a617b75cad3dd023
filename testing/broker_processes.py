"""A cluster whose brokers are in processes of their own, as the verbs of a cluster for tests need it.

Its owner (`SteeredProcessCluster`) runs on an event loop in a thread of its own. So a verb that returns a value can wait for the
processes, some milliseconds, on any thread, also on that of the caller's event loop. Logs are on disk, so that a broker that is killed
finds them again.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from klamm.control.processes.steered_processes import SteeredProcessCluster
from klamm.control.verbs.model import Control
from klamm.server.local.loop_thread import LoopThread
from klamm.zk.embedded.server import EmbeddedZooKeeper

__tracebackhide__ = True  # pytest leaves out the lines of this module

CHILD = [sys.executable, "-m", "klamm.cli.serving.owned_broker", "warning"]
T = TypeVar("T")


class BrokerProcesses:
    """The processes of a `SteeredProcessCluster` (`Steered`). `shape` are arguments of that."""

    def __init__(self, *, data_dir: Path | None = None, zookeeper: str | None = None, **shape: Any) -> None:
        self._data_dir = data_dir
        self._zookeeper = zookeeper
        self._shape = shape
        self._temporary: str | None = None
        self._thread: LoopThread
        self._cluster: SteeredProcessCluster

    async def start(self) -> None:
        """Start the thread of the owner, and the processes. Raises what the cluster raises; then nothing is left."""
        self._thread = LoopThread("klamm-processes")
        folder = self._data_dir
        if folder is None:
            self._temporary = tempfile.mkdtemp(prefix="klamm-")
            folder = Path(self._temporary)
        is_own = self._zookeeper is None and self._data_dir is None
        try:
            await self.then(self._start(folder, EmbeddedZooKeeper() if is_own else self._zookeeper))
        except BaseException:
            await self.stop()
            raise

    async def _start(self, folder: Path, zookeeper: str | EmbeddedZooKeeper | None) -> None:
        self._cluster = SteeredProcessCluster(CHILD, data_dir=folder, zookeeper=zookeeper, **self._shape)
        self._cluster.requests.is_followed = True
        await self._cluster.start()

    async def stop(self) -> None:
        """Stop the processes, and the thread."""
        try:
            if hasattr(self, "_cluster"):
                await self.then(self._cluster.stop())
        finally:
            await asyncio.to_thread(self._thread.close)
            if self._temporary is not None:
                await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)

    def now(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb returns, after some milliseconds."""
        return self._thread.call(work)

    async def then(self, work: Coroutine[Any, Any, T]) -> T:
        """What a verb returns."""
        return await asyncio.wrap_future(self._thread.begin(work))

    @property
    def control(self) -> Control:
        return self._cluster.control

    @property
    def addresses(self) -> list[tuple[int, str, int]]:
        return [(each.broker_id, each.host, each.port) for each in self._cluster.processes if each.runs and each.is_ready]

    @property
    def controller_id(self) -> int:
        return self.now(self.control.controllers())[0]

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
