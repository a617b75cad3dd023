"""How often the loop gets its turn while something works."""

from __future__ import annotations

import asyncio
import gc
import time

QUICK_S = 0.06
"""A turn of the loop that uses less CPU time than this is short, whatever the request."""
LARGEST_PART = 0.4
"""How much of the work for one request the longest turn may be."""


class Turns:
    """The longest turn of the running loop, and all of them together, in seconds of this thread's CPU time.

    The garbage collector, which looks at all that the other tests left behind, is off meanwhile.
    """

    def __init__(self) -> None:
        self.longest = self.total = 0.0

    @property
    def has_stalled(self) -> bool:
        """Whether the longest turn kept others from theirs."""
        return self.longest > max(QUICK_S, LARGEST_PART * self.total)

    async def __aenter__(self) -> Turns:
        gc.disable()
        self._task = asyncio.create_task(self._count())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        gc.enable()

    async def _count(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest = max(self.longest, now - before)
            self.total += now - before
            before = now
