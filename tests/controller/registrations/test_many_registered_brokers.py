"""Brokers that register with the controller, in numbers, under a clock that the test drives: nobody is fenced who fetches, and whoever
does not is fenced in time (RREG-8).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from klamm.controller.broker_sessions import GRACE_S, MOMENT_S, NOTED_AFTER, BrokerSessions
from klamm.controller.metadata_log.fetches import MetadataFetch
from klamm.controller.values import BrokerState, BrokerToRegister
from klamm.protocol.nouns import Endpoint
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.controller.metadata_log.logged_simulation import REGISTERING
from klamm.tests.controller.registrations.simulated_registrations import SimulatedPeer
from klamm.tests.controller.simulated import Faults
from klamm.tests.controller.simulation.simulation import Process, Simulation

INTERVAL_S, TIMEOUT_S = 2.0, 9.0
NOTED_S = TIMEOUT_S * NOTED_AFTER
TICK_S = 0.1
TICKS = round(INTERVAL_S / TICK_S)


class DeafChannels:
    """Channels to brokers of which nothing comes back."""

    def add_broker(self, broker_id: int, host: str, port: int) -> None:
        pass

    def remove_broker(self, broker_id: int) -> None:
        pass

    def close(self) -> None:
        pass

    def send(self, *arguments: Any, **options: Any) -> None:
        pass


class Many(Simulation):
    """One controller, and brokers that fetch once per interval, spread over it."""

    options = REGISTERING

    def __init__(self, count: int) -> None:
        super().__init__(0, Faults())
        self.driven = self.clock = DrivenClock()
        self.peers = {broker_id: SimulatedPeer() for broker_id in range(1, count + 1)}
        self.epochs: dict[int, int] = {}
        self.silent: set[int] = set()
        self.fenced: list[int] = []

    def channels(self, broker_id: int) -> Any:
        return DeafChannels()

    def cut(self, channels: Any) -> None:
        """Nothing comes or goes."""

    async def open(self) -> None:
        """All brokers are online."""
        self.processes.append(Process(self, 0))
        await self.settle()
        await asyncio.gather(*map(self.register, self.peers))
        await self.settle()
        for _ in range(2):  # what was appended when the first ones came online is news for the others
            await asyncio.gather(*map(self.fetch, self.peers))
            await self.settle()
        assert self.states() == {BrokerState.ONLINE}

    async def register(self, broker_id: int) -> None:
        endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092, 0)
        registered = await self.processes[0].controller.register_broker(BrokerToRegister(broker_id, (endpoint,)), self.peers[broker_id])
        self.epochs[broker_id] = registered.epoch

    async def fetch(self, broker_id: int) -> None:
        """The broker says that it has applied everything."""
        controller = self.processes[0].controller
        assert controller.term is not None and controller.term.metadata_log is not None
        log = controller.term.metadata_log
        request = MetadataFetch(broker_id, self.epochs[broker_id], log.controller_epoch, log.high_watermark, 0, 1 << 20)
        await controller.metadata_fetch(request, self.peers[broker_id])

    def states(self) -> set[BrokerState]:
        return {registration.state for registration in self.registrations().values()}

    def registrations(self) -> Any:
        controller = self.processes[0].controller
        assert controller.term is not None
        return controller.term.cluster.registrations

    async def live(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Time passes, and every broker that is not silent fetches once per interval; how long it was until that came about."""
        for tick in range(round(seconds / TICK_S)):
            await self.driven.advance(TICK_S)
            for broker_id in range(1 + tick % TICKS, len(self.peers) + 1, TICKS):
                if broker_id not in self.silent:
                    await self.fetch(broker_id)
            await asyncio.sleep(0)
            if until():
                return (tick + 1) * TICK_S
        return seconds

    def fenced_now(self) -> set[int]:
        return {b for b, registration in self.registrations().items() if registration.state is not BrokerState.ONLINE}


@asynccontextmanager
async def many(count: int) -> AsyncIterator[Many]:
    one = Many(count)
    try:
        await one.open()
        yield one
    finally:
        for process in one.processes:
            await process.end()


def writes(one: Many) -> int:
    """What the controller has written so far."""
    return one.world.zk.zxid


@pytest.mark.requirement("RREG-8")
@pytest.mark.parametrize(("count", "seconds"), [(100, 600), pytest.param(1000, 600, marks=pytest.mark.slow)])
async def test_brokers_that_fetch_for_ten_minutes_are_never_fenced(count: int, seconds: int) -> None:
    async with many(count) as one:
        before = writes(one)
        await one.live(seconds)
        await one.settle()
        assert not one.fenced_now()
        assert writes(one) == before, "a change of state was written"


