"""The recovery of a leader after an unclean election, before it serves (KIP-704).

A leader whose state is marked as recovering must recover first: in mode `instant` at once, in mode `delay:<ms>` after a delay, in mode
`manual` when it is released at the gate. A new mode also applies to recoveries in progress: `instant` ends the wait, and a delay
counts from the beginning of the recovery. Then the recovery work is done: transactions that are open in the log come to their end
(`server/transactions/transaction_recovery.py`). At the end the leader proposes the same single-member ISR without the mark, and serves the
partition when the controller has confirmed that.

Another leader epoch ends a recovery; if it is marked too, recovery starts again. It began when it began in the first of these epochs, as
long as this broker stays the leader. Source: controller 24, R704-10 to R704-14, R704-20.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from klamm.broker.leaders import Leaders
from klamm.broker.partition import HostedPartition
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock

log = logging.getLogger(__name__)

MANUAL, DELAY = "manual", "delay:"


class Recovery(NamedTuple):
    """One partition that a broker recovers in one leader epoch."""

    broker_id: int
    partition: TopicPartition
    leader_epoch: int


RecoveryWork = Callable[[Recovery], Awaitable[None]]


async def no_work(recovery: Recovery) -> None:
    """No recovery work beside the end of transactions."""


class RecoveryGate:
    """Recoveries in mode `manual` wait here for their release. All brokers of a local cluster share one gate."""

    def __init__(self) -> None:
        self._waiting: dict[Recovery, asyncio.Event] = {}

    @property
    def waiting(self) -> list[Recovery]:
        """The recoveries that wait to be released, oldest first."""
        return list(self._waiting)

    async def wait(self, recovery: Recovery) -> None:
        """Return when this recovery is released."""
        event = self._waiting[recovery] = asyncio.Event()
        try:
            await event.wait()
        finally:
            if self._waiting.get(recovery) is event:
                del self._waiting[recovery]

    def release(self, topic: str | None = None, partition: int | None = None) -> list[Recovery]:
        """Release waiting recoveries: all, those of a topic, or that of one partition. Returns the released ones."""
        released = [
            recovery
            for recovery in self._waiting
            if (topic is None or recovery.partition.topic == topic) and (partition is None or recovery.partition.partition == partition)
        ]
        for recovery in released:
            self._waiting.pop(recovery).set()
        return released


class RecoveryProcess:
    """Recovers the leaders of one broker. `mode` is a value of `kip704.recovery.mode`."""

    def __init__(self, mode: str, clock: Clock, gate: RecoveryGate, work: RecoveryWork) -> None:
        self._mode = mode
        self._mode_changed = asyncio.Event()
        self._clock = clock
        self._gate = gate
        self._work = work

    def set_mode(self, mode: str) -> None:
        """Change the mode, also for recoveries in progress."""
        if mode != self._mode:
            self._mode = mode
            self._mode_changed.set()
            self._mode_changed = asyncio.Event()

    async def __call__(self, recovery: Recovery, begun: float) -> None:
        """Recover a partition: wait as the mode says, then do the recovery work. `begun` is the (monotonic) time at which it began."""
        while (waiting := self._wait(recovery, begun)) is not None:
            released, changed = asyncio.ensure_future(waiting), asyncio.ensure_future(self._mode_changed.wait())
            try:
                await asyncio.wait((released, changed), return_when=asyncio.FIRST_COMPLETED)
                if released.done():
                    released.result()
                    break
            finally:
                for task in (released, changed):
                    task.cancel()
                await asyncio.gather(released, changed, return_exceptions=True)
        await self._work(recovery)

    def _wait(self, recovery: Recovery, begun: float) -> Coroutine[Any, Any, None] | None:
        """A coroutine that waits as the mode says; None if the mode does not wait."""
        if self._mode == MANUAL:
            return self._gate.wait(recovery)
        if self._mode.startswith(DELAY):
            return self._clock.sleep(max(0.0, begun + int(self._mode.removeprefix(DELAY)) / 1000 - self._clock.monotonic()))
        return None


class LeaderRecovery:
    """The recoveries of one broker. `spawn` runs a coroutine in the background."""

    def __init__(
        self, broker_id: int, leaders: Leaders, process: RecoveryProcess, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    ) -> None:
        self._broker_id = broker_id
        self._leaders = leaders
        self._process = process
        self._spawn = spawn

    def begin(self, replica: HostedPartition) -> None:
        """Recover a partition that this broker leads since an unclean election; then propose its ISR without the mark."""
        leadership = replica.leadership
        if leadership is not None:
            recovery = Recovery(self._broker_id, TopicPartition(replica.topic, replica.index), replica.leader_epoch)
            task = self._spawn(self._recover(replica, recovery, leadership.recovery_begun_ms / 1000))
            ends = _EndsWithItsEpoch(replica.leader_epoch, task)
            replica.watch(ends)
            task.add_done_callback(lambda _: replica.unwatch(ends))

    async def _recover(self, replica: HostedPartition, recovery: Recovery, begun: float) -> None:
        log.info("broker %d: %s recovers in leader epoch %d after an unclean election", *recovery)
        await self._process(recovery, begun)
        self._leaders.recovered(replica, recovery.leader_epoch)


class _EndsWithItsEpoch:
    """Watches a partition that recovers: cancels the recovery when the broker does not lead the partition in its epoch any more."""

    def __init__(self, leader_epoch: int, task: asyncio.Task[None]) -> None:
        self._leader_epoch = leader_epoch
        self._task = task

    def partition_changed(self, partition: HostedPartition) -> None:
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            self._task.cancel()
