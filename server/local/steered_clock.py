"""A clock that runs in real time until somebody freezes it or moves it forward.

`advance` moves it by any time at once: timers that become due fire in their order, each at its own time. While it is frozen it moves
only so. Brokers with this clock follow it with every timer; ZooKeeper sessions and the sockets stay in real time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from klamm.machine.faults import contained
from klamm.server.local.timer_clock import ClockTimer, TimerClock

log = logging.getLogger(__name__)

_TURNS = 20
"""Turns of the event loop after the timers of one moment, so that what they began can go on before the next moment."""


class SteeredClock(TimerClock):
    """A clock for all brokers of a cluster in this process."""

    def __init__(self, offset_s: float = 0.0) -> None:
        """`offset_s`: how far it is ahead of real time."""
        super().__init__()
        self._real = time.monotonic
        self._wall_s = time.time() - time.monotonic()
        self._offset_s = offset_s
        self._frozen_at: float | None = None
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

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> ClockTimer:
        timer = super().call_later(seconds, callback, *arguments)
        if timer.due < self._alarm_due:
            self._set_alarm()
        return timer

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
            try:
                while (timer := self._next(end_s)) is not None:
                    self._offset_s += max(0.0, timer.due - self.monotonic())
                    fired += self._fire()
                    for _ in range(_TURNS):
                        await asyncio.sleep(0)
                self._offset_s += max(0.0, end_s - self.monotonic())
            finally:
                self._set_alarm()
            return fired

    def _call(self, timer: ClockTimer) -> None:
        """Call what a timer is for. Its exception does not stop the time of all others, as in the event loop."""
        with contained(log, "a timer"):
            super()._call(timer)

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_due = float("inf")
        self._fire()
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
