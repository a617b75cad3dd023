"""What clocks with timers of their own share: timers in their order, waits, time-outs. Each clock decides when its timers fire."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from klamm.seams.clock import Timer


class ClockTimer:
    """A callback with the time when it is due."""

    __slots__ = ("arguments", "callback", "due", "is_cancelled", "number")

    def __init__(self, due: float, number: int, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.due = due
        self.number = number
        self.callback = callback
        self.arguments = arguments
        self.is_cancelled = False

    def __lt__(self, other: ClockTimer) -> bool:
        return (self.due, self.number) < (other.due, other.number)

    def cancel(self) -> None:
        self.is_cancelled = True


class WaitingClock(ABC):
    """A clock whose waits and time-outs are timers."""

    @abstractmethod
    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        """Call `callback(*arguments)` on the event loop after `seconds`."""

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


class TimerClock(WaitingClock):
    """A clock that keeps its timers itself."""

    def __init__(self) -> None:
        self._timers: list[ClockTimer] = []
        self._numbers = itertools.count()

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds since some fixed time; it never goes back."""

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> ClockTimer:
        timer = ClockTimer(self.monotonic() + max(0.0, seconds), next(self._numbers), callback, arguments)
        heapq.heappush(self._timers, timer)
        return timer

    def _fire(self) -> int:
        """Call what is due by now; returns how many timers that were."""
        fired, now = 0, self.monotonic()
        while (timer := self._next(now)) is not None:
            heapq.heappop(self._timers)
            self._call(timer)
            fired += 1
        return fired

    def _call(self, timer: ClockTimer) -> None:
        """Call what a timer is for."""
        timer.callback(*timer.arguments)

    def _next(self, until_s: float) -> ClockTimer | None:
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
