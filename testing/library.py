"""`klamm.testing.Cluster`: a cluster for tests, with or without asyncio.

`with` runs the cluster on an event loop in its own thread and gives a `BlockingCluster`; `async with` runs it on the caller's loop and
gives an `AsyncCluster`. Both have the same verbs; those that wait block in the first and are coroutines in the second.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType

from klamm.control.steered_cluster import SteeredCluster
from klamm.server.local import library
from klamm.server.local.loop_thread import LoopThread
from klamm.testing.async_cluster import AsyncCluster
from klamm.testing.blocking_cluster import BlockingCluster


class Cluster:
    """Brokers 1 to `brokers` in this process with a real ZooKeeper, ready when the body of `with` begins.

    >>> import klamm.testing
    >>> with klamm.testing.Cluster(brokers=1, topics="orders:2:1") as cluster:
    ...     fault = cluster.fault(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", first=1)
    ...     fault.hits
    0
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        topics: str | Iterable[str | tuple[str, int, int]] = (),
        config: Mapping[str, str | int | bool] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        metrics_port: int | None = None,
        zookeeper: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        as_version: str | None = None,
        api_versions: Mapping[str, str] | None = None,
        control_port: int | None = None,
    ) -> None:
        """Check the arguments, which are those of `klamm.Cluster`; nothing is started here. Raises ValueError.

        With `control_port` the cluster also serves its control API at this port of 127.0.0.1, 0 for a free one (needs klamm[control]).
        """
        checked = library.Cluster(
            brokers, topics=topics, config=config, host=host, port=port, metrics_port=metrics_port, zookeeper=zookeeper, data_dir=data_dir,
            as_version=as_version, api_versions=api_versions,
        )  # fmt: skip
        self._shape = checked.shape()
        self._control_port = control_port
        self._running: SteeredCluster | None = None
        self._thread: LoopThread | None = None

    def __enter__(self) -> BlockingCluster:
        cluster = self._made()
        thread = self._thread = LoopThread("klamm-testing")
        try:
            thread.call(cluster.start())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return BlockingCluster(cluster, thread)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        cluster, thread = self._running, self._thread
        if cluster is None or thread is None:
            raise RuntimeError("this cluster is not running")
        try:
            thread.call(cluster.stop())
        finally:
            thread.close()
            self._running = self._thread = None

    async def __aenter__(self) -> AsyncCluster:
        cluster = self._made()
        try:
            await cluster.start()
        except BaseException:
            self._running = None
            raise
        return AsyncCluster(cluster)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        cluster, self._running = self._running, None
        if cluster is None:
            raise RuntimeError("this cluster is not running")
        await cluster.stop()

    def _made(self) -> SteeredCluster:
        if self._running is not None:
            raise RuntimeError("this cluster is already running")
        self._running = SteeredCluster(control_port=self._control_port, **self._shape)
        return self._running
