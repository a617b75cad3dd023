"""Immutable arguments and results of the calls for transactions and producers."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from klamm.protocol.nouns import TopicPartition


class TransactionState(StrEnum):
    """The state of a transactional id. The values are those of the protocol. UNKNOWN stands for states that this client does not know."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


class ListedTransaction(NamedTuple):
    """A transactional id of a list. `coordinator` is a broker id."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator: int


class TransactionDescription(NamedTuple):
    """A transactional id. `start_ms` is when its last transaction began, in ms; None if there was none. `coordinator` is a broker id.

    `partitions` are those of the open transaction.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: int


class ActiveProducer(NamedTuple):
    """A producer that a partition knows. None means that there is none: `coordinator_epoch` before the first marker of a transaction,
    `transaction_start_offset` without an open transaction. `last_timestamp` is in ms.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch after producers were fenced."""

    producer_id: int
    producer_epoch: int
