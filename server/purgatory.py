"""Where requests wait for the metadata cache: until a condition on some topics holds, or their time is over.

A handler that changed something waits with the topics that it depends on and a condition. The condition is checked once
right away, then whenever somebody says that one of those topics changed (each UpdateMetadata does), and never by polling. Waits
are woken in the order they began. A time-out of zero or less means: look once, do not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from klamm.protocol.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)


class _Wait:
    __slots__ = ("done", "keys", "ready")

    def __init__(self, keys: tuple[str, ...], ready: Callable[[], bool], done: asyncio.Future[bool]) -> None:
        self.keys = keys
        self.ready = ready
        self.done = done


class Purgatory:
    """Waiting requests by topic name."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # a dict is used as an ordered set: waits are woken in the order they came
        self._waits: dict[str, dict[_Wait, None]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len({wait for waits in self._waits.values() for wait in waits})

    async def wait(self, keys: Iterable[str], ready: Callable[[], bool], timeout_ms: int) -> bool:
        """True once `ready()` holds, False when `timeout_ms` passed before. `ready` must be quick and must not wait."""
        if ready():
            return True
        if timeout_ms <= 0 or self._closed:
            return False
        wait = _Wait(tuple(dict.fromkeys(keys)), ready, asyncio.get_running_loop().create_future())
        for key in wait.keys:
            self._waits.setdefault(key, {})[wait] = None
        timer = self._clock.call_later(timeout_ms / 1000, self._time_out, wait)
        try:
            return await wait.done
        finally:
            timer.cancel()
            self._forget(wait)

    def check(self, keys: Iterable[str]) -> None:
        """Look again at every wait that cares for one of these topics."""
        waits = self._waits
        if not waits:
            return
        for wait in {wait: None for key in keys if key in waits for wait in waits[key]}:
            try:
                ready = wait.ready()
            except Exception as fault:  # the waiting handler's own fault: hand it to that handler, not to the request that woke it
                log.debug("a condition raised an exception; its request gets the error", exc_info=True)
                if not wait.done.done():
                    wait.done.set_exception(fault)
                ready = False
            if ready:
                self._complete(wait, True)

    def close(self) -> None:
        """Every wait ends as if its time were over; later ones do not wait."""
        self._closed = True
        for wait in [wait for waits in self._waits.values() for wait in waits]:
            self._complete(wait, False)

    def _time_out(self, wait: _Wait) -> None:
        self._complete(wait, False)

    def _complete(self, wait: _Wait, result: bool) -> None:
        self._forget(wait)
        if not wait.done.done():
            wait.done.set_result(result)

    def _forget(self, wait: _Wait) -> None:
        for key in wait.keys:
            waits = self._waits.get(key)
            if waits is not None:
                waits.pop(wait, None)
                if not waits:
                    del self._waits[key]
