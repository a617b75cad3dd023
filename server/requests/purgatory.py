"""The purgatory: requests wait here until a condition on some topics, partitions or other subjects holds, or until a time-out.

A handler that changed something waits with a condition and the topics or partitions that it depends on. The condition is checked once at
the beginning, then whenever `check` names one of these topics or partitions (each UpdateMetadata calls it). There is no polling. Waits are
found by topic and partition, so requests that wait for other partitions of the same topic cost nothing. Waits are woken in the order in
which they began. With a time-out of zero or less the condition is checked once, without waiting.

A subject is the name of a topic or any other hashable value, such as the key of a group; only topics have partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.seams.pace import SLICE, Pace

log = logging.getLogger(__name__)

Named = Mapping[Any, Sequence[int]]
"""Topic, or another subject → some of its partitions."""

Condition = Callable[[Named], bool]
"""Returns whether the wait is over. It gets the partitions that may have changed; it must be quick and must not wait."""

_WHOLE = -1
"""Stands for any partition of a topic, and for a subject that has none."""


class _Wait:
    """A request that waits. `keys` are the topics and partitions under which it is stored."""

    __slots__ = ("done", "keys", "look")

    def __init__(self, look: Condition, done: asyncio.Future[bool]) -> None:
        self.look = look
        self.done = done
        self.keys: list[Named] = []


class Purgatory:
    """Waiting requests by topic and partition."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # a dict as an ordered set: waits are woken in the order in which they began
        self._open: dict[_Wait, None] = {}
        self._waits: dict[Hashable, dict[int, list[_Wait]]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    async def wait(self, subjects: Iterable[Hashable], ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Return True as soon as `ready()` does, False after `timeout_ms`. `ready` must be quick and must not wait."""
        return await self._wait([dict.fromkeys(subjects, (_WHOLE,))], lambda _: ready(), timeout_ms)

    async def wait_for_partitions(self, partitions: Named, look: Condition, timeout_ms: int) -> bool:
        """Return True as soon as `look` does, False after `timeout_ms`. At first `look` gets all partitions, in slices."""
        return await self._wait(_slices(partitions), look, timeout_ms)

    async def _wait(self, slices: Iterable[Named], look: Condition, timeout_ms: int) -> bool:
        waits = timeout_ms > 0 and not self._closed
        wait = _Wait(look, asyncio.get_running_loop().create_future())
        timer = self._clock.call_later(timeout_ms / 1000, _complete, wait, False) if waits else None
        pace = Pace()
        try:
            for some in slices:
                await pace(sum(map(len, some.values())))
                if waits:  # later changes wake the wait; `look` sees the earlier ones
                    self._remember(wait, some)
                if look(some):
                    return True
            return waits and await wait.done
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(wait)

    def check(self, named: Iterable[tuple[Hashable, Iterable[int]]]) -> None:
        """Check the condition of every request that waits for one of these topics or partitions."""
        if not self._open:
            return
        found: dict[_Wait, dict[Hashable, list[int]]] = {}
        for topic, partitions in named:
            waits = self._waits.get(topic)
            if waits is None:
                continue
            for index in chain((_WHOLE,), partitions):
                for wait in waits.get(index, ()):
                    found.setdefault(wait, {}).setdefault(topic, []).append(index)
        for wait, some in found.items():
            if wait.done.done():
                continue
            try:
                ready = wait.look(some)
            except Exception as fault:  # the fault belongs to the waiting handler, not to the request that woke it
                log.debug("the condition of a waiting request raised an exception; the request fails with it", exc_info=True)
                wait.done.set_exception(fault)
                ready = False
            if ready:
                _complete(wait, True)

    def close(self) -> None:
        """End every wait as if its time-out had passed. Later requests do not wait."""
        self._closed = True
        for wait in self._open:
            _complete(wait, False)

    def _remember(self, wait: _Wait, some: Named) -> None:
        self._open[wait] = None
        wait.keys.append(some)
        for topic, partitions in some.items():
            waits = self._waits.setdefault(topic, {})
            for index in partitions:
                waits.setdefault(index, []).append(wait)

    def _forget(self, wait: _Wait) -> None:
        self._open.pop(wait, None)
        for topic, partitions in chain.from_iterable(some.items() for some in wait.keys):
            waits = self._waits[topic]
            for index in partitions:
                waiting = waits[index]
                waiting.remove(wait)
                if not waiting:
                    del waits[index]
            if not waits:
                del self._waits[topic]


def _complete(wait: _Wait, result: bool) -> None:
    if not wait.done.done():
        wait.done.set_result(result)


def _slices(partitions: Named) -> Iterator[Named]:
    """Split the partitions into slices of at most SLICE; yields one empty slice if there are none."""
    some: dict[Hashable, Sequence[int]] = {}
    size = 0
    for topic, indexes in partitions.items():
        for at in range(0, len(indexes), SLICE):
            part = indexes[at : at + SLICE]
            if size + len(part) > SLICE:
                yield some
                some, size = {}, 0
            some[topic] = part
            size += len(part)
    yield some
