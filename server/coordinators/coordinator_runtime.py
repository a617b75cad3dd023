"""What every coordinator does with its machines (Apache Kafka's `CoordinatorRuntime`).

A coordinator has a machine for each partition of its topic that this broker leads (`Machine`: pure, request + time → effects). The runtime
loads it from the log of the partition and gives it up, appends its records with acks=all and tells it the outcome, completes the futures of
requests that wait, and calls `tick` at its next deadline. Keys (groups, transactional ids) may be held at phases (`phases.py`).

What was decided is bound to the machine that decided it. When its partition is given up, the machine has no timer any more, and nothing of
it is appended or held. What it still wants is to respond to the requests that wait.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from klamm.broker.coordinators.effects import AppendRecords, Phase, Respond
from klamm.broker.log.log import AppendResult
from klamm.broker.replica_manager import ReplicaManager
from klamm.machine.faults import contained
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import TRANSACTIONAL, Buffer, Codec
from klamm.protocol.records.record import Record, encode_batch
from klamm.seams.clock import Clock, Now, time_of
from klamm.seams.steering import Steering
from klamm.server.coordinators.owned_partitions import OwnedPartitions
from klamm.server.coordinators.partition_timers import PartitionTimers
from klamm.server.coordinators.phases import FailedAppend, Phases
from klamm.server.coordinators.tickets import complete
from klamm.server.ground.background import BackgroundTasks
from klamm.server.produce.internal_appends import InternalAppends, outcome_of
from klamm.server.produce.record_appends import Verified

log = logging.getLogger(__name__)

R = TypeVar("R")
E = TypeVar("E")
S = TypeVar("S", bound="Machine")


class Machine(Protocol):
    """The state of one partition. It decides; see `broker/coordinators/effects.py`."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do, in ms of the monotonic clock; None if nothing waits for time."""

    def take_effects(self) -> Sequence[Any]:
        """What is to be done since the last call, in order: Respond, AppendRecords, phases, and what the coordinator itself does."""

    def loaded(self, now: Now) -> None:
        """All records are replayed."""

    def unload(self, now: Now) -> None:
        """Another broker coordinates these keys now."""

    def tick(self, now: Now) -> None:
        """Act on the deadlines that are over."""

    def appended(self, append: AppendRecords, error: ErrorCode, base_offset: int, now: Now) -> None:
        """What became of an append, also after `unload`. `base_offset` is where its first record is; it does not matter after an error."""


