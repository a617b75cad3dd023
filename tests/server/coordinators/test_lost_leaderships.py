"""The leadership of a coordinator's partition is taken away at each await of the runtime, and perhaps given back at once.

A run is a schedule: clients send requests, time passes, and after a number of turns of the event loop another broker is the leader. The
numbers are counted up until everything has ended before, so each place at which something can be suspended comes up; the last test says
that none is left out. Who waits for this coordinator gets a response, only one, and NONE only for what is in the log of the leadership
that was asked.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from klamm.broker.groups import phases as group_phases
from klamm.broker.groups.log_records import group_key, offset_key
from klamm.broker.groups.requests import Leaving, Sync
from klamm.broker.log.log import Log
from klamm.broker.transactions import phases as transaction_phases
from klamm.broker.transactions.log_records import key_of
from klamm.broker.transactions.requests import AddPartitions, EndTransaction, InitProducerId
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.record import read_records
from klamm.seams import pace
from klamm.seams.steering import Steering
from klamm.server.coordinators import coordinator_runtime, owned_partitions, tickets
from klamm.server.coordinators.coordinator_runtime import CoordinatorRuntime
from klamm.server.groups import group_coordinator
from klamm.server.produce import internal_appends, record_appends
from klamm.server.transactions import transaction_coordinator
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.tests.server.coordinators.counters import CounterCoordinator, CounterStored
from klamm.tests.server.groups.coordinating_broker import GROUP, CoordinatingBroker, T
from klamm.tests.server.recoveries.recovering import Recoveries
from klamm.tests.server.transactions.transaction_broker import ID, OWN, CountedIds, TransactionBroker

TRANSACTION = TopicPartition(TRANSACTION_TOPIC, 0)

LAST_TURN = 400
AGAIN = (E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS)
RUNTIME = (coordinator_runtime, owned_partitions, group_coordinator, transaction_coordinator, internal_appends)
"""Modules whose awaits are interrupted."""

Place = tuple[str, int]
"""File and line."""


class Response(NamedTuple):
    """What a client got. `key` is that of the record which NONE stands for, None if there is none; `epoch` that of the leadership which was
    asked."""

    key: bytes | None
    epoch: int
    code: E


class Run:
    """One schedule. `ends` is how the leadership goes at turn `at`: to another broker, or to another one and back."""

    def __init__(
        self, broker: CoordinatingBroker, coordinator: CoordinatorRuntime[Any, Any], steering: Steering, at: int, ends: str
    ) -> None:
        self.broker = broker
        self.coordinator = coordinator
        self.steering = steering
        self.responses: list[Response] = []
        self.epoch = 3
        self.turns = 0
        self.interrupted: set[Place] = set()
        """What was suspended when the leadership ended."""
        self._at = at
        self._ends = ends
        self._topic = coordinator.partitions.topic

    async def go(self, clients: list[Awaitable[None]], recovers: bool = False) -> set[Place]:
        """What was suspended when the leadership ended; nothing if all clients had their responses before."""
        recoveries = Recoveries(self.broker) if recovers else None
        self.broker.lead(epoch=3, topic=self._topic, recovery=int(recovers))
        waiting = asyncio.gather(*clients)
        while not (waiting.done() and self.turns > self._at):
            assert self.turns < LAST_TURN, "a client has no response"
            if waiting.done() and self.turns == self._at:
                return set()
            await self.broker.clock.advance(0.002, self._turn)
            await self._turn()
            if recoveries is not None and recoveries.proposals and self.turns > 5:
                recoveries.accept()
        await self.broker.advance(0.01)
        self._check()
        return self.interrupted

    async def ask(self, key: bytes | None, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request until it is not too early for it; its result."""
        while True:
            epoch = self.epoch
            try:
                result = await send()
            except ApiError as error:
                result = error.code
            code = result if isinstance(result, E) else result.error
            if code not in AGAIN:
                self.responses.append(Response(key, epoch, code))
                return result
            await asyncio.sleep(0)

    async def _turn(self) -> None:
        for hold in self.steering.present:
            for held in hold.held_phases if self.turns == self._at or self.turns % 5 == 1 else ():
                if held.can_fail and self.turns == self._at and (self._ends == "lost" or self._at % 2):
                    held.fail(ApiError(E.UNKNOWN_SERVER_ERROR))
                else:
                    held.step()
        if self.turns == self._at:
            self.interrupted = set(suspended())
            self.broker.lead(leader=2, epoch=4, topic=self._topic)
            if self._ends == "lost and won":
                self.broker.lead(epoch=5, topic=self._topic)
                self.epoch = 5
        self.turns += 1
        await asyncio.sleep(0)

    def _check(self) -> None:
        """No response says NONE for what this leadership has not in the log."""
        data = self.broker.data(topic=self._topic)
        stored: Counter[tuple[bytes | None, int]] = Counter(
            (record.key, header.leader_epoch) for position, header in each_header(data)
            if not header.is_control for record in read_records(data, header, position)
        )
        told: Counter[tuple[bytes | None, int]] = Counter(
            (each.key, each.epoch) for each in self.responses if each.code is E.NONE and each.key is not None
        )
        assert not told - stored, (self._at, self._ends, self.responses)


