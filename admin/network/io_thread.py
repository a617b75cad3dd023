"""The thread whose event loop runs the calls of one client, and the bridge from other threads and from asyncio.

The thread starts with the first call and ends with `close`. Every call has one implementation, a coroutine of that loop. The caller waits
for a `concurrent.futures.Future`, in its own thread or, wrapped, in its asyncio loop. If the caller stops waiting (an interrupt, a
cancelled task), the call is cancelled in the thread too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from klamm.admin.calls.errors import AdminError, Closed
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.settings import Settings
from klamm.admin.network.session import Session

R = TypeVar("R")

BACKSTOP_S = 1.0
"""How long a caller waits for the thread after the deadline."""


@dataclass(frozen=True)
class Call(Generic[R]):
    """A call with checked arguments: its timeout in ms, and the coroutine function that runs it."""

    timeout_ms: int
    run: Callable[[Session, Scope], Coroutine[Any, Any, R]]


class IoThread:
    """Runs calls in its thread. All methods may be called from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._closed = False
        self._running: _Running | None = None

    def run(self, call: Call[R]) -> R:
        """The result of the call. Blocks this thread until then."""
        started = self._start(call)
        try:
            return started.future.result(started.scope.remaining_s + BACKSTOP_S)
        except concurrent.futures.TimeoutError:
            started.end(Closed("the caller waits no longer"))
            raise started.scope.too_late() from None
        except BaseException:
            started.end(Closed("the caller waits no longer"))
            raise

    async def run_in_loop(self, call: Call[R]) -> R:
        """The result of the call, for callers in an asyncio loop."""
        started = self._start(call)
        try:
            async with asyncio.timeout(started.scope.remaining_s + BACKSTOP_S):
                return await asyncio.wrap_future(started.future)
        except TimeoutError:
            raise started.scope.too_late() from None
        finally:
            started.end(Closed("the caller waits no longer"))

    def close(self) -> None:
        """Fail all calls with Closed, close all connections, and end the thread."""
        running = self._shut()
        if running is not None:
            running.thread.join()

    async def close_in_loop(self) -> None:
        """`close`, for callers in an asyncio loop."""
        running = self._shut()
        if running is not None:
            await asyncio.wrap_future(running.ended)
            running.thread.join()

    def _shut(self) -> _Running | None:
        with self._lock:
            is_first = not self._closed
            self._closed = True
            running = self._running
        if running is not None and is_first:
            running.stop()
        return running

    def _start(self, call: Call[R]) -> _Started[R]:
        with self._lock:
            if self._closed:
                raise Closed("the client is closed")
            if self._running is None:
                self._running = _Running(self._settings)
            return self._running.start(call)


class _Running:
    """The running thread."""

    def __init__(self, settings: Settings) -> None:
        self.session = Session(settings)
        self.loop = asyncio.new_event_loop()
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.calls: set[_Started[Any]] = set()
        self.thread = threading.Thread(target=self._run, name=f"klamm-admin-{settings.client_id}", daemon=True)
        self.thread.start()

    def start(self, call: Call[R]) -> _Started[R]:
        started = _Started(self, call)
        self.calls.add(started)
        self.loop.call_soon_threadsafe(started.begin)
        return started

    def stop(self) -> None:
        """End the thread. May be called once."""
        self._soon(self.loop.stop)

    def end(self, started: _Started[Any], error: AdminError) -> None:
        """Stop a call with this error, from another thread. No effect if it has ended."""
        self._soon(lambda: started.scope.end(error))

    def _soon(self, work: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(work)
        except RuntimeError:  # the loop is closed, so all calls have ended
            pass

    def _run(self) -> None:
        error: AdminError = Closed("the client was closed")
        try:
            self.loop.run_forever()
        except BaseException as bug:  # noqa: BLE001 after any failure of the loop, its calls must end too
            error = Closed(f"the IO thread failed: {bug!r}")
        try:
            for started in tuple(self.calls):
                started.scope.end(error)
            self.session.close()
            self.loop.run_until_complete(_all_ended())
            self.loop.close()
        finally:
            for started in tuple(self.calls):
                started.fail(error)
            self.ended.set_result(None)


async def _all_ended() -> None:
    """Wait for all other tasks of the loop, and for transports that close."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)


class _Started(Generic[R]):
    """A call in progress."""

    def __init__(self, running: _Running, call: Call[R]) -> None:
        self.future: concurrent.futures.Future[R] = concurrent.futures.Future()
        self.future.set_running_or_notify_cancel()
        self.scope = Scope(call.timeout_ms, time.monotonic() + call.timeout_ms / 1000)
        self._running = running
        self._call = call
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Run the call, in the thread."""
        self._task = self._running.loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            result = await self.scope.run(self._call.run(self._running.session, self.scope))
        except BaseException as error:  # noqa: BLE001 the caller gets whatever it is
            self.fail(error)
        else:
            self._running.calls.discard(self)
            if not self.future.done():
                self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        self._running.calls.discard(self)
        if not self.future.done():
            self.future.set_exception(error)

    def end(self, error: AdminError) -> None:
        """Stop the call with this error, from another thread. No effect if it has ended."""
        if not self.future.done():
            self._running.end(self, error)
