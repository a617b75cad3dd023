"""Runs a program on uvloop, with settings of the garbage collector for a broker.

A message with ten thousand partitions consists of hundreds of thousands of small objects that live briefly and have no cycles. With the
default thresholds of the collector, the search for cycles among them costs as much as making them. The search stops everything else, for
some tens of milliseconds with these thresholds. Objects from before the start (code, tables) are never searched again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine of `main` on a new event loop; returns its result."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(400_000, 50, 20)
    return uvloop.run(main())
