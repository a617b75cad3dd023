"""A clock that only moves when it is told to. A test can run through hours of timers as fast as their work is done.

Brokers with this clock still use real sockets and a real ZooKeeper. Their work takes real time, but no time of this clock. So the caller
waits after each timer, with `settle`, until the work that it started has ended; then the time moves to the next timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from klamm.server.local.timer_clock import TimerClock

START_MS = 1_700_000_000_000


class DrivenClock(TimerClock):
    """A clock that `advance` and `jump` move. `start_ms` is the wall time at the beginning."""

    def __init__(self, start_ms: int = START_MS) -> None:
        super().__init__()
        self._start_ms = start_ms
        self._now_s = 0.0

    def now_ms(self) -> int:
        return self._start_ms + int(self._now_s * 1000)

    def monotonic(self) -> float:
        return self._now_s

    async def advance(self, seconds: float, settle: Callable[[], Awaitable[object]] | None = None) -> int:
        """Let `seconds` pass and fire every timer at its time, in order; returns how many fired.

        After all timers that are due at the same time, `settle` is awaited; without it the event loop runs once.
        """
        end_s = self._now_s + seconds
        fired = 0
        while (timer := self._next(end_s)) is not None:
            self._now_s = timer.due
            fired += self._fire()
            await (asyncio.sleep(0) if settle is None else settle())
        self._now_s = end_s
        return fired

    def jump(self, seconds: float) -> int:
        """Let `seconds` pass at once, as if the process did not run. Timers that were due fire now, late; returns how many."""
        self._now_s += seconds
        return self._fire()
