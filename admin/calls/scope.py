"""The deadline of one call, in the IO thread.

A call does all its waiting through its `Scope`. The scope ends a wait at the deadline of the call, or earlier at the deadline of one
attempt; it ends the call when the caller stops waiting. Parallel parts of a call share its scope.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from klamm.admin.calls.errors import AdminError, Closed, TimedOut

R = TypeVar("R")

OnRetry = Callable[[AdminError], None]
"""Called in the IO thread with each error after which a call retries. Must not raise."""


class Scope:
    """One call's deadline. Times are seconds of the monotonic clock, which is that of the loop."""

    def __init__(self, timeout_ms: int, until: float) -> None:
        self.timeout_ms = timeout_ms
        self.until = until
        self.last_error: AdminError | None = None
        self.on_retry: OnRetry | None = None
        self._task: asyncio.Task[Any] | None = None
        self._ended: AdminError | None = None

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 after it."""
        return max(0.0, self.until - time.monotonic())

    def attempt(self) -> float:
        """The deadline of an attempt with one of several brokers: after half of the call's time, so that another broker can be tried."""
        return min(self.until, time.monotonic() + self.timeout_ms / 2000)

    async def wait(self, awaited: Awaitable[R], until: float | None = None) -> R:
        """The result of what is awaited. Raises its exception, or TimeoutError at the deadline; it is cancelled then."""
        async with asyncio.timeout_at(self.until if until is None else min(until, self.until)):
            return await awaited

    async def pause(self, seconds: float) -> None:
        """Sleep. Raises TimedOut if the deadline of the call comes first."""
        try:
            await self.wait(asyncio.sleep(seconds))
        except TimeoutError:
            raise self.too_late() from None

    async def run(self, call: Coroutine[Any, Any, R]) -> R:
        """The result of the call, whose waits all belong to this scope. Raises its exception, or the error of `end`."""
        self._task = asyncio.current_task()
        try:
            if self._ended is not None:
                call.close()
                raise self._ended
            return await call
        except asyncio.CancelledError:
            raise self._ended or Closed("the client was closed") from None

    def end(self, error: AdminError) -> None:
        """Stop the call, with this error."""
        self._ended = error
        if self._task is not None:
            self._task.cancel()

    def too_late(self) -> TimedOut:
        """The error of a call after its deadline. It has the text of the last error."""
        cause = "" if self.last_error is None else f": {self.last_error.message}"
        return TimedOut(f"the call did not end within {self.timeout_ms} ms{cause}")
