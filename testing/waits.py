"""Waits for a state of the cluster, in real time. A wait that times out says what is there instead."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from klamm.control.refusal import Refused

__tracebackhide__ = True  # pytest leaves out the lines of this module

T = TypeVar("T")
TIMEOUT_S = 10.0
LOOK_S = 0.005

class Place(NamedTuple):
    """A place in time: milliseconds since 1970, the last request, the last event."""

    at_ms: int
    request: int
    event: int


Condition = Callable[[], Any]
"""Returns whether it holds; it may be a coroutine function."""


class WaitTimedOut(AssertionError):
    """What was waited for did not happen. The text has the present state, and the requests and events since the wait began."""


class Watched(Protocol):
    """What says what happened since a wait began."""

    def here(self) -> Place: ...

    async def wait_text(self, what: str, timeout_s: float, since: Place, view: Callable[[], Awaitable[str]] | None = None) -> str: ...


async def until(
    cluster: Watched, condition: Condition, what: str, timeout_s: float, view: Callable[[], Awaitable[str]] | None = None
) -> Any:
    """Wait until the condition returns something true, and return that. `view` gives the state of what it is about.

    Raises WaitTimedOut, Refused for a time that is none, and what the condition raises.
    """
    if timeout_s < 0:
        raise Refused("timeout_s: 0 or more")
    begun = cluster.here()
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if loop.time() >= end:
            raise WaitTimedOut(await cluster.wait_text(what, timeout_s, begun, view))
        await asyncio.sleep(LOOK_S)
