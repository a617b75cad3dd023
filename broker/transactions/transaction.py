"""One transactional id in memory, and what it may become.

What the log says is in `stored`; only `replay` changes it, and with it what is remembered of transactions that have ended (`is_committed`).
The rest is not durable: the transition under way, the markers that are not written yet, what the producer had before the last
InitProducerId, and an epoch that was raised to fence a producer. Decisions are functions of a transaction and a request: they return the
transition, or why there is none. Nothing here reads a clock.
Source: `TransactionMetadata` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.broker.transactions.log_records import StoredTransaction
from klamm.broker.transactions.requests import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIME, AddPartitions, EndTransaction, InitProducerId
from klamm.broker.transactions.states import (
    CAN_BEGIN,
    COMPLETE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    MOVES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

LAST_EPOCH = 2**15 - 1
"""Only a coordinator uses it, to fence a producer with the epoch before."""


class Transition(NamedTuple):
    """What a transactional id becomes once the record of `stored` is in the log. `last_epoch` is that with which the producer may repeat
    the InitProducerId that led here, -1 if it may not."""

    stored: StoredTransaction
    last_epoch: int = NO_PRODUCER_EPOCH


class Transaction:
    """A transactional id."""

    __slots__ = (
        "_ends", "_known_since", "fence_failed", "last_epoch", "last_producer_id", "pending", "producer_epoch", "start_ms", "stored",
        "transactional_id", "unmarked",
    )

    def __init__(self, transactional_id: str, stored: StoredTransaction) -> None:
        self.transactional_id = transactional_id
        self.stored = stored
        self.producer_epoch = stored.producer_epoch
        """The epoch of `stored`, or the one after it while its producer is fenced."""
        self.start_ms = stored.start_ms
        """When the last transaction began, as administrators see it: until the coordinator moves, InitProducerId does not change it."""
        self.last_producer_id = NO_PRODUCER_ID
        self.last_epoch = NO_PRODUCER_EPOCH
        self.pending: TransactionState | None = None
        """The state of the transition under way: its record is being appended, or the markers before it are being written."""
        self.fence_failed = False
        """Whether the epoch was raised and the record was not appended: the epoch is not raised a second time."""
        self.unmarked: dict[TopicPartition, None] = {}
        """While the transaction ends: partitions whose markers are not written yet."""
        self._ends: dict[TopicPartition, tuple[int, bool]] = {}
        """Partition → the newest epoch of a producer whose transaction with this partition has ended, and whether all of that epoch were
        committed."""
        self._known_since = stored.producer_epoch + (stored.state is not EMPTY)
        """All transactions of this epoch and of later ones are known: the log may have lost records of earlier ones to the cleaner."""

    @property
    def state(self) -> TransactionState:
        return self.stored.state

    @property
    def open_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the transaction; while it ends, those whose markers are not written yet."""
        return tuple(self.unmarked) if self.state in COMPLETE else self.stored.partitions

    def begin(self, state: TransactionState) -> None:
        """A transition to this state is under way."""
        if self.pending is not None or state not in MOVES[self.state]:
            raise AssertionError(f"{self.transactional_id} cannot move from {self.state.text} to {state.text} (pending: {self.pending})")
        self.pending = state

    def replay(self, stored: StoredTransaction) -> None:
        """The log says this: a coordinator that loads and one that has appended come here alike."""
        if stored.producer_id != self.stored.producer_id:
            self._ends.clear()
            self._known_since = stored.producer_epoch
        if stored.state in COMPLETE:
            self._note_end(stored)
        if stored.state is EMPTY:
            self.last_producer_id, self.last_epoch = self.stored.producer_id, NO_PRODUCER_EPOCH
        else:
            self.start_ms = stored.start_ms
        if stored.previous_producer_id != NO_PRODUCER_ID:
            self.last_producer_id = stored.previous_producer_id
        self.stored = stored
        self.producer_epoch = stored.producer_epoch
        self.unmarked = dict.fromkeys(stored.partitions) if stored.state in COMPLETE else {}

    def _note_end(self, stored: StoredTransaction) -> None:
        # who fences a producer aborts with the epoch after that of the records: of the former one nothing is proven then
        epoch, is_commit = stored.producer_epoch - stored.is_v2, stored.state is PREPARE_COMMIT
        for partition in stored.partitions:
            before = self._ends.get(partition)
            self._ends[partition] = epoch, is_commit and (before is None or before[0] != epoch or before[1])

    def forget_ends(self) -> None:
        """The log may have lost its newest records: nothing is known for sure of transactions of the present epoch and before."""
        self._known_since = self.stored.producer_epoch + 1

    def is_committed(self, partition: TopicPartition, producer_epoch: int) -> bool:
        """Whether all transactions of this epoch that had this partition and have ended were committed, and there was one.

        A marker does not say of which transaction it is. So a marker to commit may be written again into a log that has lost it only if no
        transaction of the same epoch was aborted: the records that are open in the log could be of that one.
        """
        return producer_epoch >= self._known_since and self._ends.get(partition) == (producer_epoch, True)

    @property
    def can_time_out(self) -> bool:
        """Whether it is open, and nothing about it is being appended."""
        return self.state is ONGOING and self.pending is None

    @property
    def can_be_fenced(self) -> bool:
        """Whether there is an epoch after the present one, with which its producer is fenced."""
        return self.fence_failed or self.producer_epoch < LAST_EPOCH

    def is_timed_out(self, wall_ms: int) -> bool:
        return self.can_time_out and self.stored.start_ms + self.stored.timeout_ms < wall_ms


