"""One timer for each partition of a coordinator: it fires when the next deadline of the partition's state has come."""

from __future__ import annotations

from collections.abc import Callable

from klamm.protocol.clock import Clock, Timer


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
        self._fire(index)
