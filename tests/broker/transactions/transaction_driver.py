"""Drives the transactional ids of one partition without a broker.

Time moves when told; appends and markers succeed unless told otherwise.
"""

from __future__ import annotations

from klamm.broker.coordinators.effects import AppendRecords, Respond
from klamm.broker.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    NeedProducerId,
    ProducerIdResult,
    SendMarkers,
    TransactionLimits,
)
from klamm.broker.transactions.transaction import Transaction
from klamm.broker.transactions.transactions import Transactions
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Now

ID = "tx"
START_MS = 1_000_000
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class TransactionDriver:
    """`log` has what was appended, as the partition's log would; `markers` those that were written. `held` are the effects that wait while
    `holds` is set. `errors` are outcomes of the next appends, `marker_errors` those of the next markers of a partition."""

    def __init__(self, limits: TransactionLimits | None = None, epoch: int = 0) -> None:
        self.limits = TransactionLimits() if limits is None else limits
        self.transactions = Transactions(self.limits, 1, epoch)
        self.epoch = epoch
        self.ms = 0
        self.log: list[tuple[bytes, bytes | None, int]] = []
        self.results: dict[object, ProducerIdResult | ErrorCode] = {}
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []
        self.holds = False
        self.held: list[AppendRecords | SendMarkers] = []
        self.errors: list[ErrorCode] = []
        self.marker_errors: dict[TopicPartition, list[ErrorCode]] = {}
        self.next_id = 0
        self.ids_error: ErrorCode | None = None
        self.tickets = 0

    @property
    def now(self) -> Now:
        return Now(self.ms, START_MS + self.ms)

    def advance(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.ms + ms
        while (deadline := self.transactions.next_deadline_ms) is not None and deadline <= end:
            self.ms = max(self.ms, deadline)
            self.transactions.tick(self.now)
            self.settle()
        self.ms = end

    def settle(self) -> None:
        """Do what the transactions want until they want nothing more."""
        while effects := self.transactions.take_effects():
            for effect in effects:
                match effect:
                    case Respond(_, ticket, result):
                        assert ticket not in self.results, "a request has two results"
                        self.results[ticket] = result
                    case NeedProducerId(request) if self.ids_error is not None:
                        self.results[request.ticket] = ProducerIdResult(self.ids_error)
                    case NeedProducerId(request):
                        self.next_id += 1
                        self.transactions.use_producer_id(request, self.now, self.next_id - 1)
                    case AppendRecords() | SendMarkers() if self.holds:
                        self.held.append(effect)
                    case AppendRecords():
                        self.append(effect, self.errors.pop(0) if self.errors else ErrorCode.NONE)
                    case SendMarkers():
                        self.send(effect)

    def append(self, append: AppendRecords, error: ErrorCode = ErrorCode.NONE) -> None:
        if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT):
            self.log += [(key, value, len(self.log) + at) for at, (key, value) in enumerate(append.records)]
        self.transactions.appended(append, error, 0, self.now)

    def send(self, markers: SendMarkers) -> None:
        """Write markers, partition by partition in two answers, as two leaders would."""
        assert markers.coordinator_epoch == self.epoch
        for partitions in (markers.partitions[::2], markers.partitions[1::2]):
            results = {}
            for partition in partitions:
                errors = self.marker_errors.get(partition)
                results[partition] = errors.pop(0) if errors else ErrorCode.NONE
                if results[partition] is ErrorCode.NONE:
                    self.markers.append((partition, markers.producer_id, markers.producer_epoch, markers.is_commit))
            if results:
                self.transactions.markers_sent(markers, results, self.now)

    def release(self, *errors: ErrorCode) -> None:
        """Do what is held; what it leads to is held again while `holds` is set."""
        held, self.held = self.held, []
        given = list(errors)
        for effect in held:
            if isinstance(effect, AppendRecords):
                self.append(effect, given.pop(0) if given else ErrorCode.NONE)
            else:
                self.send(effect)
        self.settle()

    def reloaded(self) -> TransactionDriver:
        """The next coordinator, which has read the log."""
        other = TransactionDriver(self.limits, self.epoch + 1)
        other.ms, other.next_id, other.tickets = self.ms, self.next_id, self.tickets
        other.log = list(self.log)
        assert other.transactions.load(self.log) == 0
        other.transactions.loaded(other.now)
        return other

    # --- requests

    def ticket(self) -> str:
        self.tickets += 1
        return f"ticket {self.tickets}"

    def init(
        self, transactional_id: str = ID, timeout_ms: int = 60_000, producer_id: int = -1, producer_epoch: int = -1
    ) -> ProducerIdResult | None:
        """The result, None while it is awaited."""
        ticket = self.ticket()
        self.transactions.init_producer_id(InitProducerId(ticket, transactional_id, timeout_ms, producer_id, producer_epoch), self.now)
        self.settle()
        result = self.results.get(ticket)
        assert not isinstance(result, ErrorCode)
        return result

    def begun(self, *partitions: TopicPartition, transactional_id: str = ID, timeout_ms: int = 60_000) -> tuple[int, int]:
        """A producer with a transaction of these partitions, T0 if there are none; its id and epoch."""
        result = self.init(transactional_id, timeout_ms)
        assert result is not None
        assert result.error is ErrorCode.NONE
        producer = result.producer_id, result.producer_epoch
        assert self.add(*producer, *(partitions or (T0,)), transactional_id=transactional_id) is ErrorCode.NONE
        return producer

    def add(self, producer_id: int, producer_epoch: int, *partitions: TopicPartition, transactional_id: str = ID) -> ErrorCode | None:
        ticket = self.ticket()
        self.transactions.add_partitions(AddPartitions(ticket, transactional_id, producer_id, producer_epoch, partitions), self.now)
        return self._code(ticket)

    def end(self, producer_id: int, producer_epoch: int, is_commit: bool = True, transactional_id: str = ID) -> ErrorCode | None:
        ticket = self.ticket()
        self.transactions.end(EndTransaction(ticket, transactional_id, producer_id, producer_epoch, is_commit), self.now)
        return self._code(ticket)

    def _code(self, ticket: str) -> ErrorCode | None:
        self.settle()
        result = self.results.get(ticket)
        assert not isinstance(result, ProducerIdResult)
        return result

    def abort_timed_out(self) -> None:
        self.transactions.abort_timed_out(self.now)
        self.settle()

    def expire(self, batch_bytes: int = 1_000_000) -> None:
        self.transactions.expire(self.now, batch_bytes)
        self.settle()

    # --- what there is

    def get(self, transactional_id: str = ID) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        assert transaction is not None
        return transaction
