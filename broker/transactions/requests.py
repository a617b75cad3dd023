"""Requests to a transaction coordinator, their results and its effects, as values that do not depend on versions of the protocol.

A `ticket` stands for a request that waits for its result; it is only handed back in `Respond`.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.broker.coordinators.effects import AppendRecords, Respond
from klamm.broker.transactions.phases import TransactionPhase
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIME = -1


class TransactionLimits(NamedTuple):
    """Configs of transactions, in milliseconds."""

    max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`"""
    expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`"""


class InitProducerId(NamedTuple):
    """InitProducerId with a transactional id. `producer_id` and `producer_epoch` are those that the producer has, -1 if it has none."""

    ticket: object
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class ProducerIdResult(NamedTuple):
    """The result of InitProducerId."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    def failed(self, code: ErrorCode) -> ProducerIdResult:
        """See `Result`."""
        return ProducerIdResult(code)


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn, for one transactional id; AddOffsetsToTxn with the group's partition of the offsets topic."""

    ticket: object
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class EndTransaction(NamedTuple):
    """EndTxn. With `raises_epoch` (transactions v2) the next transaction has the next epoch, and the result is a ProducerIdResult."""

    ticket: object
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    raises_epoch: bool = False


class Description(NamedTuple):
    """What DescribeTransactions says of a transactional id; `start_ms` is -1 if no transaction has begun."""

    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class Listed(NamedTuple):
    """What ListTransactions says of a transactional id."""

    transactional_id: str
    producer_id: int
    state: str


class PendingEnd(NamedTuple):
    """How a transaction ends that is open in the log of a leader which recovers from an unclean election (KIP-704).

    `error` is CONCURRENT_TRANSACTIONS while the end is being decided; then the leader sends its request again, and the rest means nothing.
    Otherwise the leader writes a marker with this epoch of the producer and this coordinator epoch.
    """

    transactional_id: str
    producer_id: int
    error: ErrorCode
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    is_commit: bool = False


class NeedProducerId(NamedTuple):
    """A new producer id is needed: the caller gets one and calls `Transactions.use_producer_id` with it."""

    request: InitProducerId | EndTransaction

    @property
    def key(self) -> str:
        """The transactional id."""
        return self.request.transactional_id


class SendMarkers(NamedTuple):
    """Markers to write to these partitions, through their leaders (WriteTxnMarkers).

    The caller gives outcomes to `Transactions.markers_sent`: at once or one after the other, each partition exactly once.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]

    @property
    def key(self) -> str:
        """The transactional id."""
        return self.transactional_id


OwnEffect = NeedProducerId | SendMarkers
Effect = Respond[ProducerIdResult | ErrorCode] | AppendRecords | TransactionPhase | OwnEffect
