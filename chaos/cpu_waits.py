"""How long a cluster could have worked and did not get a CPU, because other processes had them all.

On a busy machine a cluster stands still for seconds; without this number that looks like a fault of the cluster. Linux counts for each
thread how long it waited in a run queue (`/proc/PID/schedstat`). Of a broker the main thread counts, which has the event loop.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

EVERY_S = 0.5
PROC = Path("/proc")


class CpuWaits:
    """The waits of a process and of the processes that it started. Where the system does not count them they are 0."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._lock = threading.Lock()
        self._last: dict[int, float] = {}
        self._looked_s = -EVERY_S
        self._sum_s = 0.0

    def seconds(self) -> float:
        """The time so far. Of processes that waited at the same time the longest wait counts. It is looked up twice a second."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked_s >= EVERY_S:
                self._looked_s = now
                waits = {pid: waited for pid in _with_children(self._pid) if (waited := _waited_s(pid)) is not None}
                self._sum_s += max((waited - self._last[pid] for pid, waited in waits.items() if pid in self._last), default=0.0)
                self._last = waits
            return self._sum_s


def _waited_s(pid: int) -> float | None:
    """How long the main thread of a process waited so far; None if there is no such process or number."""
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                for child in (thread / "children").read_text().split():
                    yield from _with_children(int(child))
