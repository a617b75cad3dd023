"""Time that passes in steps: who is waited for, and for how long."""

from __future__ import annotations

import itertools

import pytest

from klamm.control import heartbeats
from klamm.control.heartbeats import advance_in_steps, check_step
from klamm.control.refusal import Refused


async def test_all_are_waited_for_after_each_step_and_who_is_silent_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "ALIVE_S", 0.05)
    monkeypatch.setattr(heartbeats, "LOOK_S", 0)
    steps: list[int] = []
    looks: list[int] = [0] * 4
    beats = itertools.count()

    async def advance(ms: int) -> int:
        steps.append(ms)
        return 2

    async def look() -> dict[str, int]:
        looks[len(steps)] += 1
        return {"alive": next(beats), "dead": 7} | ({"gone": 1} if len(steps) == 1 and looks[1] == 1 else {})

    assert await advance_in_steps(25, 10, advance, look) == (6, ["dead"])
    assert steps == [10, 10, 5]
    assert looks[1] > 2, "the dead one is waited for"
    assert looks[2:] == [2, 2], "the living one is heard at the second look, and the dead one is not waited for again"


def test_steps_that_are_none_or_too_many_are_refused() -> None:
    check_step(10_000, 10)
    for ms, step_ms in ((10, 0), (10, -1), (10_001, 10)):
        with pytest.raises(Refused, match="step_ms: 1 or more, and at most 1000 steps"):
            check_step(ms, step_ms)
