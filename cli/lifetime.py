"""The life of a process that serves: start, say so, wait for a signal or for what makes serving impossible, stop in order.

SIGINT and SIGTERM ask it to stop, whatever it is doing, its start included; a second one ends the process at once (what it owns dies with
it). Signals count from the first moment on, before there is an event loop to hear them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Protocol

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Serving(Protocol):
    """What lives: a broker, or a cluster of them."""

    async def start(self) -> None:
        """Come up; returns when ready. May be cancelled."""

    async def stop(self) -> None:
        """Shut down in order, also after a start that failed or was cancelled."""


class StopSignals:
    """The two signals as one thing to wait for."""

    def __init__(self) -> None:
        """From now on a signal is remembered rather than obeyed by Python."""
        self._asked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        for number in SIGNALS:
            signal.signal(number, self._heard)

    @property
    def asked(self) -> bool:
        """True once a signal came."""
        return self._asked

    async def wait(self) -> None:
        """Wait for the first signal."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._heard, number)
        if not self._asked:
            await self._stop.wait()

    def _heard(self, number: int, _frame: FrameType | None = None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        if self._stop is not None:
            self._stop.set()


async def _nothing_fails() -> None:
    await asyncio.get_running_loop().create_future()


async def live(
    serving: Serving, signals: StopSignals, ready: Callable[[], None], failure: Callable[[], Coroutine[Any, Any, None]] = _nothing_fails
) -> None:
    """Start `serving`, call `ready`, stop at the first signal. A start that fails raises, with everything stopped; so does `failure`,
    which waits for what ends the serving against everybody's will and raises that.
    """
    stop = asyncio.ensure_future(signals.wait())
    await asyncio.sleep(0)  # let it hear signals before anything else runs
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
        if not stop.done():
            failing.result()
    finally:
        await serving.stop()
        await _cancelled(failing)
        await _cancelled(stop)


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel and wait for the end; how it ended is of no interest any more."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
