"""What the three requests of KIP-179 share: entries with keys, results within a time-out, rows of the response.

The controller continues the work of such a request after its time-out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Generic, TypeVar

from klamm.controller.values import Result
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock
from klamm.seams.pace import Pace

K = TypeVar("K")
V = TypeVar("V")
PartitionsResponse = TypeVar("PartitionsResponse", messages.ReassignPartitionsResponse, messages.AlterInterbrokerThrottledReplicasResponse)
"""The two responses that have a row for each partition."""

_DUPLICATE: Result = ErrorCode.INVALID_REQUEST, "It is named twice."


class Entries(Generic[K, V]):
    """The entries of a request. `wanted` has the value of each key; `refused` the result of each failed key, such as those named twice;
    the controller adds to it.
    """

    def __init__(self) -> None:
        self.wanted: dict[K, V] = {}
        self.refused: dict[K, Result] = {}

    def add(self, key: K, value: V) -> None:
        """Add the next entry of the request. A key that is named twice is refused."""
        if key in self.wanted:
            self.refused[key] = _DUPLICATE
        self.wanted[key] = value

    async def results(self, clock: Clock, work: Coroutine[Any, Any, dict[K, Result]], received: float, timeout_ms: int) -> dict[K, Result]:
        """Return the results of the work. If it takes longer than `timeout_ms` after `received`, all keys that are not refused by then get
        REQUEST_TIMED_OUT.

        Raises what the work raises within that time.
        """
        task = asyncio.ensure_future(work)
        task.add_done_callback(_look)
        remaining = received + timeout_ms / 1000 - clock.monotonic()
        try:
            async with clock.timeout(max(0.0, remaining)):
                return await asyncio.shield(task)
        except TimeoutError:
            return {key: self.refused.get(key, (ErrorCode.REQUEST_TIMED_OUT, None)) for key in self.wanted}


def _look(task: asyncio.Future[Any]) -> None:
    """Retrieve the error of a task that may have exceeded its time-out; otherwise asyncio warns that nobody did."""
    if not task.cancelled():
        task.exception()


async def partitions_response(
    kind: type[PartitionsResponse], version: int, results: Mapping[TopicPartition, Result]
) -> PartitionsResponse:
    """The response with these results, grouped by topic."""
    pace = Pace()
    encode = messages.struct_encoder(kind.__name__, "PartitionResult", version)
    by_topic: dict[str, list[bytes]] = {}
    for key, result in results.items():
        await pace()
        by_topic.setdefault(key.topic, []).append(encode(kind.PartitionResult(key.partition, *result)))
    return kind(topics=[kind.TopicResult(name=name, partitions=rows) for name, rows in by_topic.items()])


def refuse_partitions(
    kind: type[PartitionsResponse],
    request: messages.ReassignPartitionsRequest | messages.AlterInterbrokerThrottledReplicasRequest,
    code: ErrorCode,
    message: str | None,
) -> PartitionsResponse:
    """The response that refuses every entry of the request."""
    row = kind.PartitionResult
    return kind(
        topics=[
            kind.TopicResult(name=topic.name, partitions=[row(each.partition_id, code, message) for each in topic.partitions])
            for topic in request.topics
        ]
    )
