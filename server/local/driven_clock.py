"""A clock that only moves when it is told to. A test can run through hours of timers as fast as their work is done.

Brokers with this clock still use real sockets and a real ZooKeeper. Their work takes real time, but no time of this clock. So the caller
waits after each timer, with `settle`, until the work that it started has ended; then the time moves to the next timer.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

START_MS = 1_700_000_000_000


class DrivenTimer:
    """A callback with the time when it is due."""

    __slots__ = ("arguments", "callback", "due", "is_cancelled", "number")

    def __init__(self, due: float, number: int, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.due = due
        self.number = number
        self.callback = callback
        self.arguments = arguments
        self.is_cancelled = False

    def __lt__(self, other: DrivenTimer) -> bool:
        return (self.due, self.number) < (other.due, other.number)

    def cancel(self) -> None:
        self.is_cancelled = True


class DrivenClock:
    """A clock that `advance` and `jump` move. `start_ms` is the wall time at the beginning."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._now_s = 0.0
        self._timers: list[DrivenTimer] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return self._start_ms + int(self._now_s * 1000)

    def monotonic(self) -> float:
        return self._now_s

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> DrivenTimer:
        timer = DrivenTimer(self._now_s + max(0.0, seconds), next(self._numbers), callback, arguments)
        heapq.heappush(self._timers, timer)
        return timer

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, _finish, done)
        try:
            await done
        finally:
            timer.cancel()

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        return self._timeout(seconds)

    @asynccontextmanager
    async def _timeout(self, seconds: float) -> AsyncIterator[object]:
        async with asyncio.timeout(None) as scope:
            timer = self.call_later(seconds, _end, scope)
            try:
                yield scope
            finally:
                timer.cancel()

    async def advance(self, seconds: float, settle: Callable[[], Awaitable[object]] | None = None) -> int:
        """Let `seconds` pass and fire every timer at its time, in order; returns how many fired.

        After all timers that are due at the same time, `settle` is awaited; without it the event loop runs once.
        """
        end_s = self._now_s + seconds
        fired = 0
        while (timer := self._next(end_s)) is not None:
            self._now_s = timer.due
            while (due := self._next(self._now_s)) is not None:
                heapq.heappop(self._timers)
                due.callback(*due.arguments)
                fired += 1
            await (asyncio.sleep(0) if settle is None else settle())
        self._now_s = end_s
        return fired

    def jump(self, seconds: float) -> int:
        """Let `seconds` pass at once, as if the process did not run. Timers that were due fire now, late; returns how many."""
        self._now_s += seconds
        fired = 0
        while (timer := self._next(self._now_s)) is not None:
            heapq.heappop(self._timers)
            timer.callback(*timer.arguments)
            fired += 1
        return fired

    def _next(self, until_s: float) -> DrivenTimer | None:
        """The first timer that is not cancelled, None if it is due after `until_s`."""
        timers = self._timers
        while timers and timers[0].is_cancelled:
            heapq.heappop(timers)
        return timers[0] if timers and timers[0].due <= until_s else None


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _end(scope: asyncio.Timeout) -> None:
    scope.reschedule(asyncio.get_running_loop().time())
