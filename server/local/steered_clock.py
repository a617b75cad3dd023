"""A clock that runs in real time until somebody freezes it or moves it forward.

`advance` moves it by any time at once: timers that become due fire in their order, each at its own time. While it is frozen it moves
only so. Brokers with this clock follow it with every timer; ZooKeeper sessions and the sockets stay in real time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

_TURNS = 20
"""Turns of the event loop after the timers of one moment, so that what they began can go on before the next moment."""


class SteeredTimer:
    """A callback with the time when it is due."""

    __slots__ = ("arguments", "callback", "due", "is_cancelled", "number")

    def __init__(self, due: float, number: int, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.due = due
        self.number = number
        self.callback = callback
        self.arguments = arguments
        self.is_cancelled = False

    def __lt__(self, other: SteeredTimer) -> bool:
        return (self.due, self.number) < (other.due, other.number)

    def cancel(self) -> None:
        self.is_cancelled = True


class SteeredClock:
    """A clock for all brokers of a cluster in this process."""

    def __init__(self, offset_s: float = 0.0) -> None:
        """`offset_s`: how far it is ahead of real time."""
        self._real = time.monotonic
        self._wall_s = time.time() - time.monotonic()
        self._offset_s = offset_s
        self._frozen_at: float | None = None
        self._timers: list[SteeredTimer] = []
        self._numbers = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_due = float("inf")
        self._advancing = asyncio.Lock()

    @property
    def is_frozen(self) -> bool:
        """Whether it only moves by `advance`."""
        return self._frozen_at is not None

    @property
    def offset_ms(self) -> int:
        """How far it is ahead of real time because of `advance`, and behind because it was frozen."""
        return round((self.monotonic() - self._real()) * 1000)

    def now_ms(self) -> int:
        return int((self._wall_s + self.monotonic()) * 1000)

    def monotonic(self) -> float:
        return (self._real() if self._frozen_at is None else self._frozen_at) + self._offset_s

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> SteeredTimer:
        timer = SteeredTimer(self.monotonic() + max(0.0, seconds), next(self._numbers), callback, arguments)
        heapq.heappush(self._timers, timer)
        if timer.due < self._alarm_due:
            self._set_alarm()
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

    def freeze(self) -> None:
        """Let no time pass but by `advance`."""
        if self._frozen_at is None:
            self._frozen_at = self._real()
            self._set_alarm()

    def resume(self) -> None:
        """Let real time pass again, from the present time of this clock on."""
        if self._frozen_at is not None:
            self._offset_s += self._frozen_at - self._real()
            self._frozen_at = None
            self._set_alarm()

    async def advance(self, seconds: float) -> int:
        """Let `seconds` pass now; returns how many timers fired. Raises ValueError for a negative time."""
        if seconds < 0:
            raise ValueError("time does not go back")
        async with self._advancing:
            end_s = self.monotonic() + seconds
            fired = 0
            while (timer := self._next(end_s)) is not None:
                self._offset_s += max(0.0, timer.due - self.monotonic())
                fired += self._fire()
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            self._offset_s += max(0.0, end_s - self.monotonic())
            self._set_alarm()
            return fired

    def _fire(self) -> int:
        """Call what is due."""
        fired = 0
        now = self.monotonic()
        while (timer := self._next(now)) is not None:
            heapq.heappop(self._timers)
            timer.callback(*timer.arguments)
            fired += 1
        return fired

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_due = float("inf")
        try:
            self._fire()
        finally:
            self._set_alarm()

    def _set_alarm(self) -> None:
        """Be called when the next timer is due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_due = float("inf")
        if self._frozen_at is None and (timer := self._next(float("inf"))) is not None:
            self._alarm_due = timer.due
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, timer.due - self.monotonic()), self._ring)

    def _next(self, until_s: float) -> SteeredTimer | None:
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
