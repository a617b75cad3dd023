"""A limit for log lines that clients and other brokers can cause. The first lines of a period are written, the others only counted.

Otherwise a client that opens bad connections in a loop, or a broker that closes our connections at once, could fill the disk.
"""

from __future__ import annotations

import logging

from klamm.seams.clock import SYSTEM_CLOCK, Clock, Timer

LINES = 10
PERIOD_S = 10.0


class LimitedLog:
    """Warnings about one subject: at most `lines` in `period_s` seconds, and at the end one line with the number of suppressed warnings."""

    def __init__(
        self, log: logging.Logger, subject: str, lines: int = LINES, period_s: float = PERIOD_S, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._log = log
        self._subject = subject
        self._lines = lines
        self._period_s = period_s
        self._clock = clock
        self._written = 0
        self._left_out = 0
        self._timer: Timer | None = None

    def warning(self, message: str, *arguments: object) -> bool:
        """Write or count a line; returns whether it was written. A period begins with the first line after the end of the last period."""
        if self._timer is None:
            self._timer = self._clock.call_later(self._period_s, self.end_period)
        if self._written >= self._lines:
            self._left_out += 1
            return False
        self._written += 1
        self._log.warning(message, *arguments)
        return True

    def end_period(self) -> None:
        """End the period: log how many lines were suppressed, if any. The next line is written again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left_out, self._left_out, self._written = self._left_out, 0, 0
        if left_out:
            self._log.warning("%s: %d more lines like this were suppressed", self._subject, left_out)
