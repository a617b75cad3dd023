"""Runs a program on uvloop, with a garbage collector that suits a broker.

Messages of ten thousand partitions are made of hundreds of thousands of small objects that live briefly, in no cycles. With the
collector's default thresholds, looking for cycles among them costs as much as making them. Nothing else happens while it looks: some
tens of milliseconds with these. What exists before the start (code, tables) is never looked at again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine that `main` makes to its end, on an event loop of its own."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(400_000, 50, 20)
    return uvloop.run(main())
