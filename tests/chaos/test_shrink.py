"""A schedule that fails is shrunk to the steps that matter."""

from __future__ import annotations

import random

import pytest

from klamm.chaos.schedule import Options, Schedule, draw
from klamm.chaos.shrink import AFTER_MS, GAP_MS, shrink

LONG = draw(4, 3, Options(small_disks=True))


@pytest.mark.parametrize("seed", range(10))
def test_a_schedule_is_shrunk_to_the_steps_that_make_it_fail(seed: int) -> None:
    culprits = set(map(str, (step.parameters for step in random.Random(seed).sample(LONG.steps, 3))))

    def fails(schedule: Schedule) -> bool:
        return culprits <= {str(step.parameters) for step in schedule.steps}

    smallest = shrink(LONG, fails)
    assert fails(smallest)
    assert {str(step.parameters) for step in smallest.steps} == culprits


def test_a_schedule_that_fails_without_any_step_is_empty() -> None:
    smallest = shrink(LONG, lambda schedule: True)
    assert smallest.steps == () and smallest.length_ms == AFTER_MS


def test_a_schedule_of_which_nothing_smaller_fails_stays() -> None:
    assert shrink(LONG, lambda schedule: False) == LONG


def test_idle_time_is_taken_out() -> None:
    last = LONG.steps[-1]

    def fails(schedule: Schedule) -> bool:
        return [step.parameters for step in schedule.steps if step.kind == last.kind][-1:] == [last.parameters]

    (step,) = shrink(LONG, fails).steps
    assert step.at_ms == GAP_MS and step.lasts_ms == last.lasts_ms


def test_idle_time_that_matters_stays() -> None:
    last = LONG.steps[-1]
    smallest = shrink(LONG, lambda schedule: last in schedule.steps)
    assert smallest.steps == (last,)


def test_nothing_is_tried_when_there_is_no_time() -> None:
    tried: list[Schedule] = []

    def fails(schedule: Schedule) -> bool:
        tried.append(schedule)
        return True

    assert shrink(LONG, fails, lambda: len(tried) < 2).steps != LONG.steps
    assert len(tried) == 2


def test_no_try_takes_longer_than_the_schedule() -> None:
    lengths: list[int] = []

    def fails(schedule: Schedule) -> bool:
        lengths.append(schedule.length_ms)
        return len(schedule.steps) > 3

    shrink(LONG, fails)
    assert lengths and max(lengths) <= LONG.length_ms
