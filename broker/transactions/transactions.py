"""All transactional ids of one partition of the transaction topic, whose leader is their coordinator.

Requests come as values with the time, and effects go out (`take_effects`): records to append, markers to send, results of requests. Nothing
here reads a clock, draws a number or waits, so the same events give the same effects. What is durable changes only by `replay` of a record:
while the partition is loaded, and after each append of this coordinator.

A transaction ends in three steps. The decision (PrepareCommit, PrepareAbort) is appended; from then on the client has its response and the
transaction cannot end otherwise. Markers are written to all its partitions, again and again until each leader has written its own. Then
CompleteCommit or CompleteAbort is appended. While an append or markers are under way, other requests of the transactional id get
CONCURRENT_TRANSACTIONS. A coordinator that loads a decision sends the markers again.

The caller appends what `AppendRecords` says and calls `appended`; it sends `SendMarkers` and calls `markers_sent`; it calls `tick` when
`next_deadline_ms` has come, and `abort_timed_out` and `expire` at times. An object is for one coordinator epoch: after `unload` another one
is loaded. The order of checks, and each error, is that of `TransactionCoordinator` of Apache Kafka 3.9.1, whose feature transaction.version
is 0 with ZooKeeper: EndTxn does not change the epoch. Requests of transactions v2 (`raises_epoch`) raise it, as in Apache Kafka 4.4.0.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple, TypeVar

from klamm.broker.coordinators.effects import AppendRecords, Record, Respond
from klamm.broker.transactions import log_records
from klamm.broker.transactions.log_records import StoredTransaction
from klamm.broker.transactions.phases import (
    Outcome,
    ProducerEpochStored,
    ProducerFenced,
    TransactionBegun,
    TransactionCompleted,
    TransactionEndPrepared,
    TransactionMarkersWritten,
    TransactionPartitionsAdded,
    TransactionTimedOut,
)
from klamm.broker.transactions.requests import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AddPartitions,
    Description,
    Effect,
    EndTransaction,
    InitProducerId,
    Listed,
    NeedProducerId,
    PendingEnd,
    ProducerIdResult,
    SendMarkers,
    TransactionLimits,
)
from klamm.broker.transactions.states import CAN_EXPIRE, COMPLETE, COMPLETE_COMMIT, DEAD, ONGOING, PREPARE_COMMIT, TransactionState
from klamm.broker.transactions.transaction import (
    FenceFirst,
    NeedsId,
    Transaction,
    Transition,
    completion,
    decide_add,
    decide_end,
    decide_init,
    ending,
    new_transaction,
    producer_error,
)
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Now

R = TypeVar("R", AddPartitions, EndTransaction)

log = logging.getLogger("klamm.broker.transactions")

RETRY_MS = 100
"""Pause before markers are sent again, and before the record of a complete transaction is appended again."""

APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The code in the response when a record cannot be appended. Other codes are passed on."""

MARKER_WRITTEN = frozenset((
    ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION,
))
"""A partition with one of these needs no marker any more. One whose messages are too old cannot have records of a transaction."""
MARKER_REFUSED = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
"""Another coordinator has ended the transaction: this one sends nothing more. Markers with other errors are sent again."""

_RECORD_OVERHEAD = 64
"""At least the bytes of a record beside its key."""


class InitAppended(NamedTuple):
    """The token of a producer's new epoch."""

    ticket: object
    transactional_id: str
    transition: Transition


class AddAppended(NamedTuple):
    """The token of partitions that are added."""

    ticket: object
    transactional_id: str
    transition: Transition


class EndAppended(NamedTuple):
    """The token of a decision. `fence`: it was made here, with a raised epoch, not by the client; then `ticket` is the InitProducerId that
    led to it, None if the transaction was open for too long. `raises_epoch`: the client gets the new epoch."""

    ticket: object
    transactional_id: str
    transition: Transition
    is_fence: bool
    raises_epoch: bool = False


class CompleteAppended(NamedTuple):
    """The token of a transaction whose markers are all written."""

    transactional_id: str
    transition: Transition


class ExpiryAppended(NamedTuple):
    """The token of transactional ids that are deleted."""

    transactional_ids: tuple[str, ...]


