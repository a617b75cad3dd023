"""Processes that are frozen and thawed.

SIGSTOP is delivered by one of a process's threads, which may have to wait for a core; the others run on until then. On a busy machine
that is long enough to win an election, so freezing waits until every thread has stopped.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from klamm.tests.cluster.waits import wait_for


def freeze(pid: int) -> None:
    """SIGSTOP; returns when no thread of the process runs any more (where the system has no /proc: at once)."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    if threads.exists():
        wait_for(lambda: all(_state(thread) == "T" for thread in threads.iterdir()), f"process {pid} is frozen")


def thaw(pid: int) -> None:
    """SIGCONT."""
    os.kill(pid, signal.SIGCONT)


def _state(thread: Path) -> str:
    """The letter behind the name, which stands in parentheses; that of a stopped one for a thread that has ended."""
    try:
        return (thread / "stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return "T"
