"""Background tasks: coroutines that nobody awaits. They run until they are done or their owner closes. `Looking` looks at what changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from klamm.controller.values import StoreLost
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)


class BackgroundTasks:
    """The background tasks of one owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("a background task failed", exc_info=fault)

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Looking:
    """Executes `look_at` for changes in ZooKeeper, never twice at the same time: changes that come meanwhile cause one more execution.

    `what` names the changes in the log. `spawn` runs a coroutine. An exception is logged; the next change, and the next session, make it
    look again.
    """

    def __init__(self, what: str, look_at: Callable[[], Awaitable[None]], spawn: Callable[[Any], Any]) -> None:
        self.spawn = spawn
        self._what = what
        self._look_at = look_at
        self._is_looking = False
        self._again = False

    async def begin(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the first work; what changes meanwhile is looked at behind it. Raises what the work raises."""
        self._is_looking = True
        try:
            await work()
        finally:
            self._is_looking = False
        if self._again:
            self.changed()

    async def look(self) -> None:
        """Look now, or once more when the present execution has ended. Raises nothing."""
        self._again = True
        if self._is_looking:
            return
        self._is_looking = True
        try:
            while self._again:
                self._again = False
                await self._look_at()
        except (StoreLost, ZkError) as error:
            log.warning("cannot watch %s at the moment: %s", self._what, error)
        except Exception:  # a fault with one change must not keep a session from looking at what else has changed
            log.exception("%s cannot be processed", self._what)
        finally:
            self._is_looking = False

    def changed(self, *what: Any) -> None:
        """Look in the background: the callback of watches."""
        self.spawn(self.look())