class Transactions:
    """The transactional ids of one partition."""

    def __init__(self, limits: TransactionLimits, broker_id: int, coordinator_epoch: int, is_whole: bool = True) -> None:
        """`broker_id` is for phases, `coordinator_epoch` the leader epoch of the partition. `is_whole`: its log has lost no records in an
        unclean election."""
        self._is_whole = is_whole
        self._limits = limits
        self._broker_id = broker_id
        self._epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}
        self._completions: dict[str, Transition] = {}
        """Transactions whose markers are being written, and what they become."""
        self._effects: list[Effect] = []
        self._again: list[tuple[int, int, Effect]] = []
        """Effects that failed and are to be tried again, with their time, in a heap."""
        self._order = count()
        self._is_unloaded = False

    def __len__(self) -> int:
        return len(self._transactions)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._transactions.values())

    def get(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def take_effects(self) -> list[Effect]:
        """What is to be done since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    # --- requests

    def init_producer_id(self, request: InitProducerId, now: Now, new_id: int | None = None) -> None:
        """InitProducerId: `Respond` with a ProducerIdResult comes when the new epoch is in the log.

        `NeedProducerId` says that it takes a new producer id: then the caller calls again with one. If the caller gets none, it responds
        itself with the code.
        """
        error = init_error(request, self._limits)
        if error is ErrorCode.NONE and self._is_unloaded:
            error = ErrorCode.NOT_COORDINATOR
        if error is not ErrorCode.NONE:
            self._effects.append(Respond(request.transactional_id, request.ticket, ProducerIdResult(error)))
            return
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            if new_id is None:
                self._effects.append(NeedProducerId(request))
                return
            transaction = self._transactions[request.transactional_id] = new_transaction(request, new_id, now.wall_ms)
        match decide_init(transaction, request, new_id, now.wall_ms):
            case ErrorCode() as error:
                self._effects.append(Respond(request.transactional_id, request.ticket, ProducerIdResult(error)))
            case NeedsId():
                self._effects.append(NeedProducerId(request))
            case FenceFirst() if not transaction.can_be_fenced:
                self._effects.append(Respond(request.transactional_id, request.ticket, ProducerIdResult(ErrorCode.UNKNOWN_SERVER_ERROR)))
            case FenceFirst():
                self._fence(transaction, request.ticket, now)
            case Transition() as transition:
                self._append(transaction, transition, InitAppended(request.ticket, request.transactional_id, transition))

    def use_producer_id(self, request: InitProducerId | EndTransaction, now: Now, new_id: int) -> None:
        """`NeedProducerId` has led to this producer id: go on with its request."""
        if isinstance(request, InitProducerId):
            self.init_producer_id(request, now, new_id)
        else:
            self.end(request, now, new_id)

    def add_partitions(self, request: AddPartitions, now: Now) -> None:
        """AddPartitionsToTxn: `Respond` with a code comes when the partitions are in the log."""
        if (judged := self._judged(request, decide_add, now)) is not None:
            self._append(*judged, AddAppended(request.ticket, request.transactional_id, judged[1]))

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn that only verifies: a code for each partition, TRANSACTION_ABORTABLE if it is not in the transaction."""
        transaction = self._current(transactional_id)
        if isinstance(transaction, ErrorCode):
            return dict.fromkeys(partitions, transaction)
        return _verified(transaction, producer_id, producer_epoch, partitions)

    def end(self, request: EndTransaction, now: Now, new_id: int | None = None) -> None:
        """EndTxn: `Respond` with a code, or a ProducerIdResult, comes when the decision is in the log, before the markers are written.
        It may need a producer id, as `init_producer_id` does."""
        def decide(transaction: Transaction, asked: EndTransaction, wall_ms: int) -> Transition | NeedsId | ErrorCode:
            return decide_end(transaction, asked, new_id, wall_ms)

        if (judged := self._judged(request, decide, now)) is not None:
            self._append(*judged, EndAppended(request.ticket, request.transactional_id, judged[1], False, request.raises_epoch))

    def _judged(
        self, request: R, decide: Callable[[Transaction, R, int], Transition | NeedsId | ErrorCode], now: Now
    ) -> tuple[Transaction, Transition] | None:
        """The transaction of a request, and what it becomes; None if the request has its error as a response, or needs a producer id."""
        transaction = self._current(request.transactional_id)
        decision = transaction if isinstance(transaction, ErrorCode) else decide(transaction, request, now.wall_ms)
        if not isinstance(transaction, ErrorCode) and isinstance(decision, Transition):
            return transaction, decision
        if isinstance(decision, NeedsId):
            assert isinstance(request, EndTransaction)
            self._effects.append(NeedProducerId(request))
            return None
        assert isinstance(decision, ErrorCode)
        result: ErrorCode | ProducerIdResult = decision
        if isinstance(request, EndTransaction) and request.raises_epoch:
            result = _raised(decision, None if isinstance(transaction, ErrorCode) else transaction.stored)
        self._effects.append(Respond(request.transactional_id, request.ticket, result))
        return None

    def describe(self, transactional_id: str) -> Description | ErrorCode:
        """DescribeTransactions, for one transactional id."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.NOT_COORDINATOR if self._is_unloaded else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return _description(transaction)

    def listed(
        self, now: Now, states: Collection[TransactionState] | None = None, producer_ids: Collection[int] = (), longer_than_ms: int = -1
    ) -> list[Listed]:
        """ListTransactions: those in one of these states (None: in any), of one of these producers (none: of any), and begun more than so
        many milliseconds ago (negative: at any time)."""
        return [
            Listed(each.transactional_id, each.stored.producer_id, each.state.text)
            for each in self._transactions.values() if _is_listed(each, now, states, producer_ids, longer_than_ms)
        ]

    def _current(self, transactional_id: str) -> Transaction | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if self._is_unloaded:
            return ErrorCode.NOT_COORDINATOR
        return self._transactions.get(transactional_id) or ErrorCode.INVALID_PRODUCER_ID_MAPPING

    # --- time

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if nothing waits for time."""
        return self._again[0][0] if self._again else None

    def waiting(self, kind: type[AppendRecords] | type[SendMarkers]) -> int:
        """How many effects of this kind failed and wait to be tried again."""
        return sum(isinstance(effect, kind) for _, _, effect in self._again)

    def tick(self, now: Now) -> None:
        """Try again what failed and whose pause is over."""
        while self._again and self._again[0][0] <= now.ms:
            effect = heapq.heappop(self._again)[2]
            if isinstance(effect, AppendRecords):
                self._append_end(effect)
            else:
                self._effects.append(effect)

    def _try_again(self, effect: Effect, now: Now) -> None:
        heapq.heappush(self._again, (now.ms + RETRY_MS, next(self._order), effect))

    def abort_timed_out(self, now: Now) -> None:
        """Abort transactions that have been open for longer than their time-out; their producers are fenced. Apache Kafka does so each
        `transaction.abort.timed.out.transaction.cleanup.interval.ms`."""
        for transaction in [each for each in self._transactions.values() if each.is_timed_out(now.wall_ms)]:
            if not transaction.can_be_fenced:
                log.warning("transaction of %s: not aborted after its time-out: its producer has the last epoch, %d, and cannot be fenced; "
                            "it can abort by itself", transaction.transactional_id, transaction.producer_epoch)
                continue
            log.info("transaction of %s: aborted after its time-out of %d ms", transaction.transactional_id, transaction.stored.timeout_ms)
            self._fence(transaction, None, now)

    def time_out(self, transactional_id: str, now: Now) -> bool:
        """Abort the open transaction of an id as if its time-out were over. Returns whether there is one, and nothing about it is being
        appended."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None or not transaction.can_time_out or not transaction.can_be_fenced:
            return False
        log.info("transaction of %s: aborted on request, as after its time-out", transactional_id)
        self._fence(transaction, None, now)
        return True

    def ids_of(self, producer_ids: Collection[int]) -> list[str]:
        """The transactional ids that have one of these producer ids."""
        return [each.transactional_id for each in self._transactions.values() if each.stored.producer_id in producer_ids]

    def end_pending(self, transactional_id: str, partition: TopicPartition, producer_epoch: int, now: Now) -> PendingEnd | None:
        """How the transaction ends that is open in the log of this partition with this epoch of the producer. None: it is not known here.

        An ongoing one is aborted as after its time-out, so its producer is fenced; the outcome is there when that is in the log.
        """
        transaction = self._transactions.get(transactional_id)
        if transaction is None or producer_epoch > transaction.producer_epoch:
            return None
        stored = transaction.stored
        end = PendingEnd(transactional_id, stored.producer_id, ErrorCode.CONCURRENT_TRANSACTIONS)
        is_open = transaction.state is ONGOING and stored.producer_epoch == producer_epoch and partition in stored.partitions
        if is_open and transaction.pending is not None:
            return end
        if is_open and transaction.can_be_fenced:
            log.info("transaction of %s: aborted, as after its time-out: the leader of %s-%d recovers", transactional_id, *partition)
            self._fence(transaction, None, now)
            return end
        is_commit = not is_open and transaction.is_committed(partition, producer_epoch)
        epoch = producer_epoch if is_commit else max(producer_epoch, stored.producer_epoch)
        return end._replace(error=ErrorCode.NONE, producer_epoch=epoch, coordinator_epoch=self._epoch, is_commit=is_commit)

    def expire(self, now: Now, batch_bytes: int) -> None:
        """Delete transactional ids that were not used for `transactional.id.expiration.ms` and have no open transaction.

        `batch_bytes` is the largest batch that the log takes. Apache Kafka does so each
        `transaction.remove.expired.transaction.cleanup.interval.ms`.
        """
        batch: list[Transaction] = []
        size = 0
        for transaction in self._transactions.values():
            is_old = transaction.stored.update_ms <= now.wall_ms - self._limits.expiration_ms
            if not is_old or transaction.pending is not None or transaction.state not in CAN_EXPIRE:
                continue
            more = len(log_records.key_of(transaction.transactional_id)) + _RECORD_OVERHEAD
            if batch and size + more > batch_bytes:
                self._delete(batch)
                batch, size = [], 0
            batch.append(transaction)
            size += more
        if batch:
            self._delete(batch)

    def _delete(self, batch: Sequence[Transaction]) -> None:
        for transaction in batch:
            transaction.begin(DEAD)
        records: tuple[Record, ...] = tuple((log_records.key_of(each.transactional_id), None) for each in batch)
        token = ExpiryAppended(tuple(each.transactional_id for each in batch))
        self._effects.append(AppendRecords(None, token, records))

    # --- the end of transactions

    def _fence(self, transaction: Transaction, ticket: object, now: Now) -> None:
        """Abort an ongoing transaction with the next epoch, which no producer gets: who has the present one is fenced at once."""
        if not transaction.fence_failed:
            transaction.producer_epoch += 1
        transaction.last_epoch = NO_PRODUCER_EPOCH
        transition = ending(transaction, False, now.wall_ms)
        kind = TransactionTimedOut if ticket is None else ProducerFenced
        self._effects.append(kind(*self._at(transaction.transactional_id, transition)))
        self._append(transaction, transition, EndAppended(ticket, transaction.transactional_id, transition, True))

    def _complete_later(self, transaction: Transaction, now: Now) -> None:
        """The decision is in the log: have the markers written, then the end."""
        transition = completion(transaction, now.wall_ms)
        transaction.begin(transition.stored.state)
        transaction.fence_failed = False
        self._completions[transaction.transactional_id] = transition
        if transaction.unmarked:
            self._effects.append(_markers_of(transaction, self._epoch))
        else:
            self._complete(transaction)

    def markers_sent(self, sent: SendMarkers, results: Mapping[TopicPartition, ErrorCode], now: Now) -> None:
        """Markers were written, or not: a code for each of these partitions.

        NONE also stands for a partition that does not exist any more. NETWORK_EXCEPTION stands for a leader that cannot be reached, and
        LEADER_NOT_AVAILABLE for a partition without a leader. After a refusal no markers are sent any more; those that are written count.
        """
        transaction = self._transactions.get(sent.transactional_id)
        if transaction is None:
            return
        again = []
        for partition, code in results.items():
            if code in MARKER_WRITTEN:
                transaction.unmarked.pop(partition, None)
            elif code in MARKER_REFUSED:
                log.warning("transaction of %s: no more markers, since %s refused one: %s", sent.transactional_id, partition, code.name)
                self._completions.pop(sent.transactional_id, None)
            else:
                again.append(partition)
        if sent.transactional_id not in self._completions:
            return
        if again:
            log.info("transaction of %s: markers for %s are sent again", sent.transactional_id, again)
            self._try_again(sent._replace(partitions=tuple(again)), now)
        elif not transaction.unmarked:
            self._complete(transaction)

    def _complete(self, transaction: Transaction) -> None:
        transition = self._completions.pop(transaction.transactional_id)
        self._append_end(_append_of(transaction, transition, CompleteAppended(transaction.transactional_id, transition)))

    def _append_end(self, append: AppendRecords) -> None:
        assert isinstance(append.token, CompleteAppended)
        self._effects += (TransactionMarkersWritten(*self._at(*append.token), _outcome(append.token.transition)), append)

    # --- the log

    def _append(self, transaction: Transaction, transition: Transition, token: InitAppended | AddAppended | EndAppended) -> None:
        transaction.begin(transition.stored.state)
        self._effects.append(_append_of(transaction, transition, token))

    def appended(self, append: AppendRecords, error: ErrorCode, base_offset: int, now: Now) -> None:
        """What became of an append."""
        code = APPEND_ERRORS.get(error, error)
        if code is ErrorCode.NONE and self._is_unloaded:
            code = ErrorCode.NOT_COORDINATOR
        match append.token:
            case InitAppended(ticket, transactional_id, transition):
                stored = transition.stored
                is_good = code is ErrorCode.NONE
                result = ProducerIdResult(code, stored.producer_id, stored.producer_epoch) if is_good else ProducerIdResult(code)
                if self._settle(append, transactional_id, transition, code):
                    self._effects.append(ProducerEpochStored(*self._at(transactional_id, transition)))
                self._effects.append(Respond(transactional_id, ticket, result))
            case AddAppended(ticket, transactional_id, transition):
                before = self._transactions.get(transactional_id)
                kind = TransactionPartitionsAdded if before is not None and before.state is ONGOING else TransactionBegun
                if self._settle(append, transactional_id, transition, code):
                    self._effects.append(kind(*self._at(transactional_id, transition)))
                self._effects.append(Respond(transactional_id, ticket, code))
            case EndAppended() as token:
                self._decided(append, token, code, now)
            case CompleteAppended(transactional_id, transition):
                if code is ErrorCode.COORDINATOR_NOT_AVAILABLE and not self._is_unloaded:
                    self._try_again(append, now)
                elif self._settle(append, transactional_id, transition, code):
                    self._effects.append(TransactionCompleted(*self._at(transactional_id, transition), _outcome(transition)))
            case ExpiryAppended(transactional_ids):
                self._expired(append, transactional_ids, code)

    def _settle(self, append: AppendRecords, transactional_id: str, transition: Transition, code: ErrorCode) -> Transaction | None:
        """The transition is over: its record is replayed, then the transaction is returned; or it did not take place."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return None
        transaction.pending = None
        if code is not ErrorCode.NONE:
            log.info("transaction of %s: no record of %s: %s", transactional_id, transition.stored.state.text, code.name)
            return None
        for record in append.records:
            self.replay(*record)
        transaction.last_epoch = transition.last_epoch
        return transaction

    def _decided(self, append: AppendRecords, token: EndAppended, code: ErrorCode, now: Now) -> None:
        transactional_id, transition = token.transactional_id, token.transition
        transaction = self._settle(append, transactional_id, transition, code)
        if transaction is not None:
            self._effects.append(TransactionEndPrepared(*self._at(transactional_id, transition), _outcome(transition)))
        if not token.is_fence:
            result = _raised(code, transition.stored) if token.raises_epoch else code
            self._effects.append(Respond(transactional_id, token.ticket, result))
        elif token.ticket is not None:
            error = ErrorCode.CONCURRENT_TRANSACTIONS if code is ErrorCode.NONE else code
            self._effects.append(Respond(transactional_id, token.ticket, ProducerIdResult(error)))
        if transaction is not None:
            self._complete_later(transaction, now)
        elif token.is_fence and (left := self._transactions.get(transactional_id)) is not None:
            left.fence_failed = True

    def _at(self, transactional_id: str, transition: Transition) -> tuple[int, str, int, int]:
        """The first fields of a phase."""
        return self._broker_id, transactional_id, transition.stored.producer_id, transition.stored.producer_epoch

    def _expired(self, append: AppendRecords, transactional_ids: Iterable[str], code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            for record in append.records:
                self.replay(*record)
            return
        log.warning("%d transactional ids have not expired: %s", len(append.records), code.name)
        for transactional_id in transactional_ids:
            transaction = self._transactions.get(transactional_id)
            if transaction is not None:
                transaction.pending = None

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """A record of the log. Records of later brokers are passed over. Raises RemoteProtocolError for one that cannot be read."""
        if key == log_records.LOSS[0]:
            for each in self._transactions.values():
                each.forget_ends()
            return
        transactional_id = log_records.read_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._transactions.pop(transactional_id, None)
            return
        stored = log_records.read_value(value)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            transaction = self._transactions[transactional_id] = Transaction(transactional_id, stored)
        transaction.replay(stored)

    def load(self, records: Iterable[tuple[bytes | None, bytes | None, int]]) -> int:
        """Replay (key, value, log offset) each; how many could not be read and were passed over."""
        unread = 0
        for key, value, offset in records:
            try:
                self.replay(key, value)
            except RemoteProtocolError as error:
                unread += 1
                log.warning("a record of the transaction topic at offset %d is passed over: %s", offset, error)
        return unread

    def loaded(self, now: Now) -> None:
        """All records are replayed: transactions whose end was decided are completed."""
        for transaction in self._transactions.values():
            transaction.last_producer_id = NO_PRODUCER_ID
            transaction.start_ms = transaction.stored.start_ms
            if not self._is_whole:
                transaction.forget_ends()
            if transaction.state in COMPLETE:
                self._complete_later(transaction, now)

    def unload(self, now: Now) -> None:
        """Another broker coordinates these transactions now. Requests that wait for an append get their result when it ends."""
        self._is_unloaded = True
        self._transactions.clear()
        self._completions.clear()
        self._again.clear()


def _raised(code: ErrorCode, stored: StoredTransaction | None) -> ProducerIdResult:
    """The result of an EndTxn of transactions v2."""
    if code is not ErrorCode.NONE or stored is None:
        return ProducerIdResult(code)
    if stored.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdResult(code, stored.next_producer_id, 0)
    return ProducerIdResult(code, stored.producer_id, stored.producer_epoch)


def init_error(request: InitProducerId, limits: TransactionLimits) -> ErrorCode:
    """Why an InitProducerId is refused whatever its transactional id is doing; comes before the question who coordinates it."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if 0 < request.timeout_ms <= limits.max_timeout_ms else ErrorCode.INVALID_TRANSACTION_TIMEOUT


def _verified(
    transaction: Transaction, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    error = producer_error(transaction, producer_id, producer_epoch)
    if error is ErrorCode.NONE and transaction.state in COMPLETE:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is not ErrorCode.NONE:
        return dict.fromkeys(partitions, error)
    inside = set(transaction.stored.partitions)
    return {each: ErrorCode.NONE if each in inside else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}


def _description(transaction: Transaction) -> Description:
    stored = transaction.stored
    return Description(
        stored.producer_id, transaction.producer_epoch, stored.state.text, stored.timeout_ms, transaction.start_ms,
        transaction.open_partitions,
    )


def _is_listed(
    each: Transaction, now: Now, states: Collection[TransactionState] | None, producer_ids: Collection[int], longer_than_ms: int
) -> bool:
    return (
        (not producer_ids or each.stored.producer_id in producer_ids)
        and (states is None or each.state in states)
        and (longer_than_ms < 0 or now.wall_ms - each.start_ms > longer_than_ms)
    )


def _markers_of(transaction: Transaction, epoch: int) -> SendMarkers:
    stored = transaction.stored
    is_commit = transaction.state is PREPARE_COMMIT
    return SendMarkers(
        transaction.transactional_id, stored.producer_id, stored.producer_epoch, epoch, is_commit, tuple(transaction.unmarked)
    )


def _append_of(transaction: Transaction, transition: Transition, token: object) -> AppendRecords:
    record = log_records.record_of(transaction.transactional_id, transition.stored)
    return AppendRecords(transaction.transactional_id, token, (record,), timeout_ms=transition.stored.timeout_ms)


def _outcome(transition: Transition) -> Outcome:
    return "commit" if transition.stored.state in (PREPARE_COMMIT, COMPLETE_COMMIT) else "abort"