def suspended() -> Iterator[Place]:
    """Where the tasks of this event loop wait now, with all their callers."""
    for task in asyncio.all_tasks():
        waiting: Any = task.get_coro()
        while inspect.iscoroutine(waiting):
            if waiting.cr_frame is not None:
                yield waiting.cr_frame.f_code.co_filename, waiting.cr_frame.f_lineno
            waiting = waiting.cr_await


class SlowIds(CountedIds):
    """Each producer id takes a turn of the event loop."""

    async def next_id(self) -> int:
        await asyncio.sleep(0)
        return await super().next_id()


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is answered twice."""
    seen: list[object] = []

    def complete(ticket: object, result: object) -> None:
        assert all(ticket is not each for each in seen), f"a second response: {result}"
        seen.append(ticket)
        tickets.complete(ticket, result)

    for module in (coordinator_runtime, transaction_coordinator):
        monkeypatch.setattr(module, "complete", complete)
    yield


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, answered: None) -> None:
    """Disks and threads take a turn of the event loop, each batch is loaded by itself, and a pause is short."""
    load = Log.load

    async def slow_load(log: Log, *arguments: Any) -> bytes:
        await asyncio.sleep(0)
        return await load(log, *arguments)

    async def in_a_turn(work: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return work(*arguments)

    monkeypatch.setattr(Log, "load", slow_load)
    monkeypatch.setattr(record_appends, "costs_much", lambda *_: True)
    monkeypatch.setattr(asyncio, "to_thread", in_a_turn)
    monkeypatch.setattr(owned_partitions, "LOAD_BYTES", 1)
    monkeypatch.setattr(owned_partitions, "RETRY_S", 0.001)
    monkeypatch.setattr(pace, "SLICE", 0)


async def counters(at: int, ends: str, recovers: bool, replicas: tuple[int, ...] = (1,)) -> set[Place]:
    steering = Steering()
    broker = CoordinatingBroker(replicas=replicas)
    counters = CounterCoordinator(T.topic, 1, broker.replicas, broker.background, broker.clock, 20, steering)
    broker.replicas.listeners.append(counters.partitions.apply)
    if recovers:
        broker.lead(topic=T.topic)
        for _ in range(2):
            await broker.append((b"c", b"1"), topic=T.topic)
        broker.lead(leader=2, epoch=2, topic=T.topic)
    else:
        broker.config_errors = [ApiError(E.COORDINATOR_NOT_AVAILABLE)]
    steering.hold(CounterStored)
    run = Run(broker, counters, steering, at, ends)

    async def client(counter: str) -> None:
        for _ in range(2):
            await run.ask(counter.encode(), lambda: counters.add(counter, 1))

    places = await run.go([client("c"), client("d")], recovers)
    assert recovers or len(replicas) == 1 or not any(each.code is E.NONE for each in run.responses)
    counters.close()
    await broker.close()
    return places


async def counters_without_a_follower(at: int, ends: str, recovers: bool) -> set[Place]:
    """Nothing is in all replicas of the ISR, unless the leader recovers: then it is the only one."""
    return await counters(at, ends, recovers, (1, 2))


async def groups(at: int, ends: str, is_held: bool) -> set[Place]:
    steering = Steering()
    broker = CoordinatingBroker(steering=steering, offsets_retention_check_interval_ms=1)
    if is_held:
        steering.hold(*group_phases.GroupPhase.__args__)
    run, groups = Run(broker, broker.groups, steering, at, ends), broker.groups

    async def member() -> None:
        joined = await run.ask(None, lambda: groups.join(broker.join_request()))
        if isinstance(joined, E) or joined.error is not E.NONE:
            return
        member, generation = joined.member_id, joined.generation
        mine = ((member, b"mine"),)
        sync = Sync(None, GROUP, generation, member, None, None, None, mine)
        await run.ask(group_key(GROUP), lambda: groups.sync(sync))
        commit = broker.commit_request(member_id=member, generation=generation)
        await run.ask(offset_key(GROUP, T), lambda: groups.commit(commit))
        await run.ask(None, lambda: left(member))

    async def left(member: str) -> E:
        (code,) = groups.leave(GROUP, [Leaving(member, None)])
        if (held := groups.until_free(GROUP)) is not None:
            await held
        return code

    async def others() -> None:
        for offset in (1, 2):
            await run.ask(offset_key("h", T), partial(groups.commit, broker.commit_request(offset, group_id="h")))

    loop = asyncio.ensure_future(groups.expire_offsets())
    places = await run.go([member(), others()])
    loop.cancel()
    await broker.close()
    return places


async def transactions(at: int, ends: str, is_held: bool) -> set[Place]:
    steering = Steering()
    intervals = "abort_timed_out_transaction", "remove_expired_transaction"
    broker = TransactionBroker(steering=steering, **{f"transaction_{each}_cleanup_interval_ms": 1 for each in intervals})
    broker.ids = broker.coordinator._producer_ids = SlowIds()
    broker.publish({OWN: 1, TRANSACTION: 1})
    broker.lead(OWN.partition, topic=OWN.topic)
    if is_held:
        steering.hold(*transaction_phases.TransactionPhase.__args__)
    run, coordinator = Run(broker, broker.coordinator, steering, at, ends), broker.coordinator

    async def producer(transactional_id: str, is_fenced: bool = False) -> None:
        key = key_of(transactional_id)
        result = await run.ask(key, lambda: coordinator.init_producer_id(InitProducerId(None, transactional_id, 60_000)))
        if result.error is not E.NONE:
            return
        producer = transactional_id, result.producer_id, result.producer_epoch
        added = await run.ask(key, lambda: coordinator.add_partitions(AddPartitions(None, *producer, (OWN,))))
        if added is E.NONE and is_fenced:
            await run.ask(key, lambda: coordinator.init_producer_id(InitProducerId(None, transactional_id, 60_000)))
        elif added is E.NONE:
            await run.ask(key, lambda: coordinator.end(EndTransaction(None, *producer, True)))

    async def leader() -> None:
        """It recovers, and asks how transactions end."""
        for _ in range(12):
            await coordinator.end_pending(OWN, {9: 9, 0: 9})
            await asyncio.sleep(0)

    loops = [asyncio.ensure_future(each) for each in (coordinator.abort_timed_out(), coordinator.expire_ids())]
    places = await run.go([producer(ID), producer("other", is_fenced=True), leader()])
    for each in loops:
        each.cancel()
    broker.parts.close()
    await CoordinatingBroker.close(broker)
    return places


Scene = Callable[[int, str, bool], Awaitable[set[Place]]]
SCENES: tuple[Scene, ...] = counters, counters_without_a_follower, groups, transactions


async def each_turn(scene: Scene, ends: str, is_other: bool) -> set[Place]:
    """Run schedules until nothing goes on any more when the leadership ends; all that was interrupted."""
    interrupted: set[Place] = set()
    for at in count():
        places = await scene(at, ends, is_other)
        if not places:
            assert at > 15
            return interrupted
        interrupted |= places
    raise AssertionError


@pytest.mark.parametrize("is_other", [False, True], ids=["", "recovers or held"])
@pytest.mark.parametrize("ends", ["lost", "lost and won"])
@pytest.mark.parametrize("scene", SCENES)
async def test_who_waits_when_the_leadership_ends_has_one_response_and_a_true_one(
    scene: Scene, ends: str, is_other: bool, slow: None
) -> None:
    await each_turn(scene, ends, is_other)


async def test_each_await_of_the_runtime_is_interrupted(slow: None) -> None:
    """So the schedules leave nothing out."""
    interrupted = set[Place]().union(*[await each_turn(scene, "lost", is_other) for scene in SCENES for is_other in (False, True)])
    missing = [sorted(place)[0] for module in RUNTIME for place in awaits(module) if not place & interrupted]
    assert not missing, "\n".join(f"{path}:{line}" for path, line in missing)


def awaits(module: ModuleType) -> Iterator[set[Place]]:
    """The lines of each `await` in a module."""
    path = module.__file__
    assert path is not None
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.Await):
            yield {(path, line) for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
