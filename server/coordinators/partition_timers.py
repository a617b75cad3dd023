"""One timer for each partition of a coordinator: it fires when the next deadline of the partition's state has come.

A call that raises an exception is logged, and made again after a pause: the deadlines of other groups in the partition still count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.machine.faults import contained
from klamm.seams.clock import Clock, Timer

log = logging.getLogger(__name__)

AGAIN_MS = 1000
"""Pause after a call that has failed."""


class PartitionTimers:
    """The timers of one coordinator. `fire` is called with the number of a partition whose deadline has come."""

    def __init__(self, clock: Clock, fire: Callable[[int], object]) -> None:
        self._clock = clock
        self._fire = fire
        self._timers: dict[int, tuple[int, Timer]] = {}
        """Partition → (when its timer fires, in ms of the monotonic clock, the timer)."""

    def set(self, index: int, deadline_ms: int | None) -> None:
        """The next deadline of a partition, in ms of the monotonic clock; None if there is none. A timer that fires earlier stays."""
        present = self._timers.get(index)
        if present is not None:
            if deadline_ms is not None and present[0] <= deadline_ms:
                return
            present[1].cancel()
            del self._timers[index]
        if deadline_ms is not None:
            seconds = max(deadline_ms / 1000 - self._clock.monotonic(), 0)
            self._timers[index] = deadline_ms, self._clock.call_later(seconds, self._call, index)

    def _call(self, index: int) -> None:
        self._timers.pop(index, None)
        is_done = False
        with contained(log, f"what is due in partition {index}"):
            self._fire(index)
            is_done = True
        if not is_done:
            self.set(index, None)  # what `fire` has set may be over, and would fail again without a pause
            self.set(index, round(self._clock.monotonic() * 1000) + AGAIN_MS)
