"""The life of a server process: start, report that it is ready, wait for a signal or a failure, stop in order.

SIGINT and SIGTERM stop the process at any time. If it is not ready yet, that is a failure (`StoppedEarly`). A second signal ends it at
once, with its child processes. Signals are recorded from the beginning, before there is an event loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Protocol

from klamm.cli.failures import StoppedEarly

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Serving(Protocol):
    """A broker or a cluster."""

    async def start(self) -> None:
        """Start and return when ready. May be cancelled."""

    async def stop(self) -> None:
        """Shut down in order, also after a start that failed or was cancelled."""


class StopSignals:
    """Records SIGINT and SIGTERM, and lets a task wait for them."""

    def __init__(self) -> None:
        """Install the signal handlers."""
        self._received: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    @property
    def received(self) -> int | None:
        """Number of the first signal; None before it."""
        return self._received

    async def wait(self) -> None:
        """Wait for the first signal."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)
        if self._received is None:
            await self._stop.wait()

    def _on_signal(self, number: int, _frame: FrameType | None = None) -> None:
        if self._received is not None:
            os._exit(128 + number)
        self._received = number
        if self._stop is not None:
            self._stop.set()


async def _nothing_fails() -> None:
    await asyncio.get_running_loop().create_future()


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
            ready()
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
