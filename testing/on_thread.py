"""What a call of an object on the event loop of a thread gives, for threads without an event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from klamm.server.local.loop_thread import LoopThread

__tracebackhide__ = True  # pytest leaves out the lines of this module


def result_on(thread: LoopThread, call: Callable[[], Any], subject: str) -> Any:
    """The result of a call, or of what it awaits, on the thread of the loop. After the end of the `subject` (a cluster or a proxy) it gives
    what is known without a loop. Raises RuntimeError if that has to be waited for.
    """

    async def work() -> object:
        made = call()
        return await made if inspect.isawaitable(made) else made

    if thread.runs:
        return thread.call(work())
    made = call()
    if inspect.iscoroutine(made):
        made.close()
        raise RuntimeError(f"this {subject} is not running")
    return made
