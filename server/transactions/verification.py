"""Verifies records of transactions before they are appended (KIP-890): who produces to a partition must have added it to its transaction.

A partition in whose log the transaction is open already needs no verification. For the others the coordinator is asked; what it says, or
why it says nothing, is the error of the partition. Clients before Produce version 11 do not know TRANSACTION_ABORTABLE and get
INVALID_TXN_STATE. In transactions v2 (`adds`) the leader adds the partition in place of its client; while the markers of the producer's
last transaction are being written it tries again for a moment (`add.partitions.to.txn.retry.backoff.max.ms` of 4.4).
Source: `ReplicaManager.maybeSendPartitionsToTransactionCoordinator` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.log.verifications import Verification
from klamm.broker.partition import HostedPartition
from klamm.broker.replica_manager import ReplicaManager
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition

if TYPE_CHECKING:
    from klamm.seams.clock import Clock
    from klamm.server.transactions.partition_verifier import PartitionVerifier

NOT_ADDED = "Partition was not added to the transaction"
NOT_VERIFIED = "Unable to verify the partition has been added to the transaction. Underlying error: "
NOT_NOW = frozenset((
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
))
"""Codes of the coordinator with which a client tries again: for a Produce they are NOT_ENOUGH_REPLICAS."""


ADD_TRIES, ADD_PAUSE_S = 5, 0.02


class TransactionalRecords:
    """Records of a transaction for one partition that this broker leads. `verification` is there once they have been verified."""

    __slots__ = ("producer_epoch", "producer_id", "replica", "sequence", "verification")

    def __init__(self, replica: HostedPartition, producer_id: int, producer_epoch: int, sequence: int) -> None:
        self.replica = replica
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequence = sequence
        self.verification: Verification | None = None

    def is_open(self, *, adds: bool) -> bool:
        """Whether the transaction is open in the log, as far as that is known without opening it."""
        log = self.replica.log
        if log is None:
            return False
        return log.has_open_transaction(self.producer_id, self.producer_epoch) if adds else log.is_in_transaction(self.producer_id)


async def verify(
    replicas: ReplicaManager, verifier: PartitionVerifier, clock: Clock, transactional_id: str, records: list[TransactionalRecords],
    *, knows_abortable: bool, adds: bool = False,
) -> dict[HostedPartition, ApiError]:
    """Verify records of one producer; the errors of those that must not be appended. Those of the coordinator have its codes."""
    tries = ADD_TRIES if adds else 1
    while True:
        tries -= 1
        errors = await _verify_once(replicas, verifier, clock, transactional_id, records, knows_abortable, adds)
        if tries == 0 or all(error.code is not ErrorCode.CONCURRENT_TRANSACTIONS for error in errors.values()):
            return errors
        await clock.sleep(ADD_PAUSE_S)


async def _verify_once(
    replicas: ReplicaManager, verifier: PartitionVerifier, clock: Clock, transactional_id: str, records: list[TransactionalRecords],
    knows_abortable: bool, adds: bool,
) -> dict[HostedPartition, ApiError]:
    errors: dict[HostedPartition, ApiError] = {}
    asked: dict[TopicPartition, TransactionalRecords] = {}
    for each in records:
        replica = each.replica
        try:
            log = await replicas.open_log(replica)
        except ApiError as error:
            errors[replica] = error
            continue
        each.verification = log.begin_verification(each.producer_id, each.producer_epoch, each.sequence, clock.now_ms(), adds=adds)
        if each.verification is not None:
            asked[TopicPartition(replica.topic, replica.index)] = each
    if asked:
        producer = next(iter(asked.values()))
        codes = await verifier.verify(transactional_id, producer.producer_id, producer.producer_epoch, asked, adds=adds)
        for partition, each in asked.items():
            if codes[partition] is not ErrorCode.NONE:
                errors[each.replica] = error_of(codes[partition], knows_abortable=knows_abortable)
    return errors


def error_of(code: ErrorCode, *, knows_abortable: bool) -> ApiError:
    """The error for a code of the coordinator. Only codes that leaders give themselves have a text."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ApiError(ErrorCode.INVALID_TXN_STATE, NOT_ADDED)
    return ApiError(code)


def error_for_produce(error: ApiError, *, adds: bool = False) -> ApiError:
    """What a producer gets for an error of `verify`: clients know what to do with NOT_ENOUGH_REPLICAS in a response to Produce. Those of
    transactions v2 know CONCURRENT_TRANSACTIONS too."""
    if adds and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
        return error
    return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, NOT_VERIFIED + error.code.name) if error.code in NOT_NOW else error
