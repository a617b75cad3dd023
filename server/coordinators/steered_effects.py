"""Effects of coordinators that may be held at phases: each group, each transactional id by itself.

While a key (a group, a transactional id) is held, its effects wait in order: no response goes out, no record is appended, no marker is
sent. Its coordinator goes on to decide, as with a slow disk; what it decides waits too. Other keys are not concerned. Imported only while
somebody steers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from klamm.machine.faults import contained
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.steering import HeldPhase, Steering

log = logging.getLogger(__name__)

Do = Callable[[Any], None]
Failed = Callable[[ErrorCode, list[Any]], Sequence[Any]]
"""(code, effects that follow the phase) → what is done in their place: an effect, or a function that does it."""


class Reached(NamedTuple):
    """Between two effects: a phase. `failed` is None if nothing can fail there."""

    phase: Any
    failed: Failed | None = None


class _Queue:
    """What waits for one key: batches of effects that belong together."""

    def __init__(self, index: int, do: Do) -> None:
        self.index = index
        self.do = do
        self.batches: deque[deque[Any]] = deque()
        self.held: HeldPhase[Any] | None = None
        self.waiters: list[asyncio.Future[None]] = []


class SteeredEffects:
    """Those of one coordinator."""

    def __init__(self, steering: Steering, broker_id: int) -> None:
        self._steering = steering
        self._broker_id = broker_id
        self._queues: dict[str, _Queue] = {}

    @property
    def is_busy(self) -> bool:
        """Whether the effects of some key wait."""
        return bool(self._queues)

    def run(self, index: int, key: str, batch: Sequence[Any], do: Do) -> None:
        """Do effects of a key with `do`, after those that wait; `Reached` among them are phases. `index` is the partition of the key."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.batches.append(deque(batch))
            return
        queue = self._queues[key] = _Queue(index, do)
        queue.batches.append(deque(batch))
        self._go(key, queue)

    async def until_free(self, key: str) -> None:
        """Wait until no effects of a key wait."""
        queue = self._queues.get(key)
        if queue is not None:
            waiter = asyncio.get_running_loop().create_future()
            queue.waiters.append(waiter)
            await waiter

    def drop(self, index: int) -> list[Any]:
        """The coordinator gives up a partition: nothing of it is held any more. Returns the effects that were not done, in order."""
        left: list[Any] = []
        for key, queue in [each for each in self._queues.items() if each[1].index == index]:
            if queue.held is not None:
                queue.held.drop()
            left += [effect for batch in queue.batches for effect in batch if not isinstance(effect, Reached)]
            self._end(key, queue)
        return left

    def _go(self, key: str, queue: _Queue) -> None:
        while queue.batches and self._queues.get(key) is queue:
            batch = queue.batches[0]
            if not batch:
                queue.batches.popleft()
                continue
            effect = batch.popleft()
            if not isinstance(effect, Reached):
                with contained(log, f"an effect that waited for {key}"):
                    effect() if callable(effect) else queue.do(effect)
            elif self._is_held(key, queue, batch, effect):
                return
        if self._queues.get(key) is queue:
            self._end(key, queue)

    def _is_held(self, key: str, queue: _Queue, batch: deque[Any], reached: Reached) -> bool:
        loop, failed = asyncio.get_running_loop(), reached.failed

        def fail(error: BaseException) -> None:
            assert failed is not None
            with contained(log, f"the failure of what waits for {key}"):  # what is held must go on, whatever comes of it
                rest = failed(error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR, list(batch))
                batch.clear()
                batch.extend(rest)
            loop.call_soon(self._go, key, queue)

        def go_on() -> None:
            loop.call_soon(self._go, key, queue)

        queue.held = self._steering.park(reached.phase, go_on, self._broker_id, None if failed is None else fail)
        return queue.held is not None

    def _end(self, key: str, queue: _Queue) -> None:
        del self._queues[key]
        for waiter in queue.waiters:
            if not waiter.done():
                waiter.set_result(None)