def new_transaction(request: InitProducerId, producer_id: int, wall_ms: int) -> Transaction:
    """A transactional id that the log does not know yet: it has no epoch before the first one is in the log."""
    stored = StoredTransaction(producer_id, NO_PRODUCER_EPOCH, request.timeout_ms, EMPTY, (), wall_ms, NO_TIME)
    return Transaction(request.transactional_id, stored)


def is_exhausted(epoch: int) -> bool:
    """Whether a producer with this epoch needs another producer id to get a new epoch."""
    return epoch >= LAST_EPOCH - 1


class FenceFirst(NamedTuple):
    """The transaction is aborted first, with the next epoch; then the client tries again."""


class NeedsId(NamedTuple):
    """The transition needs a new producer id."""


def decide_init(
    transaction: Transaction, request: InitProducerId, new_id: int | None, wall_ms: int
) -> Transition | FenceFirst | NeedsId | ErrorCode:
    """InitProducerId: the next epoch, or a new producer id if there is none. `new_id` is one that the caller has got for it."""
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    expects = request.producer_id != NO_PRODUCER_ID
    if expects and not _may_continue(transaction, request):
        return ErrorCode.PRODUCER_FENCED
    match transaction.state:
        case state if state in COMPLETE:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        case state if state is ONGOING:
            return FenceFirst()
    epoch, stored = transaction.producer_epoch, transaction.stored
    empty = StoredTransaction(stored.producer_id, epoch, request.timeout_ms, EMPTY, (), wall_ms, NO_TIME)
    if is_exhausted(epoch) and (not expects or request.producer_epoch == epoch):
        if new_id is None:
            return NeedsId()
        return Transition(empty._replace(producer_id=new_id, producer_epoch=0), epoch if expects else NO_PRODUCER_EPOCH)
    if not expects:
        return Transition(empty._replace(producer_epoch=epoch + 1))
    if epoch in (NO_PRODUCER_EPOCH, request.producer_epoch):
        return Transition(empty._replace(producer_epoch=epoch + 1), epoch)
    if request.producer_epoch == transaction.last_epoch:
        return Transition(empty, transaction.last_epoch)  # the request is a repetition: its response was lost
    return ErrorCode.PRODUCER_FENCED


def _may_continue(transaction: Transaction, request: InitProducerId) -> bool:
    """Whether a producer with this id may get the next epoch (KIP-360); its epoch is looked at later."""
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or request.producer_id == transaction.stored.producer_id
        or (request.producer_id == transaction.last_producer_id and is_exhausted(request.producer_epoch))
    )