class CoordinatorRuntime(ABC, Generic[S, E]):
    """A coordinator of one topic with machines of type S. E are the effects that only this coordinator has."""

    def __init__(
        self, topic: str, count: int, replicas: ReplicaManager, background: BackgroundTasks, clock: Clock, append_timeout_ms: int,
        steering: Steering | None = None, codec: Codec = Codec.NONE,
    ) -> None:
        """`count` is how many partitions the topic gets if it does not exist. `steering` holds keys at phases."""
        self.phases = Phases(steering, replicas.broker_id)
        self._replicas = replicas
        self._background = background
        self._clock = clock
        self._codec = codec
        self._appends = InternalAppends(replicas, clock, append_timeout_ms)
        self._timers = PartitionTimers(clock, self._tick)
        self.partitions: OwnedPartitions[S] = OwnedPartitions(topic, replicas, self, background, clock, count)

    # --- what a coordinator is

    @abstractmethod
    def make(self, index: int) -> S:
        """An empty machine for a partition that this broker leads since now."""

    @abstractmethod
    def replay(self, state: S, batches: Buffer) -> int:
        """Replay whole batches; the offset after the last one. Raises CorruptRecords, BadRecord or BadCompression."""

    def do(self, index: int, state: S, effect: E) -> None:
        """Do an effect that only this coordinator has. The partition may have been given up: see `OwnedPartitions.owns`."""
        raise NotImplementedError

    # --- what it calls

    def ask(self, key: str, decide: Callable[[S], R]) -> R:
        """Let the machine of a key decide something, and do what follows from it. Raises ApiError: this broker does not coordinate it."""
        index, state = self.partitions.find(key)
        result = decide(state)
        self.settle(index, state)
        return result

    def settle(self, index: int, state: S) -> None:
        """Do what the machine of a partition wants done, and set the timer for its next deadline."""
        effects = state.take_effects()
        if effects and self.phases.is_followed and self.partitions.owns(index, state):
            self.phases.run(index, effects, partial(self._do, index, state))
        else:
            for effect in effects:
                self._do(index, state, effect)
        if self.partitions.owns(index, state):  # the timer belongs to the machine that is loaded now
            self._timers.set(index, state.next_deadline_ms)

    def tell(self, decide: Callable[[S], object]) -> None:
        """Tell all machines of something that concerns them, such as topics that are deleted."""
        for index, state in self.partitions.loaded():
            decide(state)
            self.settle(index, state)

    def machines(self) -> Iterator[S]:
        """Those of all partitions that are loaded."""
        return (state for _, state in self.partitions.loaded())

    async def each(self, interval_ms: int, what: str, act: Callable[[int, S], object]) -> None:
        """Do something with each machine from time to time, until this is cancelled."""
        while True:
            await self._clock.sleep(interval_ms / 1000)
            for index, state in self.partitions.loaded():
                with contained(log, f"{what} in {self.partitions.topic}-{index}"):
                    if self.partitions.owns(index, state):
                        act(index, state)
                        self.settle(index, state)
                await asyncio.sleep(0)

    def until_free(self, key: str) -> Awaitable[None] | None:
        """None if a key is not held at a phase; else what waits until it is not."""
        return self.phases.until_free(key)

    def now(self) -> Now:
        """The time of an event."""
        return time_of(self._clock)

    def close(self) -> None:
        """This broker stops: requests that wait get NOT_COORDINATOR, some of them when their appends end."""
        self.partitions.close()

    # --- the owner of partitions

    def loaded(self, index: int, state: S) -> None:
        """From `OwnedPartitions`, as the next one."""
        state.loaded(self.now())
        self.settle(index, state)

    def unload(self, index: int, state: S) -> None:
        self._timers.set(index, None)
        state.unload(self.now())
        self.settle(index, state)
        for effect in self.phases.drop(index):
            self._do(index, state, effect)

    def _tick(self, index: int) -> None:
        try:
            state = self.partitions.get(index)
        except ApiError:
            return
        try:
            state.tick(self.now())
        finally:  # one key may fail; the others have what was decided for them
            self.settle(index, state)

    # --- effects

    def _do(self, index: int, state: S, effect: Any) -> None:
        match effect:
            case Respond():
                complete(effect.ticket, effect.result)
            case AppendRecords():
                self._append(index, state, effect)
            case Phase():
                pass
            case FailedAppend():
                self._ended(index, state, effect.append, effect.code)
            case _:
                self.do(index, state, effect)

    def _append(self, index: int, state: S, append: AppendRecords) -> None:
        if not self.partitions.owns(index, state):
            self._ended(index, state, append, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            appended = self._appends.append(
                TopicPartition(self.partitions.topic, index), self._batch(append), timeout_ms=append.timeout_ms,
                verified=append.verified if isinstance(append.verified, Verified) else None,
                is_wanted=partial(self.partitions.owns, index, state),
            )
        except Exception:  # who waits for the append gets a response
            log.exception("%s-%d: no append for %s", self.partitions.topic, index, append.key)
            self._ended(index, state, append, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            appended.add_done_callback(partial(self._appended, index, state, append))

    def _batch(self, append: AppendRecords) -> bytes:
        now_ms = self._clock.now_ms()
        return encode_batch(
            [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(append.records)],
            codec=self._codec, attributes=0 if append.producer_id == -1 else TRANSACTIONAL, producer_id=append.producer_id,
            producer_epoch=append.producer_epoch,
        )

    def _appended(self, index: int, state: S, append: AppendRecords, appended: asyncio.Future[AppendResult]) -> None:
        self._ended(index, state, append, *outcome_of(appended, TopicPartition(self.partitions.topic, index)))

    def _ended(self, index: int, state: S, append: AppendRecords, error: ErrorCode, base_offset: int = 0) -> None:
        state.appended(append, error, base_offset, self.now())
        self.settle(index, state)
