"""Who is told of the phases that the coordinators of a broker reach, whether somebody holds them or not: the journal, the control API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Watch = Callable[[Any], None]
"""Called with each phase (`server/groups/phases.py`, `server/transactions/phases.py`) when its coordinator decides what follows it."""


def all_of(watches: Iterable[Watch | None]) -> Watch | None:
    """One that tells all of them; None if there are none."""
    each = [watch for watch in watches if watch is not None]
    if len(each) < 2:
        return each[0] if each else None

    def tell(phase: Any) -> None:
        for watch in each:
            watch(phase)

    return tell
