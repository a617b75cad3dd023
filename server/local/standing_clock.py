"""The clock of one broker that can stand still with its broker: while it does, its timers do not fire.

Time passes meanwhile, as for a process that got SIGSTOP: what was due fires when the broker goes on, in its order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from klamm.seams.clock import Clock, Timer
from klamm.server.local.timer_clock import WaitingClock
from klamm.server.net.outgoing_connections import OutgoingConnection


class _StandingTimer:
    """A timer, which fires when the broker does not stand."""

    __slots__ = ("_arguments", "_callback", "_clock", "is_cancelled", "timer")

    def __init__(self, clock: StandingClock, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._clock = clock
        self._callback = callback
        self._arguments = arguments
        self.timer: Timer | None = None
        self.is_cancelled = False

    def due(self) -> None:
        if self._clock.is_standing:
            self._clock.missed.append(self)
        else:
            self.fire()

    def fire(self) -> None:
        if not self.is_cancelled:
            self._callback(*self._arguments)

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.timer is not None:
            self.timer.cancel()


class StandingClock(WaitingClock):
    """The time of another clock, with timers that stand. It also has the connections that its broker opened: they stand too."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.now_ms = clock.now_ms
        self.monotonic = clock.monotonic
        self.is_standing = False
        self.missed: list[_StandingTimer] = []
        self._opened: WeakSet[OutgoingConnection] = WeakSet()

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> _StandingTimer:
        timer = _StandingTimer(self, callback, arguments)
        timer.timer = self._clock.call_later(seconds, timer.due)
        return timer

    def opened(self, connection: OutgoingConnection) -> None:
        """The broker has opened this connection."""
        self._opened.add(connection)
        if self.is_standing:
            connection.pause()

    def stand(self) -> None:
        """Stand still from now on."""
        self.is_standing = True
        for connection in list(self._opened):
            connection.pause()

    def go_on(self) -> None:
        """The opposite of `stand`."""
        self.is_standing = False
        missed, self.missed = self.missed, []
        for timer in missed:
            asyncio.get_running_loop().call_soon(timer.fire)
        for connection in list(self._opened):
            connection.resume()
