"""Classes for threads without an event loop, of objects that live on the event loop of a thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from klamm.seams.blocking import Blocking
from klamm.server.local.loop_thread import LoopThread

__tracebackhide__ = True  # pytest leaves out the lines of this module


_KINDS: dict[type, type[OnThread]] = {}
"""The class of an object on the loop → its class for threads."""


class OnThread(Blocking):
    """A class for threads whose object lives on the event loop of a thread. Objects that its calls return have such classes too."""

    subject: ClassVar[str] = "cluster"
    """What ends with the loop, for messages."""

    def __init_subclass__(cls, *, of: type, names: Mapping[str, str] | None = None) -> None:
        super().__init_subclass__(of=of, names=names)
        _KINDS[of] = cls

    def __init__(self, inner: Any, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def _for_threads(self, value: Any) -> Any:
        if isinstance(value, list) and value and type(value[0]) in _KINDS:
            return [self._for_threads(each) for each in value]
        kind = _KINDS.get(type(value))
        return value if kind is None else kind(value, self._thread)

    def _result_of(self, call: Callable[[], Any]) -> Any:
        """What a call gives on the thread of the loop. After the end of the loop it gives what is known without one. Raises RuntimeError if
        that has to be waited for.
        """

        async def work() -> object:
            made = call()
            return await made if inspect.isawaitable(made) else made

        if self._thread.runs:
            return self._for_threads(self._thread.call(work()))
        made = call()
        if inspect.iscoroutine(made):
            made.close()
            raise RuntimeError(f"this {self.subject} is not running")
        return self._for_threads(made)
