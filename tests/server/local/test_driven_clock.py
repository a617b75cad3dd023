"""The driven clock: timers at their time and in their turn, time-outs, and nothing before its time."""

from __future__ import annotations

import asyncio

import pytest

from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.server.local.driven_clock import DrivenClock


async def test_timers_fire_in_the_order_of_their_times_and_see_them() -> None:
    clock, fired = DrivenClock(start_ms=1_000), []
    for seconds in (3, 1, 2, 1):
        clock.call_later(seconds, lambda seconds=seconds: fired.append((seconds, clock.monotonic(), clock.now_ms())))
    clock.call_later(1.5, fired.append, "cancelled").cancel()
    assert await clock.advance(2.5) == 3
    assert fired == [(1, 1.0, 2_000), (1, 1.0, 2_000), (2, 2.0, 3_000)]
    assert (clock.monotonic(), clock.now_ms()) == (2.5, 3_500)
    assert await clock.advance(0.5) == 1


async def test_timer_that_a_timer_begins_fires_in_the_same_advance() -> None:
    clock, fired = DrivenClock(), []

    def again() -> None:
        fired.append(clock.monotonic())
        clock.call_later(10, again)

    again()
    await clock.advance(35)
    assert fired == [0, 10, 20, 30]


async def test_work_settles_between_two_moments() -> None:
    clock, seen = DrivenClock(), []

    async def settle() -> None:
        seen.append(clock.monotonic())

    for seconds in (1, 1, 2):
        clock.call_later(seconds, lambda: None)
    await clock.advance(5, settle)
    assert seen == [1.0, 2.0]


@pytest.mark.parametrize("clock", [SYSTEM_CLOCK, DrivenClock()], ids=["system", "driven"])
async def test_time_out_raises_when_its_time_has_passed_and_not_before(clock: Clock) -> None:
    async def drive() -> None:
        await asyncio.sleep(0)
        if isinstance(clock, DrivenClock):
            await clock.advance(1)

    driving = asyncio.ensure_future(drive())
    with pytest.raises(TimeoutError):
        async with clock.timeout(0.01):
            await asyncio.get_running_loop().create_future()
    async with clock.timeout(0.01):
        await asyncio.sleep(0)
    sleeping = asyncio.ensure_future(clock.sleep(0.01))
    await driving
    await asyncio.sleep(0)
    if isinstance(clock, DrivenClock):
        assert not sleeping.done()
        await clock.advance(1)
    await sleeping


async def test_cancelling_what_a_time_out_guards_is_no_time_out() -> None:
    clock = DrivenClock()

    async def wait() -> None:
        async with clock.timeout(5):
            await clock.sleep(10)

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await clock.advance(20) == 0
