"""The purgatory: waiting for a condition on topics, woken by name, bounded by time."""

from __future__ import annotations

import asyncio

import pytest

from klamm.server.purgatory import Purgatory


class Looks:
    """A condition that never holds and counts how often it was looked at."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> bool:
        self.count += 1
        return False


async def test_condition_that_holds_does_not_wait() -> None:
    assert await Purgatory().wait(["t"], lambda: True, 0)


async def test_time_out_of_zero_looks_once() -> None:
    looks = Looks()
    waiting = asyncio.ensure_future(Purgatory().wait(["t"], looks, 0))
    await asyncio.sleep(0)
    assert waiting.done() and not waiting.result()
    assert looks.count == 1


async def test_negative_time_out_looks_once() -> None:
    assert not await Purgatory().wait(["t"], lambda: False, -5)


async def test_check_of_a_named_topic_completes() -> None:
    purgatory, state = Purgatory(), {"done": False}
    waiting = asyncio.ensure_future(purgatory.wait(["a", "b"], lambda: state["done"], 60_000))
    await asyncio.sleep(0)
    purgatory.check(["b"])
    assert not waiting.done()
    state["done"] = True
    purgatory.check(["other"])
    await asyncio.sleep(0)
    assert not waiting.done()
    purgatory.check(["b"])
    assert await waiting
    assert len(purgatory) == 0
    assert purgatory._waits == {}, "names of topics that come and go must not pile up"


async def test_condition_is_looked_at_once_for_many_topics() -> None:
    purgatory, looks = Purgatory(), Looks()
    names = [f"t{i}" for i in range(50)]
    waiting = asyncio.ensure_future(purgatory.wait(names, looks, 60_000))
    await asyncio.sleep(0)
    purgatory.check(names)
    assert looks.count == 2
    purgatory.close()
    assert not await waiting


async def test_deadline_answers_false_and_forgets() -> None:
    purgatory = Purgatory()
    assert not await purgatory.wait(["t"], lambda: False, 1)
    assert len(purgatory) == 0


async def test_waits_wake_in_the_order_they_began() -> None:
    purgatory, woken, state = Purgatory(), [], {"done": False}

    async def one(number: int) -> None:
        await purgatory.wait(["t"], lambda: state["done"], 60_000)
        woken.append(number)

    waiting = [asyncio.ensure_future(one(number)) for number in range(5)]
    await asyncio.sleep(0)
    state["done"] = True
    purgatory.check(["t"])
    await asyncio.gather(*waiting)
    assert woken == [0, 1, 2, 3, 4]


async def test_cancelled_wait_is_forgotten() -> None:
    purgatory = Purgatory()
    waiting = asyncio.ensure_future(purgatory.wait(["t"], lambda: False, 60_000))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(purgatory) == 0


async def test_failing_condition_hits_its_own_request_only() -> None:
    purgatory, state = Purgatory(), {"bad": False, "good": False}

    def bad() -> bool:
        if state["bad"]:
            raise ValueError("broken condition")
        return False

    first = asyncio.ensure_future(purgatory.wait(["t"], bad, 60_000))
    second = asyncio.ensure_future(purgatory.wait(["t"], lambda: state["good"], 60_000))
    await asyncio.sleep(0)
    state["bad"] = state["good"] = True
    purgatory.check(["t"])
    with pytest.raises(ValueError, match="broken condition"):
        await first
    assert await second
    assert len(purgatory) == 0


async def test_closed_purgatory_does_not_wait() -> None:
    purgatory = Purgatory()
    waiting = asyncio.ensure_future(purgatory.wait(["t"], lambda: False, 60_000))
    await asyncio.sleep(0)
    purgatory.close()
    async with asyncio.timeout(10):
        assert not await waiting
        assert not await purgatory.wait(["t"], lambda: False, 60_000)
