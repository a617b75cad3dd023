"""The deadline of one call, in the IO thread.

A call does all its waiting through its `Scope`. The scope ends a wait at the deadline of the call, earlier at the deadline of one attempt,
or when the caller stops waiting. Parallel parts of a call share its scope.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.net.selector import NetworkSelector

from klamm.admin.errors import AdminError, TimedOut

OnRetry = Callable[[AdminError], None]
"""Called in the IO thread with each error after which a call retries. Must not raise."""


class Scope:
    """One call's deadline. Times are seconds of the monotonic clock."""

    def __init__(self, net: NetworkSelector, timeout_ms: int, until: float) -> None:
        self.timeout_ms = timeout_ms
        self.until = until
        self.last_error: AdminError | None = None
        self.on_retry: OnRetry | None = None
        self._net = net
        self._waits: set[Future] = set()
        self._ended: AdminError | None = None

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 after it."""
        return max(0.0, self.until - time.monotonic())

    def attempt(self) -> float:
        """The deadline of an attempt with one of several brokers: after half of the call's time, so that another broker can be tried."""
        return min(self.until, time.monotonic() + self.timeout_ms / 2000)

    async def wait(self, future: Future, until: float | None = None) -> Any:
        """The result of the future. Raises its exception, or kafka-python's KafkaTimeoutError at the deadline; the future is not cancelled
        then.
        """
        self.check()
        outcome = Future()

        def succeed(value: Any) -> None:
            if not outcome.is_done:
                outcome.success(value)

        def fail(error: BaseException) -> None:
            if not outcome.is_done:
                outcome.failure(error)

        future.add_callback(succeed)
        future.add_errback(fail)
        if outcome.is_done:
            return await outcome
        end = self.until if until is None else min(until, self.until)
        timer = self._net.call_at(end, lambda: fail(kafka.errors.KafkaTimeoutError()))
        self._waits.add(outcome)
        try:
            return await outcome
        finally:
            self._waits.discard(outcome)
            self._net.cancel(timer)

    async def pause(self, seconds: float) -> None:
        """Sleep. Raises TimedOut if the deadline of the call comes first."""
        self.check()
        done = Future()
        timer = self._net.call_later(seconds, lambda: done.success(None))
        try:
            await self.wait(done)
        except kafka.errors.KafkaTimeoutError:
            raise self.too_late() from None
        finally:
            self._net.cancel(timer)

    def check(self) -> None:
        """Raise the error with which the caller ended the call, if there is one."""
        if self._ended is not None:
            raise self._ended

    def end(self, error: AdminError) -> None:
        """Make all current and later waits of the call fail with this error."""
        self._ended = error
        for outcome in tuple(self._waits):
            if not outcome.is_done:
                outcome.failure(error)

    def too_late(self) -> TimedOut:
        """The error of a call after its deadline. It has the text of the last error."""
        cause = "" if self.last_error is None else f": {self.last_error.message}"
        return TimedOut(f"the call did not end within {self.timeout_ms} ms{cause}")
