"""Runs a program on uvloop, with a garbage collector that suits a broker."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from klamm.machine.collector import collect_seldom, keep_present_objects

T = TypeVar("T")


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine of `main` on a new event loop; returns its result."""
    collect_seldom()
    keep_present_objects()
    return uvloop.run(main())
