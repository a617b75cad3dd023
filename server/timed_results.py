"""Results of a request whose work the controller goes on with when the time of whoever asked is over (KIP-179)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from klamm.controller.pace import Pace
from klamm.controller.values import Result
from klamm.protocol.clock import Clock
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

K = TypeVar("K")
R = TypeVar("R")

DUPLICATE: Result = ErrorCode.INVALID_REQUEST, "It is named twice."


async def results_in_time(
    clock: Clock,
    work: Coroutine[Any, Any, dict[K, Result]],
    keys: Iterable[K],
    refused: Mapping[K, Result],
    received: float,
    timeout_ms: int,
) -> dict[K, Result]:
    """The results of the work, or after so many ms since `received` REQUEST_TIMED_OUT for all keys that are not refused by then.

    Raises what the work raises in time.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_look)
    remaining = received + timeout_ms / 1000 - clock.monotonic()
    try:
        async with clock.timeout(max(0.0, remaining)):
            return await asyncio.shield(task)
    except TimeoutError:
        return {key: refused.get(key, (ErrorCode.REQUEST_TIMED_OUT, None)) for key in keys}


def _look(task: asyncio.Future[Any]) -> None:
    """Nobody may be there any more for the error of a task that took too long."""
    if not task.cancelled():
        task.exception()


async def rows_by_topic(results: Mapping[TopicPartition, Result], row: Callable[[int, Result], R]) -> dict[str, list[R]]:
    """A row of the response for each partition, topics together."""
    pace = Pace()
    by_topic: dict[str, list[R]] = {}
    for key, result in results.items():
        await pace()
        by_topic.setdefault(key.topic, []).append(row(key.partition, result))
    return by_topic
