"""Clocks: wall time, monotonic time, timers, waits.

All code that reads the time or waits for some time gets a `Clock`. `SYSTEM_CLOCK` is the real one; tests can use a clock that they move
themselves (`server/local/driven_clock.py`). Waiting for an event, and yielding to the event loop, do not need a clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call. Does nothing if it was made already."""


class Clock(Protocol):
    """The interface of clocks. All methods except `now_ms` and `monotonic` need a running event loop."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970."""

    def monotonic(self) -> float:
        """Seconds since some fixed time; it never goes back."""

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        """Call `callback(*arguments)` on the event loop after `seconds`."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """For `async with`: if the body takes longer than `seconds`, it is cancelled and TimeoutError is raised."""


class Now(NamedTuple):
    """The time of an event: `ms` of a clock that never goes back, for deadlines, and wall time, for logs."""

    ms: int
    wall_ms: int


def time_of(clock: Clock) -> Now:
    """The present time of a clock. Milliseconds are rounded: a timer that fires at its deadline does not come too early."""
    return Now(round(clock.monotonic() * 1000), clock.now_ms())


class SystemClock:
    """The time of this machine and the timers of the running event loop."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)
    timeout = staticmethod(asyncio.timeout)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback, *arguments)


SYSTEM_CLOCK: Clock = SystemClock()