def producer_error(transaction: Transaction, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Why these are not the current id and epoch of a transactional id."""
    if transaction.stored.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if transaction.producer_epoch == producer_epoch else ErrorCode.PRODUCER_FENCED


def decide_add(transaction: Transaction, request: AddPartitions, wall_ms: int) -> Transition | ErrorCode:
    """AddPartitionsToTxn. NONE: the partitions are in the transaction already."""
    error = producer_error(transaction, request.producer_id, request.producer_epoch)
    if error is not ErrorCode.NONE:
        return error
    if transaction.pending is not None or transaction.state in COMPLETE:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    stored = transaction.stored
    if transaction.state is ONGOING and set(request.partitions) <= set(stored.partitions):
        return ErrorCode.NONE
    if transaction.producer_epoch < 0:  # the record of the first epoch was not appended
        return ErrorCode.UNKNOWN_SERVER_ERROR
    partitions = tuple(dict.fromkeys((*stored.partitions, *request.partitions)))
    start_ms = wall_ms if transaction.state in CAN_BEGIN else stored.start_ms
    ongoing = stored._replace(
        state=ONGOING, partitions=partitions, update_ms=wall_ms, start_ms=start_ms, is_v2=False, previous_producer_id=NO_PRODUCER_ID,
    )
    return Transition(ongoing, transaction.last_epoch)


_ENDED = {PREPARE_COMMIT: True, COMPLETE_COMMIT: True, PREPARE_ABORT: False, COMPLETE_ABORT: False}
"""Whether a transaction in one of these states is committed."""


def decide_end(transaction: Transaction, request: EndTransaction, new_id: int | None, wall_ms: int) -> Transition | NeedsId | ErrorCode:
    """EndTxn. NONE: the transaction has ended like this already.

    In transactions v2 the epoch rises with the decision, so the one before it says that the request is repeated; and an abort without a
    transaction raises the epoch too. The markers have the last epoch if there is no other left, and then the next transaction has a new
    producer id, `new_id`, which the caller has got for it.
    """
    if request.raises_epoch and _is_repeated(transaction, request):
        if transaction.pending is not None or transaction.state in COMPLETE:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if _ENDED.get(transaction.state) is request.is_commit else ErrorCode.INVALID_TXN_STATE
    error = producer_error(transaction, request.producer_id, request.producer_epoch)
    if error is not ErrorCode.NONE:
        return error
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    ends_nothing = request.raises_epoch and not request.is_commit and transaction.state not in COMPLETE
    if transaction.state is ONGOING or ends_nothing:
        if request.raises_epoch and is_exhausted(transaction.producer_epoch) and new_id is None:
            return NeedsId()
        return ending(transaction, request.is_commit, wall_ms, raises_epoch=request.raises_epoch, new_id=new_id)
    if request.raises_epoch and transaction.state not in COMPLETE:
        return ErrorCode.INVALID_TXN_STATE
    if _ENDED.get(transaction.state) is not request.is_commit:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state in COMPLETE else ErrorCode.NONE


def _is_repeated(transaction: Transaction, request: EndTransaction) -> bool:
    stored = transaction.stored
    if stored.previous_producer_id != NO_PRODUCER_ID and request.producer_id == stored.previous_producer_id:
        return request.producer_epoch == LAST_EPOCH - 1
    return stored.is_v2 and (stored.producer_id, stored.producer_epoch) == (request.producer_id, request.producer_epoch + 1)


def ending(
    transaction: Transaction, is_commit: bool, wall_ms: int, *, raises_epoch: bool = False, new_id: int | None = None
) -> Transition:
    """The decision to commit or to abort a transaction. `new_id`: the producer id of the next one."""
    state, epoch = PREPARE_COMMIT if is_commit else PREPARE_ABORT, transaction.producer_epoch
    is_v2 = raises_epoch and epoch < LAST_EPOCH
    stored = transaction.stored._replace(
        state=state, producer_epoch=epoch + is_v2, update_ms=wall_ms, is_v2=is_v2, previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID if new_id is None else new_id,
    )
    return Transition(stored, epoch if is_v2 else transaction.last_epoch)


def completion(transaction: Transaction, wall_ms: int) -> Transition:
    """What a transaction becomes whose markers are all written."""
    stored = transaction.stored
    completed = stored._replace(state=COMPLETE[stored.state], partitions=(), update_ms=wall_ms)
    if stored.next_producer_id != NO_PRODUCER_ID:
        completed = completed._replace(
            producer_id=stored.next_producer_id, producer_epoch=0, previous_producer_id=stored.producer_id, next_producer_id=NO_PRODUCER_ID,
        )
    return Transition(completed, transaction.last_epoch)
