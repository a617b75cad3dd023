"""For tests of ages: ZooKeeper's times are in ms, and it runs on this machine."""

from __future__ import annotations

import time


def next_ms() -> None:
    """Wait, and return in a later millisecond than the call: a znode that is created next has another ctime than those before."""
    now_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now_ms:
        pass
