"""The steered clock: what its timers do to each other."""

from __future__ import annotations

import asyncio

import pytest

from klamm.server.local.steered_clock import SteeredClock


def fail() -> None:
    raise RuntimeError("a fault of a timer")


async def test_a_timer_that_raises_does_not_stop_the_time_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    clock, rang = SteeredClock(), list[str]()
    clock.freeze()
    start_ms = clock.now_ms()
    clock.call_later(1, fail)
    clock.call_later(1, rang.append, "at the same time")
    clock.call_later(2, rang.append, "later")
    assert await clock.advance(3) == 3
    assert (rang, clock.now_ms() - start_ms) == (["at the same time", "later"], 3000)
    assert caplog.text.count("a timer raised an exception; the work continues") == 1


async def test_timers_go_on_in_real_time_after_an_advance_that_is_cancelled() -> None:
    clock, rang = SteeredClock(), asyncio.Event()
    clock.call_later(3600, lambda: None)
    advancing = asyncio.ensure_future(clock.advance(7200))
    await asyncio.sleep(0)
    clock.call_later(0.001, rang.set)
    await asyncio.sleep(0)
    advancing.cancel()
    await asyncio.gather(advancing, return_exceptions=True)
    async with asyncio.timeout(20):
        await rang.wait()
