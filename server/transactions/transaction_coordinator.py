"""The coordinator of the transactional ids whose partition of the transaction topic this broker leads (Apache Kafka's
`TransactionCoordinator`).

`broker/transactions/` decides; here its effects happen. Records are appended to the partition of the id with acks=all, producer ids are
drawn, markers are sent to the leaders of the transaction's partitions, and results complete the futures of requests that wait.

Somebody may hold transactional ids at phases (`phases.py`); then the effects of an id wait, and others go on.

A request whose result may come later gets a future. `describe` raises ApiError if this broker cannot serve the id:
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR. The others have the code in their result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.log.log import AppendResult
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.transactions.log_replay import replay_batches
from klamm.broker.transactions.requests import (
    AddPartitions,
    AppendStates,
    Description,
    Effect,
    EndTransaction,
    GiveResult,
    InitProducerId,
    Listed,
    NeedProducerId,
    PendingEnd,
    ProducerIdResult,
    SendMarkers,
    TransactionLimits,
)
from klamm.broker.transactions.states import ONGOING, TransactionState
from klamm.broker.transactions.transaction import Transaction
from klamm.broker.transactions.transactions import AddAppended, Transactions, init_error
from klamm.configs.broker_config import BrokerConfig
from klamm.machine.faults import contained
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import Buffer
from klamm.protocol.records.record import Record, encode_batch
from klamm.seams.clock import Clock, Now, time_of
from klamm.seams.pace import Pace
from klamm.seams.steering import Steering
from klamm.server.coordinators.owned_partitions import OwnedPartitions
from klamm.server.coordinators.partition_timers import PartitionTimers
from klamm.server.coordinators.tickets import complete, new_ticket
from klamm.server.ground.background import BackgroundTasks
from klamm.server.produce.internal_appends import InternalAppends, outcome_of
from klamm.server.transactions.marker_sender import MarkerSender
from klamm.server.transactions.producer_ids import ProducerIds

if TYPE_CHECKING:
    from klamm.server.coordinators.phase_watchers import Watch
    from klamm.server.coordinators.steered_effects import SteeredEffects

log = logging.getLogger(__name__)

TRANSACTION_TOPIC = "__transaction_state"
IDS_PER_ENTRY = 20
"""For `Pace`, this number of transactional ids that are only looked at count as one entry."""


class TransactionOptions(NamedTuple):
    """Configs of the coordinator. Times are milliseconds."""

    limits: TransactionLimits
    partitions: int
    abort_check_ms: int
    expiry_check_ms: int
    request_timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionOptions:
        """Those of a broker."""
        get = config.get
        return cls(
            TransactionLimits(get("transaction.max.timeout.ms"), get("transactional.id.expiration.ms")),
            get("transaction.state.log.num.partitions"), get("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            get("transaction.remove.expired.transaction.cleanup.interval.ms"), get("request.timeout.ms"),
        )


class PendingEnds(NamedTuple):
    """How transactions end that are open in a log: those that a coordinator knows. `partitions` are those of the transaction topic that it
    has loaded."""

    partitions: tuple[int, ...]
    ends: tuple[PendingEnd, ...]


class TransactionCoordinator:
    """All transactional ids that one broker coordinates."""

    def __init__(
        self, options: TransactionOptions, replicas: ReplicaManager, producer_ids: ProducerIds, sender: MarkerSender,
        background: BackgroundTasks, clock: Clock, steering: Steering | None = None,
    ) -> None:
        """`steering` holds transactional ids at phases."""
        self._broker_id = replicas.broker_id
        self._steering = steering
        self._steered: SteeredEffects | None = None
        """Effects that wait; made when somebody steers for the first time."""
        self.options = options
        self.sender = sender
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._background = background
        self._clock = clock
        self._appends = InternalAppends(replicas, clock, options.request_timeout_ms)
        self.watch: Watch | None = None
        """Is told the phases of transactional ids."""
        self._timers = PartitionTimers(clock, self._tick)
        self.partitions: OwnedPartitions[Transactions] = OwnedPartitions(
            TRANSACTION_TOPIC, replicas, self, background, clock, options.partitions
        )

    # --- requests

    def init_producer_id(self, request: InitProducerId) -> asyncio.Future[ProducerIdResult]:
        """InitProducerId with a transactional id; the ticket of the request is replaced. The result comes when the epoch is stored."""
        ticket = new_ticket()
        error = init_error(request, self.options.limits)
        if error is not ErrorCode.NONE:
            ticket.set_result(ProducerIdResult(error))
            return ticket
        try:
            index, transactions = self.partitions.find(request.transactional_id)
        except ApiError as problem:
            ticket.set_result(ProducerIdResult(problem.code))
            return ticket
        transactions.init_producer_id(request._replace(ticket=ticket), self.now())
        self._settle(index, transactions, request.transactional_id)
        return ticket

    def add_partitions(self, request: AddPartitions) -> asyncio.Future[ErrorCode]:
        """AddPartitionsToTxn, for one transactional id; the code comes when the partitions are stored."""
        ticket = new_ticket()
        try:
            index, transactions = self._find(request.transactional_id)
        except ApiError as problem:
            ticket.set_result(problem.code)
            return ticket
        transactions.add_partitions(request._replace(ticket=ticket), self.now())
        self._settle(index, transactions, request.transactional_id)
        return ticket

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn that only verifies: a code for each partition."""
        try:
            _, transactions = self._find(transactional_id)
        except ApiError as problem:
            return dict.fromkeys(partitions, problem.code)
        return transactions.verify(transactional_id, producer_id, producer_epoch, partitions)

    def end(self, request: EndTransaction) -> asyncio.Future[ErrorCode]:
        """EndTxn; the code comes when the decision is stored."""
        ticket = new_ticket()
        try:
            index, transactions = self._find(request.transactional_id)
        except ApiError as problem:
            ticket.set_result(problem.code)
            return ticket
        transactions.end(request._replace(ticket=ticket), self.now())
        self._settle(index, transactions, request.transactional_id)
        return ticket

    def describe(self, transactional_id: str) -> Description | ErrorCode:
        """DescribeTransactions, for one transactional id."""
        return self._find(transactional_id)[1].describe(transactional_id)

    def listed(self, states: Collection[TransactionState] | None, producer_ids: Collection[int], longer_than_ms: int) -> list[Listed]:
        """ListTransactions, for all partitions of this broker: see `Transactions.listed`."""
        now = self.now()
        return [row for _, each in self.partitions.loaded() for row in each.listed(now, states, producer_ids, longer_than_ms)]

    def transactions(self) -> Iterator[Transaction]:
        """All transactional ids that this broker coordinates."""
        return (transaction for _, transactions in self.partitions.loaded() for transaction in transactions)

    def now(self) -> Now:
        """The time of an event."""
        return time_of(self._clock)

    async def end_pending(self, partition: TopicPartition, pending: Mapping[int, int]) -> PendingEnds:
        """How the transactions end that are open in the log of a partition whose leader recovers, by producer id and epoch (KIP-704)."""
        ends, answered, pace = [], [], Pace()
        for index, transactions in self.partitions.loaded():
            await pace(1 + len(transactions) // IDS_PER_ENTRY)
            for transactional_id in transactions.ids_of(pending):
                await pace(10)
                transaction = transactions.get(transactional_id)
                epoch = None if transaction is None else pending.get(transaction.stored.producer_id)
                end = None if epoch is None else transactions.end_pending(transactional_id, partition, epoch, self.now())
                if end is not None:
                    ends.append(end)
                self._settle(index, transactions)
            if self.partitions.owns(index, transactions):  # otherwise what it has said may be out of date
                answered.append(index)
        return PendingEnds(tuple(answered), tuple(ends))

    def _find(self, transactional_id: str) -> tuple[int, Transactions]:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        return self.partitions.find(transactional_id)

    # --- time

    async def abort_timed_out(self) -> None:
        """Abort transactions that are open for too long, from time to time, until this is cancelled."""
        while True:
            await self._clock.sleep(self.options.abort_check_ms / 1000)
            for index, transactions in self.partitions.loaded():
                with contained(log, f"the end of transactions after their time-out in {TRANSACTION_TOPIC}-{index}"):
                    transactions.abort_timed_out(self.now())
                    self._settle(index, transactions)

    def time_out(self, transactional_id: str) -> bool:
        """Abort the open transaction of an id as after its time-out; its producer is fenced. Returns whether there is one, and nothing
        about it is being appended. Raises ApiError: another broker coordinates the id."""
        index, transactions = self._find(transactional_id)
        is_aborted = transactions.time_out(transactional_id, self.now())
        self._settle(index, transactions, transactional_id)
        return is_aborted

    async def expire_ids(self) -> None:
        """Delete transactional ids that were not used for long, from time to time, until this is cancelled."""
        while True:
            await self._clock.sleep(self.options.expiry_check_ms / 1000)
            for index, transactions in self.partitions.loaded():
                replica = self._replicas.get(TRANSACTION_TOPIC, index)
                with contained(log, f"the expiry of transactional ids in {TRANSACTION_TOPIC}-{index}"):
                    if replica is not None and replica.log is not None and self.partitions.owns(index, transactions):
                        transactions.expire(self.now(), replica.log.config.rules.max_message_bytes)
                        self._settle(index, transactions)
                await asyncio.sleep(0)

    def close(self) -> None:
        """This broker stops: requests that wait get NOT_COORDINATOR when their appends end."""
        self.partitions.close()

    def _tick(self, index: int) -> None:
        try:
            transactions = self.partitions.get(index)
        except ApiError:
            return
        transactions.tick(self.now())
        self._settle(index, transactions)

    # --- the owner of partitions

    def make(self, index: int) -> Transactions:
        """From `OwnedPartitions`, as the next three. The epoch of the coordinator is that in which this broker became the leader."""
        replica = self._replicas.get(TRANSACTION_TOPIC, index)
        if replica is None:
            return Transactions(self.options.limits, 0)
        return Transactions(self.options.limits, replica.leader_epoch, is_whole=not replica.is_recovering)

    def replay(self, state: Transactions, batches: Buffer) -> int:
        return replay_batches(state, batches)

    def loaded(self, index: int, state: Transactions) -> None:
        state.loaded(self.now())
        self._settle(index, state)

    def unload(self, index: int, state: Transactions) -> None:
        self._timers.set(index, None)
        state.unload()
        self._settle(index, state)
        for effect in () if self._steered is None else self._steered.drop(index):
            match effect:
                case AppendStates():
                    self._settle_append(index, state, effect, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                case NeedProducerId(request):
                    complete(request.ticket, ProducerIdResult(ErrorCode.NOT_COORDINATOR))
                case GiveResult(ticket, result):
                    complete(ticket, result)

    # --- effects

    def _settle(self, index: int, transactions: Transactions, transactional_id: str | None = None) -> None:
        """Do what the transactions of a partition want done, and set the timer for their next deadline.

        `transactional_id` is the only one that may have results to give.
        """
        steering = self._steering
        if steering is not None and (steering.holds or (self._steered is not None and self._steered.is_busy)):
            self._steer(steering, index, transactions, transactional_id)
        while effects := transactions.take_effects():
            self._tell(effects)
            for effect in effects:
                self._do(index, transactions, effect)
        if self.partitions.owns(index, transactions):  # the timer belongs to the state that is loaded now
            self._timers.set(index, transactions.next_deadline_ms)

    def _do(self, index: int, transactions: Transactions, effect: Effect) -> None:
        match effect:
            case GiveResult(ticket, result):
                complete(ticket, result)
            case NeedProducerId(request):
                self._background.start(self._draw_id(index, transactions, request))
            case AppendStates():
                self._append(index, transactions, effect)
            case SendMarkers():
                self.sender.send(effect, partial(self._sent, index, transactions))

    def _steer(
        self, steering: Steering, index: int, transactions: Transactions, transactional_id: str | None,
        appended: AppendStates | None = None, has_begun: bool = False,
    ) -> None:
        """As `_settle`, while somebody steers. `appended` is what is in the log now, `has_begun` whether a transaction began with it."""
        from klamm.server.coordinators.steered_effects import SteeredEffects
        from klamm.server.transactions.phases import TransactionSteps

        if self._steered is None:
            self._steered = SteeredEffects(steering, self._broker_id)
        steps = TransactionSteps(self._broker_id, partial(self._settle_append, index, transactions))
        do, effects = partial(self._do, index, transactions), transactions.take_effects()
        self._tell(effects, appended, has_begun)
        for key, batch in steps.of(effects, transactional_id, appended, has_begun).items():
            if key is not None:
                self._steered.run(index, key, batch, do)
                continue
            for effect in batch:
                do(effect)

    def _tell(self, effects: list[Effect], appended: AppendStates | None = None, has_begun: bool = False) -> None:
        if self.watch is not None:
            from klamm.server.transactions.phases import phases_of

            for phase in phases_of(self._broker_id, effects, appended, has_begun):
                self.watch(phase)

    async def _draw_id(self, index: int, transactions: Transactions, request: InitProducerId) -> None:
        try:
            new_id = await self._producer_ids.next_id()
        except ApiError as problem:
            complete(request.ticket, ProducerIdResult(problem.code))
            return
        transactions.init_producer_id(request, self.now(), new_id)
        self._settle(index, transactions, request.transactional_id)

    def _append(self, index: int, transactions: Transactions, append: AppendStates) -> None:
        now_ms = self._clock.now_ms()
        batch = encode_batch([Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(append.records)])
        appended = self._appends.append(
            TopicPartition(TRANSACTION_TOPIC, index), batch, timeout_ms=append.timeout_ms,
            is_wanted=partial(self.partitions.owns, index, transactions),
        )
        appended.add_done_callback(partial(self._appended, index, transactions, append))

    def _appended(self, index: int, transactions: Transactions, append: AppendStates, appended: asyncio.Future[AppendResult]) -> None:
        error, _ = outcome_of(appended, TopicPartition(TRANSACTION_TOPIC, index))
        self._settle_append(index, transactions, append, error)

    def _settle_append(self, index: int, transactions: Transactions, append: AppendStates, error: ErrorCode) -> None:
        steering = self._steering
        is_steered = steering is not None and (steering.holds or (self._steered is not None and self._steered.is_busy))
        if self.watch is None and not is_steered:
            transactions.appended(append, error, self.now())
            self._settle(index, transactions)
            return
        from klamm.server.transactions.phases import id_of

        transactional_id = id_of(append)
        before = None if transactional_id is None else transactions.get(transactional_id)
        has_begun = isinstance(append.token, AddAppended) and before is not None and before.state is not ONGOING
        transactions.appended(append, error, self.now())
        appended = append if error is ErrorCode.NONE else None
        if steering is not None and is_steered:
            self._steer(steering, index, transactions, transactional_id, appended, has_begun)
        else:
            self._tell([], appended, has_begun)
        self._settle(index, transactions, transactional_id)

    def _sent(self, index: int, transactions: Transactions, sent: SendMarkers, results: Mapping[TopicPartition, ErrorCode]) -> None:
        transactions.markers_sent(sent, results, self.now())
        self._settle(index, transactions, sent.transactional_id)
