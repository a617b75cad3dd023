"""The phases of transactions, and which effects of their coordinator come after which phase.

While a transactional id is held its coordinator goes on to decide, but nothing leaves the broker for this id: no response to
InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, no record, no marker. `fail` lets the append fail that comes next, else it
gives the response that comes next an error, whatever is stored. Imported only while somebody steers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from klamm.broker.transactions.requests import AppendStates, Effect, GiveResult, NeedProducerId, ProducerIdResult, SendMarkers
from klamm.broker.transactions.states import COMPLETE_COMMIT, PREPARE_COMMIT
from klamm.broker.transactions.transaction import Transition
from klamm.broker.transactions.transactions import AddAppended, CompleteAppended, EndAppended, InitAppended
from klamm.protocol.errors import ErrorCode
from klamm.seams.value_class import dataclass
from klamm.server.coordinators.steered_effects import Reached

Outcome = Literal["commit", "abort"]


@dataclass(frozen=True, slots=True)
class ProducerEpochStored:
    """The new epoch of a transactional id is in all replicas of the ISR; InitProducerId has no response."""

    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerFenced:
    """InitProducerId came while a transaction was open, so its producer is fenced; that the transaction is aborted is not stored."""

    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    """A transaction and its first partitions are in all replicas of the ISR; the request that added them has no response."""

    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionPartitionsAdded:
    """More partitions of an open transaction are in all replicas of the ISR; the request that added them has no response."""

    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class TransactionEndPrepared:
    """PrepareCommit or PrepareAbort is in all replicas of the ISR: the outcome is decided. No marker is sent, EndTxn has no response."""

    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TransactionMarkersWritten:
    """The leaders of all partitions of a transaction have written its markers; that it is complete is not stored."""

    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """CompleteCommit or CompleteAbort is in all replicas of the ISR."""

    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TransactionTimedOut:
    """A transaction was open for longer than its time-out, or the leader of one of its partitions recovers from an unclean election. Its
    producer is fenced; that it is aborted is not stored."""

    broker_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class PendingTransactionDecided:
    """A leader that recovers knows how a transaction ends that is open in its log. The marker is not in the log."""

    broker_id: int
    topic: str
    partition: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    transactional_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PendingTransactionEnded:
    """A leader that recovers has written the marker of a transaction that was open in its log. It does not serve yet."""

    broker_id: int
    topic: str
    partition: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    transactional_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PartitionRecovered:
    """A leader that recovers has ended what was open in its log, and does not serve yet: the controller does not know. With
    `kip704.recovery.transactions=leave` transactions may be open."""

    broker_id: int
    topic: str
    partition: int
    leader_epoch: int
    open_transactions: int


RecoveryPhase = PendingTransactionDecided | PendingTransactionEnded | PartitionRecovered

TransactionPhase = (
    ProducerEpochStored | ProducerFenced | TransactionBegun | TransactionPartitionsAdded | TransactionEndPrepared
    | TransactionMarkersWritten | TransactionCompleted | TransactionTimedOut
)

FailAppend = Callable[[AppendStates, ErrorCode], None]


class TransactionSteps:
    """Finds the phases among the effects of the transactional ids of one partition. `fail_append` tells them that an append has failed."""

    def __init__(self, broker_id: int, fail_append: FailAppend) -> None:
        self._broker_id = broker_id
        self._fail_append = fail_append

    def of(
        self, effects: list[Effect], transactional_id: str | None, appended: AppendStates | None, has_begun: bool
    ) -> dict[str | None, list[Any]]:
        """The effects by transactional id, with the phases between them; those under None belong to no id that can be held.

        `transactional_id` is that of the request or the append that led to the effects, `appended` what was appended, `has_begun` whether a
        transaction has begun with it.
        """
        steps: dict[str | None, list[Any]] = {}
        phase = None if appended is None else self._after(appended, has_begun)
        if phase is not None:
            steps[transactional_id] = [Reached(phase, None if isinstance(phase, TransactionCompleted) else responses_fail)]
        for effect in effects:
            match effect:
                case AppendStates():
                    before = self._before(effect)
                    if before is not None:
                        steps.setdefault(before.transactional_id, []).append(Reached(before, self._append_fails))
                    steps.setdefault(id_of(effect), []).append(effect)
                case SendMarkers():
                    steps.setdefault(effect.transactional_id, []).append(effect)
                case NeedProducerId(request):
                    steps.setdefault(request.transactional_id, []).append(effect)
                case GiveResult():
                    steps.setdefault(transactional_id, []).append(effect)
        return steps

    def _before(self, append: AppendStates) -> ProducerFenced | TransactionTimedOut | TransactionMarkersWritten | None:
        match append.token:
            case EndAppended(ticket, transactional_id, transition, True):
                return (TransactionTimedOut if ticket is None else ProducerFenced)(*self._fields(transactional_id, transition))
            case CompleteAppended(transactional_id, transition):
                return TransactionMarkersWritten(*self._fields(transactional_id, transition), _outcome(transition))
        return None

    def _after(self, append: AppendStates, has_begun: bool) -> TransactionPhase | None:
        match append.token:
            case InitAppended(_, transactional_id, transition):
                return ProducerEpochStored(*self._fields(transactional_id, transition))
            case AddAppended(_, transactional_id, transition):
                return (TransactionBegun if has_begun else TransactionPartitionsAdded)(*self._fields(transactional_id, transition))
            case EndAppended(_, transactional_id, transition):
                return TransactionEndPrepared(*self._fields(transactional_id, transition), _outcome(transition))
            case CompleteAppended(transactional_id, transition):
                return TransactionCompleted(*self._fields(transactional_id, transition), _outcome(transition))
        return None

    def _fields(self, transactional_id: str, transition: Transition) -> tuple[int, str, int, int]:
        return self._broker_id, transactional_id, transition.stored.producer_id, transition.stored.producer_epoch

    def _append_fails(self, code: ErrorCode, rest: list[Any]) -> list[Any]:
        """The append that comes first fails."""
        return [partial(self._fail_append, rest[0], code), *rest[1:]]


def phases_of(broker_id: int, effects: list[Effect], appended: AppendStates | None, has_begun: bool) -> list[TransactionPhase]:
    """The phases among the effects of the transactional ids of a partition, as `TransactionSteps.of` finds them."""
    steps = TransactionSteps(broker_id, lambda append, code: None).of(effects, None, appended, has_begun)
    return [each.phase for batch in steps.values() for each in batch if isinstance(each, Reached)]


def responses_fail(code: ErrorCode, rest: list[Any]) -> list[Any]:
    """All responses have this error."""
    return [
        GiveResult(each.ticket, ProducerIdResult(code) if isinstance(each.result, ProducerIdResult) else code)
        if isinstance(each, GiveResult) else each
        for each in rest
    ]


def id_of(append: AppendStates) -> str | None:
    """The transactional id whose record this is; None if they expire."""
    match append.token:
        case InitAppended(_, transactional_id) | AddAppended(_, transactional_id) | EndAppended(_, transactional_id):
            return transactional_id
        case CompleteAppended(transactional_id):
            return transactional_id
    return None


def _outcome(transition: Transition) -> Outcome:
    return "commit" if transition.stored.state in (PREPARE_COMMIT, COMPLETE_COMMIT) else "abort"
