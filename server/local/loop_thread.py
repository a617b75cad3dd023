"""An event loop in a thread of its own, for callers that have none: they call, and block until a coroutine there has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """The loop runs from the making of this object until `close`. The thread ends with the process, closed or not."""

    def __init__(self, name: str) -> None:
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._loop, self._end = self._started.result()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. May be called from any thread but the loop's own, from several at a time.

        An interrupt (Ctrl-C) while it waits cancels the coroutine.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a call from the loop's own thread would wait for itself")
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise

    def close(self) -> None:
        """End the loop, cancelling what still runs on it, and wait for the thread."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._wait())

    async def _wait(self) -> None:
        end = asyncio.Event()
        self._started.set_result((asyncio.get_running_loop(), end))
        await end.wait()
