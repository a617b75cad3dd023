"""The one way of records into the log of a partition that this broker leads: Produce requests and coordinators of this broker go it.

The replica manager checks the leader and `min.insync.replicas`, `protocol/records/validation.py` the records, the log the sequence numbers.
An append that may take long (the log is not open, records are compressed again, a long batch) is a coroutine, others are done at once.
Then `wait` waits for the replicas that `acks` asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from klamm.broker.log.log import AppendResult, Log
from klamm.broker.log.verifications import Verification
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import (
    BatchHeader,
    Buffer,
    CorruptRecords,
    batch_size,
    is_of_transaction,
    producer_of,
    read_header,
)
from klamm.protocol.records.batch_runs import assign_run
from klamm.protocol.records.rebase import rebased
from klamm.protocol.records.validation import Origin, assign, costs_much, version_error
from klamm.seams.clock import Clock
from klamm.server.produce.delayed_produce import Appended, wait_for_acks


class Verified(NamedTuple):
    """How a coordinator's records of a transaction were verified; None if the transaction was open in the log."""

    verification: Verification | None


class RecordAppends(NamedTuple):
    """Appends of one request. `version` is that of Produce whose rules records have to follow.

    `verifications` are those of transactional records, by partition; with them, records of a transaction that is not open in the log get
    INVALID_TXN_STATE if their verification is missing or void. None: nothing is verified.

    `is_wanted` is asked once more before records are appended after a wait; if it says no, the append gets NOT_LEADER_OR_FOLLOWER.
    """

    replicas: ReplicaManager
    clock: Clock
    version: int
    acks: int
    origin: Origin = Origin.CLIENT
    verifications: Mapping[HostedPartition, Verification] | None = None
    is_wanted: Callable[[], bool] | None = None

    def append(self, replica: HostedPartition, records: Buffer) -> AppendResult | None:
        """Append records now. None when that may take long: then nothing has happened.

        Raises Refused for what is wrong with the records, ApiError for all else: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, and the
        errors of the log.
        """
        log = replica.log
        if log is None or costs_much(records, log.config.rules):
            return None
        if self.verifications is not None:
            self._check_verified(replica, log, records)
        return self.replicas.append(replica, records, self.version, self.acks, self.origin, self.clock.now_ms())

    async def append_later(self, replica: HostedPartition, records: Buffer) -> AppendResult:
        """As `append`, however long it takes."""
        log = await self.replicas.open_log(replica)
        self._check_wanted()
        result = self.append(replica, records)
        return await self._append_costly(replica, log, records) if result is None else result

    async def _append_costly(self, replica: HostedPartition, log: Log, records: Buffer) -> AppendResult:
        """The records are checked, and perhaps compressed again, in a thread, while others may append."""
        at = log.next_offset, replica.leader_epoch, log.config.rules, self.clock.now_ms()
        name = TopicPartition(log.topic, log.partition)
        assigned = await asyncio.to_thread(assign, records, self.version, *at, self.origin, name)
        now_ms = self.clock.now_ms()
        assigned = rebased(assigned, log.next_offset, replica.leader_epoch, now_ms)
        self._check_wanted()
        if self.verifications is not None:
            self._check_verified(replica, log, records)
        return self.replicas.append_assigned(replica, assigned, self.acks, self.origin, now_ms)

    def _check_wanted(self) -> None:
        if self.is_wanted is not None and not self.is_wanted():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the coordinator has given up the partition meanwhile")

    def _check_verified(self, replica: HostedPartition, log: Log, records: Buffer) -> None:
        header = transactional_batch(records)
        if header is None or self.verifications is None:
            return
        try:
            log.check_verified(header.producer_id, self.verifications.get(replica))
        except ApiError:
            if version_error(records, self.version) is None:  # or the append will say so
                raise

    def append_run(self, replica: HostedPartition, batches: Sequence[Buffer]) -> list[AppendResult]:
        """Append batches of several requests as one piece, as far as they can be stored as they are; the result of each of these.

        What cannot be appended in this way is not judged here. So nothing has happened when there is no result.
        """
        log = replica.log
        if log is None:
            return []
        now_ms = self.clock.now_ms()
        most = log.config.segment_bytes
        run = assign_run(batches, self.version, log.next_offset, replica.leader_epoch, log.config.rules, now_ms, most)
        if len(run) < 2:
            return []
        try:
            return self.replicas.append_run(replica, run, self.acks, self.origin, now_ms)
        except ApiError:
            return []

    async def wait(self, appended: list[Appended], timeout_ms: int) -> None:
        """Return when all that was appended is settled or the time-out is over; nothing of it is settled yet."""
        await wait_for_acks(self.replicas, self.clock, self.acks, appended, timeout_ms)


def transactional_batch(records: Buffer) -> BatchHeader | None:
    """The header of the first batch if it is data of a transaction. The append refuses a batch whose length or magic is impossible."""
    try:
        size = batch_size(records, 0)
    except CorruptRecords:
        return None
    if size is None or size > len(records) or not is_of_transaction(records):
        return None
    header = read_header(records)
    return None if header.is_control or header.producer_id < 0 else header


def transactional_producers(records: Buffer) -> set[tuple[int, int]]:
    """Producer ids and epochs of all batches of transactions in these records, which `refuses_request` has no objection to."""
    producers, position = set(), 0
    while (size := batch_size(records, position)) is not None and position + size <= len(records):
        if is_of_transaction(records, position):
            producers.add(producer_of(records, position))
        position += size
    return {producer for producer in producers if producer[0] >= 0}
