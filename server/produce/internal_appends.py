"""Appends by this broker itself: coordinators of groups and transactions write their records as a producer with acks=all would.

The records of a partition are in its log in the order of the calls. A call returns a future at once; it completes when all replicas of the
ISR have the records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from klamm.broker.log.log import AppendResult
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import Buffer
from klamm.protocol.records.validation import Origin, Refused
from klamm.seams.clock import Clock
from klamm.server.produce.delayed_produce import ALL_REPLICAS, Appended, DelayedProduce
from klamm.server.produce.record_appends import RecordAppends, Verified

log = logging.getLogger(__name__)


class _QueuedAppend(NamedTuple):
    """One append. `timeout_ms` is how long it waits for the replicas."""

    appends: RecordAppends
    records: Buffer
    done: asyncio.Future[AppendResult]
    timeout_ms: int
    verified: Verified | None

    def checked(self, replica: HostedPartition) -> RecordAppends:
        """How to append, with the check whether the records were verified."""
        if self.verified is None:
            return self.appends
        verification = self.verified.verification
        return self.appends._replace(verifications={} if verification is None else {replica: verification})


class InternalAppends:
    """The appends of one broker's coordinators. Internal topics may be written."""

    def __init__(self, replicas: ReplicaManager, clock: Clock, timeout_ms: int) -> None:
        """`timeout_ms` is how long an append waits for the replicas."""
        self._replicas = replicas
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._queues: dict[TopicPartition, deque[_QueuedAppend]] = {}
        """Appends that take long, and those that came after them."""
        self._tasks: set[asyncio.Task[None]] = set()

    def append(
        self, partition: TopicPartition, records: Buffer, origin: Origin = Origin.COORDINATOR, *, timeout_ms: int | None = None,
        verified: Verified | None = None, is_wanted: Callable[[], bool] | None = None,
    ) -> asyncio.Future[AppendResult]:
        """Append one batch to a partition that this broker leads; a future for its offsets, once all replicas of the ISR have it.

        `timeout_ms` is how long it waits for them, if it is not the usual time. With `verified`, records of a transaction get
        INVALID_TXN_STATE if the transaction is not open in the log and the verification is void by then. An append that takes long gets
        NOT_LEADER_OR_FOLLOWER if `is_wanted` is not true any more when the records are ready: the state of the coordinator that wrote them
        was given up, and the present one, which may have been loaded since, does not know them. Apache Kafka appends at once.

        The future fails with ApiError, as a Produce with acks=all does: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION,
        KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT, or the code with which a log refuses
        records. After REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND the records are in the log of this broker all the same.
        """
        appends = RecordAppends(
            self._replicas, self._clock, APIS[ApiKey.PRODUCE].max_version, ALL_REPLICAS, origin, is_wanted=is_wanted
        )
        queued = _QueuedAppend(
            appends, records, asyncio.get_running_loop().create_future(), self._timeout_ms if timeout_ms is None else timeout_ms, verified
        )
        done = queued.done
        done.add_done_callback(_look_at_error)
        queue = self._queues.get(partition)
        if queue is not None:
            queue.append(queued)
            return done
        try:
            replica = self._replicas.leader(*partition)
            result = queued.checked(replica).append(replica, records)
        except (ApiError, Refused) as error:
            done.set_exception(_as_api_error(error))
            return done
        if result is not None:
            self._wait_for_replicas(replica, result, queued)
            return done
        queue = self._queues[partition] = deque([queued])
        task = asyncio.get_running_loop().create_task(self._append_queued(partition, queue))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return done

    async def _append_queued(self, partition: TopicPartition, queue: deque[_QueuedAppend]) -> None:
        try:
            while queue:
                queued = queue[0]
                try:
                    replica = self._replicas.leader(*partition)
                    result = await queued.checked(replica).append_later(replica, queued.records)
                except Exception as error:  # noqa: BLE001 who asked for the append gets it
                    if not queued.done.done():
                        queued.done.set_exception(_as_api_error(error) if isinstance(error, Refused) else error)
                else:
                    self._wait_for_replicas(replica, result, queued)
                queue.popleft()
        finally:
            del self._queues[partition]
            for queued in queue:
                queued.done.cancel()

    def _wait_for_replicas(self, replica: HostedPartition, result: AppendResult, queued: _QueuedAppend) -> None:
        done = queued.done
        appended = Appended(replica, result.last_offset)

        def settle() -> None:
            if done.done():
                return
            code = ErrorCode.REQUEST_TIMED_OUT if appended.code is None else appended.code
            if code is ErrorCode.NONE:
                done.set_result(result)
            else:
                done.set_exception(ApiError(code))

        if appended.settle(self._replicas, ALL_REPLICAS):
            settle()
        else:
            DelayedProduce(self._replicas, ALL_REPLICAS, [appended], settle).begin(self._clock, queued.timeout_ms)


def outcome_of(appended: asyncio.Future[AppendResult], partition: TopicPartition) -> tuple[ErrorCode, int]:
    """What became of an append that is over, for its coordinator: the code, and the offset of the first record, 0 after an error."""
    if appended.cancelled():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, 0
    problem = appended.exception()
    if problem is None:
        return ErrorCode.NONE, appended.result().base_offset
    if isinstance(problem, ApiError):
        return problem.code, 0
    log.error("%s-%d: an append failed", *partition, exc_info=problem)
    return ErrorCode.UNKNOWN_SERVER_ERROR, 0


def _look_at_error(appended: asyncio.Future[AppendResult]) -> None:
    """Perhaps nobody waits for the append any more: its error is no fault then, and asyncio is not to log it."""
    if not appended.cancelled():
        appended.exception()


def _as_api_error(error: ApiError | Refused) -> ApiError:
    return ApiError(error.code, str(error).removeprefix(f"{error.code.name}: ")) if isinstance(error, Refused) else error
