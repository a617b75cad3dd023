"""A coordinator costs a machine and its records: counters over the runtime, and what the runtime does for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from klamm.broker.coordinators.effects import AppendRecords
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.seams.clock import Now
from klamm.seams.steering import Steering
from klamm.server.coordinators.partition_timers import AGAIN_MS
from klamm.server.coordinators.tickets import new_ticket
from klamm.tests.server.coordinators.counters import IDLE_MS, CounterCoordinator, Counters, CounterStored, Total
from klamm.tests.server.groups.coordinating_broker import CoordinatingBroker, T


class Counting:
    """A broker with a coordinator of counters, whose partitions are those of topic t."""

    def __init__(self) -> None:
        self.steering = Steering()
        self.broker = CoordinatingBroker()
        self.counters = CounterCoordinator(
            T.topic, 1, self.broker.replicas, self.broker.background, self.broker.clock, 60_000, self.steering
        )
        self.broker.replicas.listeners.append(self.counters.partitions.apply)

    def lead(self, leader: int = 1, epoch: int = 1) -> None:
        self.broker.lead(leader=leader, epoch=epoch, topic=T.topic)

    async def add(self, amount: int) -> Total:
        added = self.counters.add("c", amount)
        await self.broker.settle()
        assert added.done()
        return added.result()


@pytest.fixture
async def counting() -> AsyncIterator[Counting]:
    counting = Counting()
    counting.lead()
    await counting.broker.settle()
    yield counting
    counting.counters.close()
    await counting.broker.close()


async def test_a_counter_is_in_the_log_and_with_the_next_coordinator(counting: Counting) -> None:
    assert [await counting.add(2), await counting.add(3)] == [Total(E.NONE, 2), Total(E.NONE, 5)]
    counting.lead(leader=2, epoch=2)
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        counting.counters.add("c", 1)
    counting.lead(epoch=3)
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        counting.counters.add("c", 1)
    await counting.broker.settle()
    assert await counting.add(1) == Total(E.NONE, 6)


async def test_a_deadline_deletes_a_counter_and_only_while_it_is_coordinated(counting: Counting) -> None:
    await counting.add(1)
    await counting.broker.advance(IDLE_MS / 1000)
    assert [record.value for record in counting.broker.records(topic=T.topic)] == [b"1", None]
    await counting.add(1)
    counting.lead(leader=2, epoch=2)
    await counting.broker.advance(10 * IDLE_MS / 1000)
    assert [record.value for record in counting.broker.records(topic=T.topic)] == [b"1", None, b"1"]


async def test_a_counter_is_held_at_its_phase_and_its_response_fails_there(counting: Counting) -> None:
    told: list[CounterStored] = []
    counting.counters.phases.watch = told.append
    hold = counting.steering.hold(CounterStored, where={"counter": "c"})
    added = counting.counters.add("c", 1)
    await counting.broker.settle()
    assert (hold.held, told, added.done()) == ([CounterStored("c")], [CounterStored("c")], False)
    hold.fail(ApiError(E.UNKNOWN_SERVER_ERROR))
    await counting.broker.settle()
    assert added.result() == Total(E.UNKNOWN_SERVER_ERROR)
    assert [record.value for record in counting.broker.records(topic=T.topic)] == [b"1"]


async def test_a_coordinator_that_has_given_up_its_partition_is_not_held(counting: Counting) -> None:
    """Nobody could let it go on."""
    hold = counting.steering.hold(CounterStored)
    added = counting.counters.add("c", 1)
    counting.lead(leader=2, epoch=2)
    await counting.broker.settle()
    assert (hold.held, added.result().error) == ([], E.NONE)


async def test_an_append_that_raises_fails_its_request_and_others_go_on(counting: Counting, caplog: pytest.LogCaptureFixture) -> None:
    broken: AppendRecords = AppendRecords("d", ticket := new_ticket(), ((b"d", "no bytes"),))  # type: ignore[arg-type]

    def add_both(counters: Counters) -> asyncio.Future[Total]:
        counters._effects.append(broken)
        counters.add("c", 1, added := new_ticket())
        return added

    added = counting.counters.ask("c", add_both)
    await counting.broker.settle()
    assert (ticket.result(), added.result()) == (Total(E.UNKNOWN_SERVER_ERROR), Total(E.NONE, 1))
    assert "t-0: no append for d" in caplog.text


async def test_a_watcher_that_fails_keeps_no_response_back(counting: Counting, caplog: pytest.LogCaptureFixture) -> None:
    def broken(phase: CounterStored) -> None:
        raise RuntimeError(phase)

    counting.counters.phases.watch = broken
    assert await counting.add(1) == Total(E.NONE, 1)
    assert "what is told of CounterStored raised an exception" in caplog.text


async def test_a_deadline_that_always_fails_is_tried_after_pauses(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays due: without a pause nothing else would happen."""
    ticks: list[int] = []

    def tick(counters: Counters, now: Now) -> None:
        ticks.append(now.ms)
        if len(ticks) == 10:  # there is no pause
            return counters._deadlines.clear()
        raise RuntimeError("a fault")

    await counting.add(1)
    monkeypatch.setattr(Counters, "tick", tick)
    await counting.broker.advance((IDLE_MS + 3 * AGAIN_MS) / 1000)
    assert [later - earlier for earlier, later in pairwise(ticks)] == [AGAIN_MS] * 3
