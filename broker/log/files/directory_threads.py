"""Work of one log directory in threads. The directory gets each error of the disk, and so does who awaits the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


class DirectoryThreads:
    """Runs work of one directory. Methods are called on the event loop."""

    def __init__(self, executor: Executor, check: Callable[[], Exception | None], failed: Callable[[OSError], None]) -> None:
        """`check` returns the error of a directory that does no work any more. `failed` is called with each OSError."""
        self._executor = executor
        self._check = check
        self._failed = failed
        self._busy = 0
        self._idle: list[asyncio.Future[None]] = []

    def submit(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Run `work` in a thread; returns a future for its result."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        refused = self._check()
        if refused is not None:
            result.set_exception(refused)
            return result
        self._busy += 1

        def run() -> None:
            try:
                value, error = work(*arguments), None
            except BaseException as failure:  # noqa: BLE001 - it is raised where the result is awaited
                value, error = None, failure
            try:
                loop.call_soon_threadsafe(self._done, result, value, error)
            except RuntimeError:
                pass  # the loop is closed: a killed broker

        self._executor.submit(run)
        return result

    def _done(self, result: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if isinstance(error, OSError):
            self._failed(error)
        if not result.done():
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)
        if not self._busy:
            idle, self._idle = self._idle, []
            for waiting in idle:
                if not waiting.done():
                    waiting.set_result(None)

    async def until_idle(self) -> None:
        """Wait until no work is in progress."""
        while self._busy:
            waiting = asyncio.get_running_loop().create_future()
            self._idle.append(waiting)
            await waiting
