"""An event loop in its own thread, for callers without a loop. A call blocks until its coroutine has ended there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

__tracebackhide__ = True  # pytest leaves out the lines of this module

T = TypeVar("T")


class LoopThread:
    """The loop runs from construction until `close`. It is a daemon thread: it ends with the process even if it was not closed."""

    def __init__(self, name: str) -> None:
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._loop, self._end = self._started.result()

    @property
    def runs(self) -> bool:
        """Whether the loop has not been closed."""
        return not self._end.is_set()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine; returns or raises what it does. Any threads except the loop's own may call it, also at the same time.

        An interrupt (Ctrl-C) while it waits cancels the coroutine.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a call from the loop's own thread would wait for itself")
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            error = done.exception()
        except BaseException:
            done.cancel()
            raise
        if error is not None:
            raise error  # here, and not in `result`, whose lines would be in the report of a failed test
        return done.result()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine meanwhile. A cancelled future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop, cancel its tasks, and wait for the thread."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        end = asyncio.Event()
        self._started.set_result((asyncio.get_running_loop(), end))
        await end.wait()
