"""Long work in slices: whoever walks a list that a client made long lets everybody else have the event loop in between.

    pace = Pace()
    for topic in request.topics:
        await pace(len(topic.partitions))
        ...

Work is counted, not timed: what is done is the same on a busy machine, and a test can count the turns of the loop. What nobody needs
to wait for because it is short never leaves the loop.
"""

from __future__ import annotations

import asyncio

SLICE = 1000
"""Entries looked at between two turns of the loop: a few milliseconds of work."""


class Pace:
    """Counts entries, and lets the loop go round after each slice of them."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = SLICE

    async def __call__(self, entries: int = 1) -> None:
        """So many entries come next."""
        self._left -= entries
        if self._left < 0:
            self._left = SLICE
            await asyncio.sleep(0)
