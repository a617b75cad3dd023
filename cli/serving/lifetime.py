"""The life of a server process: start, report that it is ready, wait for a signal or a failure, stop in order.

SIGINT and SIGTERM stop the process at any time. If it is not ready yet, that is a failure (`StoppedEarly`). A second signal ends it at
once, with its child processes (`cli/shell/stop_signals.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from klamm.cli.shell.failures import StoppedEarly
from klamm.cli.shell.output import CannotWrite, ReaderGone
from klamm.cli.shell.stop_signals import StopSignals

if TYPE_CHECKING:
    from klamm.server.local.cluster import LocalCluster
    from klamm.server.local.process_cluster import ProcessCluster


class Serving(Protocol):
    """A broker or a cluster."""

    async def start(self) -> None:
        """Start and return when ready. May be cancelled."""

    async def stop(self) -> None:
        """Shut down in order, also after a start that failed or was cancelled."""


class ServedCluster:
    """The cluster of `klamm serve`, which starts when its embedded ZooKeeper has started, if there is one."""

    def __init__(self, cluster: LocalCluster | ProcessCluster, zookeeper_started: Future[None] | None) -> None:
        self._cluster = cluster
        self._zookeeper_started = zookeeper_started

    async def start(self) -> None:
        """Wait for the ZooKeeper, start the brokers, and return when the cluster is ready."""
        if self._zookeeper_started is not None:
            await asyncio.wrap_future(self._zookeeper_started)
        await self._cluster.start()

    async def failure(self) -> None:
        """Wait until the embedded ZooKeeper ends, and raise the reason."""
        if self._zookeeper_started is not None:
            await asyncio.wrap_future(self._zookeeper_started)
        await self._cluster.failure()

    async def stop(self) -> None:
        """Stop the brokers, then the ZooKeeper."""
        await self._cluster.stop()


async def _nothing_fails() -> None:
    await asyncio.get_running_loop().create_future()


def _tell(ready: Callable[[], None]) -> None:
    """Call `ready`. A server whose address nobody reads is a failure with a line, unlike a list that nobody reads to its end."""
    try:
        ready()
    except ReaderGone as gone:
        raise CannotWrite(str(gone)) from gone


async def live(
    serving: Serving, signals: StopSignals, ready: Callable[[], None], failure: Callable[[], Coroutine[Any, Any, None]] = _nothing_fails
) -> None:
    """Start `serving`, call `ready`, stop at the first signal. Raises StoppedEarly if that comes before `ready`.

    `failure` waits for a failure that ends the process, and raises it. If the start or `failure` raises, `serving` is stopped and the
    caller gets the exception.
    """
    stop = asyncio.ensure_future(signals.wait())
    await asyncio.sleep(0)  # `signals.wait` installs its handlers before anything else runs
    start = asyncio.ensure_future(serving.start())
    failing = asyncio.ensure_future(failure())
    try:
        await asyncio.wait({start, stop, failing}, return_when=asyncio.FIRST_COMPLETED)
        if start.done() and not failing.done():
            start.result()
            _tell(ready)
            await asyncio.wait({stop, failing}, return_when=asyncio.FIRST_COMPLETED)
        else:
            await _cancelled(start)
            if stop.done() and signals.received is not None:
                raise StoppedEarly(signals.received)
        if not stop.done():
            failing.result()
    finally:
        await serving.stop()
        await _cancelled(failing)
        await _cancelled(stop)


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel the task and wait until it has ended. Its result is ignored."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
