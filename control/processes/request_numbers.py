"""Numbers of requests that several processes received: by time, so that they can be merged and read on from the last one."""

from __future__ import annotations

import time

_PER_MS = 1000


class RequestNumbers:
    """A request's number says when it was received, since this was made, by which broker, and which one of its millisecond it was."""

    def __init__(self, brokers: int, now_ms: int | None = None) -> None:
        """`now_ms` is the present time in ms since 1970; without it that of the system."""
        self._brokers = brokers
        self._since_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms

    def number_of(self, at_ms: int, number: int, broker: int) -> int:
        """The number of the request that this broker received at this time (ms since 1970), where it has this number."""
        within = max(0, at_ms - self._since_ms) * _PER_MS + number % _PER_MS
        return within * self._brokers + broker

    def ms_of(self, number: int) -> int:
        """When the request with this number was received, in ms since 1970; 0 for 0."""
        return 0 if number <= 0 else self._since_ms + (number - 1) // self._brokers // _PER_MS
