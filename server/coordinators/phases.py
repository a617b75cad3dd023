"""The phases of one coordinator: who is told of them, and what waits while somebody holds one.

While a key (a group, a transactional id) is held, its effects wait in order: no response goes out, no record is appended, no marker is
sent. Its coordinator goes on to decide, as with a slow disk; what it decides waits too. Other keys are not concerned.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from klamm.broker.coordinators.effects import AppendRecords, Phase, Respond
from klamm.machine.faults import contained
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.steering import HeldPhase, Steering

log = logging.getLogger(__name__)

Watch = Callable[[Any], None]
"""Called with each phase when its coordinator decides what follows it, whether somebody holds it or not."""
Do = Callable[[Any], None]


def all_of(watches: Iterable[Watch | None]) -> Watch | None:
    """One that tells all of them; None if there are none."""
    each = [watch for watch in watches if watch is not None]
    if len(each) < 2:
        return each[0] if each else None

    def tell(phase: Any) -> None:
        for watch in each:
            watch(phase)

    return tell


class FailedAppend(NamedTuple):
    """In the place of an append that fails at a phase: it is not made, and has this outcome."""

    append: AppendRecords
    code: ErrorCode


class _Queue:
    """What waits for one key: batches of effects that belong together."""

    def __init__(self, index: int, do: Do) -> None:
        self.index = index
        self.do = do
        self.batches: deque[deque[Any]] = deque()
        self.held: HeldPhase[Any] | None = None
        self.waiters: list[asyncio.Future[None]] = []


class Phases:
    """Those of one coordinator."""

    def __init__(self, steering: Steering | None, broker_id: int) -> None:
        """`steering` is None if nobody can hold a phase."""
        self.broker_id = broker_id
        self.watch: Watch | None = None
        self._steering = steering
        self._queues: dict[str, _Queue] = {}

    @property
    def is_followed(self) -> bool:
        """Whether somebody is told of phases, may hold them, or holds one; else effects are done at once."""
        return self.watch is not None or bool(self._queues) or (self._steering is not None and self._steering.holds)

    async def reach(self, phase: object) -> None:
        """A procedure is at a phase. Returns when it may go on; raises what it is to fail with."""
        self._tell(phase)
        if self._steering is not None:
            await self._steering.reach(phase, self.broker_id)

    def run(self, index: int, effects: Sequence[Any], do: Do) -> None:
        """Do effects of partition `index` with `do`, those of each key after what waits for it."""
        batches: dict[str | None, deque[Any]] = {}
        for effect in effects:
            if isinstance(effect, Phase):
                self._tell(effect)
            batches.setdefault(effect.key, deque()).append(effect)
        for key, batch in batches.items():
            if key is None:
                for effect in batch:
                    do(effect)
            elif (queue := self._queues.get(key)) is not None:
                queue.batches.append(batch)
            else:
                queue = self._queues[key] = _Queue(index, do)
                queue.batches.append(batch)
                self._go(key, queue)

    def _tell(self, phase: object) -> None:
        if self.watch is not None:
            with contained(log, f"what is told of {type(phase).__name__}"):  # clients wait for what follows the phase
                self.watch(phase)

    def until_free(self, key: str) -> Awaitable[None] | None:
        """None if no effects of a key wait; else what waits until that is so."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.waiters.append(waiter)
        return waiter

    def drop(self, index: int) -> list[Any]:
        """The coordinator gives up a partition: nothing of it is held any more. Returns the effects that were not done, in order."""
        left: list[Any] = []
        for key, queue in [each for each in self._queues.items() if each[1].index == index]:
            if queue.held is not None:
                queue.held.drop()
            left += [effect for batch in queue.batches for effect in batch if not isinstance(effect, Phase)]
            self._end(key, queue)
        return left

    def _go(self, key: str, queue: _Queue) -> None:
        while queue.batches and self._queues.get(key) is queue:
            batch = queue.batches[0]
            if not batch:
                queue.batches.popleft()
                continue
            effect = batch.popleft()
            if isinstance(effect, Phase):
                if self._is_held(key, queue, batch, effect):
                    return
                continue
            with contained(log, f"an effect that waited for {key}"):
                queue.do(effect)
        if self._queues.get(key) is queue:
            self._end(key, queue)

    def _is_held(self, key: str, queue: _Queue, batch: deque[Any], phase: Phase) -> bool:
        if self._steering is None:
            return False
        loop = asyncio.get_running_loop()

        def go_on() -> None:
            loop.call_soon(self._go, key, queue)

        def fail(error: BaseException) -> None:
            with contained(log, f"the failure of what waits for {key}"):  # what is held must go on, whatever comes of it
                _fail_next(batch, error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR)
            go_on()

        queue.held = self._steering.park(phase, go_on, self.broker_id, fail if phase.can_fail else None)
        return queue.held is not None

    def _end(self, key: str, queue: _Queue) -> None:
        del self._queues[key]
        for waiter in queue.waiters:
            if not waiter.done():
                waiter.set_result(None)


def _fail_next(batch: deque[Any], code: ErrorCode) -> None:
    """What comes next in a batch fails: an append, or all responses, if the first of them comes before an append."""
    for at, effect in enumerate(batch):
        if isinstance(effect, AppendRecords):
            batch[at] = FailedAppend(effect, code)
            return
        if isinstance(effect, Respond):
            break
    for at, effect in enumerate(batch):
        if isinstance(effect, Respond):
            result = effect.result
            batch[at] = effect._replace(result=code if isinstance(result, ErrorCode) else result.failed(code))
