"""The purgatory: waiting for a condition on topics or partitions, woken by name, bounded by time."""

from __future__ import annotations

import asyncio

import pytest

from klamm.seams.pace import SLICE
from klamm.server.requests.purgatory import Named, Purgatory


def named(*topics: str) -> list[tuple[str, list[int]]]:
    """Topics as an UpdateMetadata names them, with their partition 0."""
    return [(topic, [0]) for topic in topics]


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


async def test_a_wait_for_a_subject_that_is_not_a_topic_is_woken_by_it_alone() -> None:
    purgatory, state = Purgatory(), {"done": False}
    group = ("group", "t")
    waiting = asyncio.ensure_future(purgatory.wait([group], lambda: state["done"], 60_000))
    await asyncio.sleep(0)
    state["done"] = True
    purgatory.check(named("t"))
    await asyncio.sleep(0)
    assert not waiting.done()
    purgatory.check([(group, ())])
    assert await waiting
    assert len(purgatory) == 0


async def test_check_of_a_named_topic_completes() -> None:
    purgatory, state = Purgatory(), {"done": False}
    waiting = asyncio.ensure_future(purgatory.wait(["a", "b"], lambda: state["done"], 60_000))
    await asyncio.sleep(0)
    purgatory.check(named("b"))
    assert not waiting.done()
    state["done"] = True
    purgatory.check(named("other"))
    await asyncio.sleep(0)
    assert not waiting.done()
    purgatory.check(named("b"))
    assert await waiting
    assert len(purgatory) == 0
    assert purgatory._waits == {}, "names of topics that come and go must not pile up"


async def test_condition_is_looked_at_once_for_many_topics() -> None:
    purgatory, looks = Purgatory(), Looks()
    names = [f"t{i}" for i in range(50)]
    waiting = asyncio.ensure_future(purgatory.wait(names, looks, 60_000))
    await asyncio.sleep(0)
    purgatory.check(named(*names))
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
    purgatory.check(named("t"))
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
    purgatory.check(named("t"))
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


# Partitions


class Seen:
    """A condition on partitions that holds when all were seen to be true; keeps what it was told to look at."""

    def __init__(self, *wanted: tuple[str, int]) -> None:
        self.left = set(wanted)
        self.true: set[tuple[str, int]] = set()
        self.told: list[list[tuple[str, int]]] = []

    @property
    def partitions(self) -> dict[str, list[int]]:
        return {topic: sorted(index for name, index in self.left if name == topic) for topic, _ in sorted(self.left)}

    def __call__(self, some: Named) -> bool:
        self.told.append([(topic, index) for topic, indexes in some.items() for index in indexes])
        self.left -= self.true.intersection(self.told[-1])
        return not self.left


async def test_a_wait_for_partitions_looks_only_at_those_of_its_own_that_are_named() -> None:
    purgatory, seen = Purgatory(), Seen(("a", 0), ("a", 1), ("b", 0))
    waiting = asyncio.ensure_future(purgatory.wait_for_partitions(seen.partitions, seen, 60_000))
    await asyncio.sleep(0)
    assert seen.told == [[("a", 0), ("a", 1), ("b", 0)]]
    purgatory.check([("a", [7, 8]), ("c", [0])])
    purgatory.check([("a", [1, 7])])
    seen.true = {("a", 0), ("a", 1), ("b", 0)}
    purgatory.check([("a", [0]), ("b", [0, 1])])
    purgatory.check([("a", [1])])
    assert seen.told[1:] == [[("a", 1)], [("a", 0), ("b", 0)], [("a", 1)]]
    assert await waiting
    assert len(purgatory) == 0 and purgatory._waits == {}


async def test_partitions_that_hold_at_first_are_not_waited_for_and_a_time_out_of_zero_looks_once() -> None:
    purgatory, seen = Purgatory(), Seen(("a", 0))
    assert not await purgatory.wait_for_partitions(seen.partitions, seen, 0)
    seen.true = {("a", 0)}
    assert await purgatory.wait_for_partitions({"a": [0]}, seen, 60_000)
    assert await purgatory.wait_for_partitions({}, seen, 60_000), "nothing to wait for"
    assert len(purgatory) == 0 and purgatory._waits == {}


async def test_named_partitions_wake_requests_that_share_them_and_nobody_else() -> None:
    """A thousand requests wait for partitions of one topic: what an UpdateMetadata costs depends on what it names."""
    purgatory = Purgatory()
    seen = [Seen(("t", number), ("t", 1000 + number // 2)) for number in range(1000)]
    waiting = [asyncio.ensure_future(purgatory.wait_for_partitions(each.partitions, each, 60_000)) for each in seen]
    await asyncio.sleep(0)
    for each in seen:
        each.told.clear()
        each.true = {("t", index) for index in range(1500)}
    purgatory.check([("t", [6, 1003])])
    assert [number for number, each in enumerate(seen) if each.told] == [6, 7]
    assert seen[6].told == [[("t", 6), ("t", 1003)]] and seen[7].told == [[("t", 1003)]]
    await asyncio.sleep(0)
    assert [number for number, task in enumerate(waiting) if task.done()] == [6]
    purgatory.check([("t", range(1000))])
    purgatory.check([("t", range(1000, 1500))])
    assert all(await asyncio.gather(*waiting))
    assert purgatory._waits == {}


async def test_what_is_named_while_a_long_wait_begins_is_not_missed() -> None:
    """Each partition is true for one moment only, some before the wait has come to it, some after."""
    purgatory = Purgatory()
    count = 10 * SLICE
    seen = Seen(*(("t", index) for index in range(count)))
    waiting = asyncio.ensure_future(purgatory.wait_for_partitions({"t": range(count)}, seen, 60_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    begun = sum(map(len, seen.told))
    assert 0 < begun < count
    seen.true = {("t", index) for index in range(count)}
    purgatory.check([("t", range(begun))])
    assert await waiting


async def test_the_time_of_a_long_wait_ends_in_its_midst() -> None:
    purgatory = Purgatory()
    assert not await purgatory.wait_for_partitions({"t": range(50 * SLICE)}, lambda _: False, 1)
    assert purgatory._waits == {}