@pytest.mark.requirement("RREG-8")
@pytest.mark.parametrize("stall_s", [3.0, *(3.38 + i / 50 for i in range(12)), *(6.98 + i / 50 for i in range(12)), 8.9, 9.05, 11.0, 60.0])
async def test_a_loop_that_did_not_run_for_seconds_fences_nobody_whose_fetches_wait_to_be_read(stall_s: float) -> None:
    """Timers go off before what has arrived meanwhile is read."""
    async with many(40) as one:
        await one.live(10)
        before = writes(one)
        one.driven.jump(stall_s)
        await asyncio.sleep(0)
        await asyncio.gather(*map(one.fetch, one.peers))
        await one.live(20)
        await one.settle()
        assert not one.fenced_now() and writes(one) == before


@pytest.mark.requirement("RREG-8")
@pytest.mark.parametrize("late_s", [0.0, 0.05, 0.099, 0.101, 5.0])
async def test_a_timer_that_is_a_little_late_gives_what_has_arrived_a_moment_to_be_read(late_s: float) -> None:
    clock, due, peer = DrivenClock(), list[float](), SimulatedPeer()
    sessions = BrokerSessions(clock, TIMEOUT_S, lambda: due.append(clock.monotonic()))
    sessions.began(1, peer)
    clock.jump(NOTED_S + MOMENT_S + late_s)
    assert not due
    sessions.heard(1, peer)
    await clock.advance(NOTED_S - 0.01)
    assert not due
    await clock.advance(0.2)
    assert len(due) == 1 and sessions.silence().to_note == [1]
    sessions.noted([1])
    sessions.watch()
    clock.jump(TIMEOUT_S - NOTED_S - 0.19 + MOMENT_S + late_s)
    assert len(due) == 1
    sessions.heard(1, peer)
    assert len(due) == 2 and sessions.silence().heard_again == [1]


@pytest.mark.requirement("RREG-8")
async def test_a_broker_that_was_heard_is_spared_again_when_the_loop_stands_still_again() -> None:
    """A second pause of a slow machine does not fence brokers that are alive."""
    clock, due, peer = DrivenClock(), list[float](), SimulatedPeer()
    sessions = BrokerSessions(clock, TIMEOUT_S, lambda: due.append(clock.monotonic()))
    sessions.began(1, peer)
    for pause in range(3):
        clock.jump(5 * TIMEOUT_S)
        await clock.advance(GRACE_S / 2)
        assert not due, f"pause {pause}"
        sessions.heard(1, peer)
    clock.jump(5 * TIMEOUT_S)
    await clock.advance(GRACE_S / 2)
    clock.jump(5 * TIMEOUT_S)
    await clock.advance(GRACE_S)
    assert due, "it was not heard between two pauses"


@pytest.mark.requirement("RREG-8")
async def test_a_broker_that_stops_to_fetch_is_fenced_within_its_session_time_out_and_a_second() -> None:
    async with many(100) as one:
        await one.live(5)
        one.silent.add(7)
        await one.fetch(7)
        took = await one.live(30, lambda: one.fenced_now() == {7})
        assert TIMEOUT_S - TICK_S <= took <= TIMEOUT_S + 1
        await one.live(30)
        assert one.fenced_now() == {7}


@pytest.mark.requirement("RREG-8")
async def test_brokers_that_stop_to_fetch_one_after_the_other_are_fenced_each_in_its_time() -> None:
    async with many(60) as one:
        for broker_id in (3, 4, 5):
            one.silent.add(broker_id)
            await one.fetch(broker_id)
            await one.live(1)
        took = await one.live(30, lambda: one.fenced_now() == {3})
        assert TIMEOUT_S - 3 - TICK_S <= took <= TIMEOUT_S - 2
        took = await one.live(30, lambda: one.fenced_now() == {3, 4})
        assert took <= 2
        took = await one.live(30, lambda: one.fenced_now() == {3, 4, 5})
        assert took <= 2
        one.silent.clear()
        await one.live(5)
        await one.settle()
        assert not one.fenced_now()


@pytest.mark.requirement("RREG-13")
async def test_after_a_fail_over_every_broker_has_a_whole_time_out() -> None:
    async with many(40) as one:
        await one.live(5)
        one.silent.update(one.peers)
        await one.live(6)
        await one.processes.pop().end()
        one.processes.append(Process(one, 1))
        await one.settle()
        await one.live(8.8)
        assert not one.fenced_now()
        took = await one.live(5, lambda: one.fenced_now() == set(one.peers))
        assert took <= 1.2
