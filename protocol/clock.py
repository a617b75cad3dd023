"""Time as everybody in the project takes it: wall time, monotonic time, timers, waits.

Whatever reads the time or waits is given a `Clock`. `SYSTEM_CLOCK` is the plain one; a test has another one that moves when it says so
(`server/local/driven_clock.py`). Waiting for something that happens, and yielding to the event loop, need no clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class Timer(Protocol):
    """A call that will be made."""

    def cancel(self) -> None:
        """Do not make it. Does nothing after it was made."""


class Clock(Protocol):
    """Where time comes from. All methods but the two that read it need a running event loop."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970."""

    def monotonic(self) -> float:
        """Seconds since some moment; it never goes back."""

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        """Call `callback(*arguments)` on the loop after `seconds`."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """`async with` it: what takes longer than `seconds` is cancelled, and TimeoutError is raised."""


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
