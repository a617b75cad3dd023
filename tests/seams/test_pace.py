"""Long work in slices: the event loop runs in between."""

from __future__ import annotations

import asyncio

from klamm.seams.pace import SLICE, free


async def test_long_lists_are_emptied_slice_by_slice_and_the_loop_runs_in_between() -> None:
    first, second = list(range(3 * SLICE + 1)), list(range(SLICE))
    seen = []
    task = asyncio.create_task(free(first, second, []))
    while not task.done():
        seen.append((len(first), len(second)))
        await asyncio.sleep(0)
    assert seen == [(3 * SLICE + 1, SLICE), (2 * SLICE + 1, SLICE), (SLICE + 1, SLICE), (1, SLICE)]
    assert not first and not second
