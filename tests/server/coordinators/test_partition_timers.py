"""Each partition of a coordinator has one timer, which fires at its next deadline."""

from __future__ import annotations

import asyncio

import pytest

from klamm.broker.log.log import AppendResult
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.server.coordinators.partition_timers import PartitionTimers
from klamm.server.coordinators.tickets import complete, new_ticket
from klamm.server.local.driven_clock import DrivenClock
from klamm.server.produce.internal_appends import outcome_of

P = TopicPartition("t", 0)


class Timers:
    def __init__(self) -> None:
        self.clock = DrivenClock()
        self.fired: list[tuple[int, int]] = []
        self.timers = PartitionTimers(self.clock, lambda index: self.fired.append((index, round(self.clock.monotonic() * 1000))))


async def test_a_timer_fires_once_at_its_deadline() -> None:
    timers = Timers()
    timers.timers.set(0, 500)
    timers.timers.set(1, 700)
    await timers.clock.advance(10)
    assert timers.fired == [(0, 500), (1, 700)]


async def test_an_earlier_deadline_replaces_the_timer_and_a_later_one_does_not() -> None:
    timers = Timers()
    timers.timers.set(0, 500)
    timers.timers.set(0, 300)
    timers.timers.set(0, 400)
    assert await timers.clock.advance(10) == 1
    assert timers.fired == [(0, 300)]


async def test_without_a_deadline_there_is_no_timer() -> None:
    timers = Timers()
    timers.timers.set(0, 500)
    timers.timers.set(0, None)
    timers.timers.set(0, None)
    assert await timers.clock.advance(10) == 0
    timers.timers.set(0, 11_000)
    await timers.clock.advance(10)
    assert timers.fired == [(0, 11_000)]


async def test_a_deadline_that_has_passed_fires_at_once() -> None:
    timers = Timers()
    await timers.clock.advance(5)
    timers.timers.set(0, 1)
    assert await timers.clock.advance(0) == 1
    assert timers.fired == [(0, 5_000)]


async def test_a_call_that_fails_is_logged_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, fired = DrivenClock(), list[int]()

    def fire(index: int) -> None:
        fired.append(index)
        if len(fired) == 1:
            raise RuntimeError("a fault")

    PartitionTimers(clock, fire).set(3, 500)
    await clock.advance(10)
    assert fired == [3, 3]
    assert "what is due in partition 3 raised an exception" in caplog.text


# --- tickets and outcomes of appends


async def test_a_ticket_has_its_first_result_unless_its_client_has_gone() -> None:
    ticket, gone = new_ticket(), new_ticket()
    gone.cancel()
    for result in (1, 2):
        complete(ticket, result)
        complete(gone, result)
    complete(None, 3)
    assert ticket.result() == 1
    assert gone.cancelled()


async def test_an_append_has_the_offset_of_its_first_record_or_the_code_of_its_error(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    good: asyncio.Future[AppendResult] = loop.create_future()
    good.set_result(AppendResult(7, 9, -1, 0))
    assert outcome_of(good, P) == (E.NONE, 7)
    refused: asyncio.Future[AppendResult] = loop.create_future()
    refused.set_exception(ApiError(E.NOT_ENOUGH_REPLICAS))
    assert outcome_of(refused, P) == (E.NOT_ENOUGH_REPLICAS, 0)
    cancelled: asyncio.Future[AppendResult] = loop.create_future()
    cancelled.cancel()
    assert outcome_of(cancelled, P) == (E.NOT_LEADER_OR_FOLLOWER, 0)
    assert caplog.records == []
    failed: asyncio.Future[AppendResult] = loop.create_future()
    failed.set_exception(RuntimeError("no reason"))
    assert outcome_of(failed, P) == (E.UNKNOWN_SERVER_ERROR, 0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
