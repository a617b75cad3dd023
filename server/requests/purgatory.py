"""Where requests wait for the metadata cache: until a condition on some topics or partitions holds, or their time is over.

A handler that changed something waits with the topics, or the partitions, that it depends on and a condition. The condition is checked once
right away, then whenever somebody says that one of those was named (each UpdateMetadata does), and never by polling. Waits are found
by what was named, so that a request that waits for other partitions of the same topic costs nothing. Waits are woken in the
order they began. A time-out of zero or less means: look once, do not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from klamm.protocol.clock import SYSTEM_CLOCK, Clock
from klamm.protocol.pace import SLICE, Pace

log = logging.getLogger(__name__)

Named = Mapping[str, Sequence[int]]
"""Topics, each with some of its partitions."""

Condition = Callable[[Named], bool]
"""Whether the wait is over. It is told which of its partitions may have changed; it must be quick and must not wait."""

_WHOLE = -1
"""Instead of a partition: any of the topic."""


class _Wait:
    """`keys` are those by which it can be found."""

    __slots__ = ("done", "keys", "look")

    def __init__(self, look: Condition, done: asyncio.Future[bool]) -> None:
        self.look = look
        self.done = done
        self.keys: list[Named] = []


class Purgatory:
    """Waiting requests by topic and partition."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # a dict is used as an ordered set: waits are woken in the order they came
        self._open: dict[_Wait, None] = {}
        self._waits: dict[str, dict[int, list[_Wait]]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    async def wait(self, topics: Iterable[str], ready: Callable[[], bool], timeout_ms: int) -> bool:
        """True once `ready()` holds, False when `timeout_ms` passed before. `ready` must be quick and must not wait."""
        return await self._wait([dict.fromkeys(topics, (_WHOLE,))], lambda _: ready(), timeout_ms)

    async def wait_for_partitions(self, partitions: Named, look: Condition, timeout_ms: int) -> bool:
        """True once `look` does, False when `timeout_ms` passed before. At first it is told all partitions, in slices."""
        return await self._wait(_slices(partitions), look, timeout_ms)

    async def _wait(self, slices: Iterable[Named], look: Condition, timeout_ms: int) -> bool:
        waits = timeout_ms > 0 and not self._closed
        wait = _Wait(look, asyncio.get_running_loop().create_future())
        timer = self._clock.call_later(timeout_ms / 1000, _complete, wait, False) if waits else None
        pace = Pace()
        try:
            for some in slices:
                await pace(sum(map(len, some.values())))
                if waits:  # from here on a change is noticed; what was before is seen now
                    self._remember(wait, some)
                if look(some):
                    return True
            return waits and await wait.done
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(wait)

    def check(self, named: Iterable[tuple[str, Iterable[int]]]) -> None:
        """Look again at every wait that cares for one of these topics, or for one of the partitions named with them."""
        if not self._open:
            return
        found: dict[_Wait, dict[str, list[int]]] = {}
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
            except Exception as fault:  # the waiting handler's own fault: hand it to that handler, not to the request that woke it
                log.debug("a condition raised an exception; its request gets the error", exc_info=True)
                wait.done.set_exception(fault)
                ready = False
            if ready:
                _complete(wait, True)

    def close(self) -> None:
        """Every wait ends as if its time were over; later ones do not wait."""
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
    """The partitions in slices of a size that stops nobody; one that is empty if there are none."""
    some: dict[str, Sequence[int]] = {}
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
