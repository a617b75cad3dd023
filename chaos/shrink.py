"""Makes a schedule that fails smaller: fewer steps, then less time between them. Each try is a run.

The steps are removed in chunks, halves first (delta debugging: A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing
Input, 2002). A run need not fail each time, so a smaller schedule that does not fail may be tried more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from klamm.chaos.schedule import Schedule, Step

Fails = Callable[[Schedule], bool]
"""Whether a run of the schedule violates the rule."""
GAP_MS = 1000
"""Between two steps when all idle time is taken out."""
AFTER_MS = 3000
"""The load goes on this long after the last step."""


def shrink(schedule: Schedule, fails: Fails, goes_on: Callable[[], bool] = lambda: True) -> Schedule:
    """The smallest schedule that was found to fail. `goes_on` says whether there is time for another try.

    The result is the given schedule if nothing smaller fails.
    """

    def try_steps(steps: Sequence[Step]) -> bool:
        return goes_on() and fails(shortened(schedule, steps))

    steps = _fewer(list(schedule.steps), try_steps)
    closer = _closer(steps)
    if closer != steps and try_steps(closer):
        steps = closer
    return shortened(schedule, steps) if len(steps) < len(schedule.steps) or steps == closer else schedule


def shortened(schedule: Schedule, steps: Sequence[Step]) -> Schedule:
    """The schedule with these steps alone, which ends soon after the last of them, and not later than before."""
    last_ms = max((step.end_ms for step in steps), default=0)
    return schedule.with_steps(steps, min(schedule.length_ms, last_ms + AFTER_MS))


def _fewer(steps: list[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Steps of which no chunk of the last size can be left out."""
    chunks = 2
    while len(steps) >= 2:
        size = -(-len(steps) // chunks)
        for start in range(0, len(steps), size):
            rest = steps[:start] + steps[start + size :]
            if fails(rest):
                steps, chunks = rest, max(chunks - 1, 2)
                break
        else:
            if size == 1:
                break
            chunks = min(len(steps), chunks * 2)
    return [] if len(steps) == 1 and fails([]) else steps


def _closer(steps: Sequence[Step]) -> list[Step]:
    """The same steps in their order, at most a second after one another has begun or, if they do not overlap, ended."""
    moved: list[Step] = []
    saved_ms = 0
    busy_ms = 0
    for step in steps:
        at_ms = step.at_ms - saved_ms
        if at_ms > busy_ms + GAP_MS:
            saved_ms += at_ms - busy_ms - GAP_MS
            at_ms = busy_ms + GAP_MS
        moved.append(replace(step, at_ms=at_ms))
        busy_ms = max(busy_ms, moved[-1].end_ms)
    return moved
