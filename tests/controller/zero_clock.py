"""The clock of the controller tests: real timers, and a wall time that two runs write alike."""

from klamm.seams.clock import SystemClock


class ZeroClock(SystemClock):
    def now_ms(self) -> int:
        return 0
