"""Long work in slices: a loop over a long list of a client's request lets the event loop run other work in between.

    pace = Pace()
    for topic in request.topics:
        await pace(len(topic.partitions))
        ...

Work is counted, not timed, so that it is the same on a busy machine, and a test can count the turns of the event loop. Short work
is never interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SLICE = 1000
"""Number of entries between two turns of the event loop: a few milliseconds of work."""


AT_ONCE = 64
"""Number of steps of `in_groups` that are in progress at the same time."""


class Pace:
    """Counts entries, and lets the event loop run after each slice of them."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = SLICE

    async def __call__(self, entries: int = 1) -> None:
        """Count the next `entries` entries; perhaps let the event loop run before."""
        self._left -= entries
        if self._left < 0:
            self._left = SLICE
            await asyncio.sleep(0)


async def in_groups(steps: Iterable[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """The results of all steps, AT_ONCE of which are in progress at the same time. The event loop runs between two groups."""
    results: list[T] = []
    left = iter(steps)
    while group := list(islice(left, AT_ONCE)):
        if results:
            await asyncio.sleep(0)
        results += [await group[0]()] if len(group) == 1 else await asyncio.gather(*(step() for step in group))
    return results


async def free(*lists: list[Any]) -> None:
    """Empty lists that nobody needs any more. To free a million rows at once would stop the event loop for tenths of a second."""
    for rows in lists:
        while rows:
            del rows[-SLICE:]
            if rows:
                await asyncio.sleep(0)


async def build(entries: int, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What `make` returns, for example a response with this number of entries. It runs in a thread if they are more than a slice."""
    return make(*arguments, **named) if entries <= SLICE else await asyncio.to_thread(make, *arguments, **named)
