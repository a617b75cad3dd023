"""The phases of transactions, and of leaders that recover and end the transactions in their logs (KIP-704).

While a transactional id is held its coordinator goes on to decide, but nothing leaves the broker for this id: no response to
InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, no record, no marker.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from klamm.broker.coordinators.effects import Phase
from klamm.seams.value_class import dataclass

Outcome = Literal["commit", "abort"]


@dataclass(frozen=True, slots=True)
class _OfId(Phase):
    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def key(self) -> str:
        return self.transactional_id


@dataclass(frozen=True, slots=True)
class _OfEnd(_OfId):
    outcome: Outcome


class ProducerEpochStored(_OfId):
    """The new epoch of a transactional id is in all replicas of the ISR; InitProducerId has no response."""

    __slots__ = ()


class ProducerFenced(_OfId):
    """InitProducerId came while a transaction was open, so its producer is fenced; that the transaction is aborted is not stored."""

    __slots__ = ()


class TransactionBegun(_OfId):
    """A transaction and its first partitions are in all replicas of the ISR; the request that added them has no response."""

    __slots__ = ()


class TransactionPartitionsAdded(_OfId):
    """More partitions of an open transaction are in all replicas of the ISR; the request that added them has no response."""

    __slots__ = ()


class TransactionEndPrepared(_OfEnd):
    """PrepareCommit or PrepareAbort is in all replicas of the ISR: the outcome is decided. No marker is sent, EndTxn has no response."""

    __slots__ = ()


class TransactionMarkersWritten(_OfEnd):
    """The leaders of all partitions of a transaction have written its markers; that it is complete is not stored."""

    __slots__ = ()


class TransactionCompleted(_OfEnd):
    """CompleteCommit or CompleteAbort is in all replicas of the ISR."""

    __slots__ = ()
    can_fail: ClassVar[bool] = False


class TransactionTimedOut(_OfId):
    """A transaction was open for longer than its time-out, or the leader of one of its partitions recovers from an unclean election. Its
    producer is fenced; that it is aborted is not stored."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _OfRecovery:
    broker_id: int
    topic: str
    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class _OfPending(_OfRecovery):
    producer_id: int
    producer_epoch: int
    transactional_id: str
    outcome: Outcome


class PendingTransactionDecided(_OfPending):
    """A leader that recovers knows how a transaction ends that is open in its log. The marker is not in the log."""

    __slots__ = ()


class PendingTransactionEnded(_OfPending):
    """A leader that recovers has written the marker of a transaction that was open in its log. It does not serve yet."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PartitionRecovered(_OfRecovery):
    """A leader that recovers has ended what was open in its log, and does not serve yet: the controller does not know. With
    `kip704.recovery.transactions=leave` transactions may be open."""

    open_transactions: int


RecoveryPhase = PendingTransactionDecided | PendingTransactionEnded | PartitionRecovered

TransactionPhase = (
    ProducerEpochStored | ProducerFenced | TransactionBegun | TransactionPartitionsAdded | TransactionEndPrepared
    | TransactionMarkersWritten | TransactionCompleted | TransactionTimedOut
)
