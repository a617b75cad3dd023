"""A fetch that has begun."""

from __future__ import annotations

import asyncio
from typing import Any


async def started(response: Any) -> asyncio.Task[Any]:
    """The coroutine of a response as a task that waits."""
    task = asyncio.ensure_future(response)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    return task
