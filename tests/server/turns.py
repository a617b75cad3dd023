"""How often the loop gets its turn while something works."""

from __future__ import annotations

import asyncio
import gc
import time


class Turns:
    """The longest turn of the running loop, and all of them together, in seconds of this thread's CPU time.

    The garbage collector, which looks at all that the other tests left behind, is off meanwhile.
    """

    def __init__(self) -> None:
        self.longest = self.total = 0.0

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
