"""The coordinator of the transactional ids whose partition of the transaction topic this broker leads (Apache Kafka's
`TransactionCoordinator`).

`broker/transactions/` decides; `CoordinatorRuntime` does what it wants done. Here producer ids are drawn, and markers are sent to the
leaders of the transaction's partitions.

A request whose result may come later gets a future. `describe` raises ApiError if this broker cannot serve the id:
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR. The others have the code in their result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.transactions.log_replay import replay_batches
from klamm.broker.transactions.requests import (
    AddPartitions,
    Description,
    EndTransaction,
    InitProducerId,
    Listed,
    NeedProducerId,
    OwnEffect,
    PendingEnd,
    ProducerIdResult,
    SendMarkers,
    TransactionLimits,
)
from klamm.broker.transactions.states import TransactionState
from klamm.broker.transactions.transaction import Transaction
from klamm.broker.transactions.transactions import Transactions, init_error
from klamm.configs.broker_config import BrokerConfig
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import Buffer
from klamm.seams.clock import Clock
from klamm.seams.pace import Pace
from klamm.seams.steering import Steering
from klamm.server.coordinators.coordinator_runtime import CoordinatorRuntime
from klamm.server.coordinators.tickets import complete, new_ticket
from klamm.server.ground.background import BackgroundTasks
from klamm.server.transactions.marker_sender import MarkerSender
from klamm.server.transactions.producer_ids import ProducerIds

R = TypeVar("R")

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


class TransactionCoordinator(CoordinatorRuntime[Transactions, OwnEffect]):
    """All transactional ids that one broker coordinates."""

    def __init__(
        self, options: TransactionOptions, replicas: ReplicaManager, producer_ids: ProducerIds, sender: MarkerSender,
        background: BackgroundTasks, clock: Clock, steering: Steering | None = None,
    ) -> None:
        """`steering` holds transactional ids at phases."""
        super().__init__(TRANSACTION_TOPIC, options.partitions, replicas, background, clock, options.request_timeout_ms, steering)
        self.options = options
        self.sender = sender
        self._producer_ids = producer_ids

    # --- requests

    def init_producer_id(self, request: InitProducerId) -> asyncio.Future[ProducerIdResult]:
        """InitProducerId with a transactional id; the ticket of the request is replaced. The result comes when the epoch is stored."""
        ticket = new_ticket()
        error = init_error(request, self.options.limits)
        if error is not ErrorCode.NONE:
            ticket.set_result(ProducerIdResult(error))
            return ticket
        try:
            self._ask(request.transactional_id, lambda ids: ids.init_producer_id(request._replace(ticket=ticket), self.now()))
        except ApiError as problem:
            ticket.set_result(ProducerIdResult(problem.code))
        return ticket

    def add_partitions(self, request: AddPartitions) -> asyncio.Future[ErrorCode]:
        """AddPartitionsToTxn, for one transactional id; the code comes when the partitions are stored."""
        ticket = new_ticket()
        try:
            self._ask(request.transactional_id, lambda ids: ids.add_partitions(request._replace(ticket=ticket), self.now()))
        except ApiError as problem:
            ticket.set_result(problem.code)
        return ticket

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn that only verifies: a code for each partition."""
        try:
            return self._ask(transactional_id, lambda ids: ids.verify(transactional_id, producer_id, producer_epoch, partitions))
        except ApiError as problem:
            return dict.fromkeys(partitions, problem.code)

    def end(self, request: EndTransaction) -> asyncio.Future[ErrorCode]:
        """EndTxn; the code comes when the decision is stored."""
        ticket = new_ticket()
        try:
            self._ask(request.transactional_id, lambda ids: ids.end(request._replace(ticket=ticket), self.now()))
        except ApiError as problem:
            ticket.set_result(problem.code)
        return ticket

    def end_and_raise(self, request: EndTransaction) -> asyncio.Future[ProducerIdResult]:
        """EndTxn of transactions v2: the same, with the producer id and the epoch of the next transaction."""
        ticket = new_ticket()
        try:
            self._ask(request.transactional_id, lambda ids: ids.end(request._replace(ticket=ticket, raises_epoch=True), self.now()))
        except ApiError as problem:
            ticket.set_result(ProducerIdResult(problem.code))
        return ticket

    def describe(self, transactional_id: str) -> Description | ErrorCode:
        """DescribeTransactions, for one transactional id."""
        return self._ask(transactional_id, lambda ids: ids.describe(transactional_id))

    def listed(self, states: Collection[TransactionState] | None, producer_ids: Collection[int], longer_than_ms: int) -> list[Listed]:
        """ListTransactions, for all partitions of this broker: see `Transactions.listed`."""
        now = self.now()
        return [row for each in self.machines() for row in each.listed(now, states, producer_ids, longer_than_ms)]

    def transactions(self) -> Iterator[Transaction]:
        """All transactional ids that this broker coordinates."""
        return (transaction for transactions in self.machines() for transaction in transactions)

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
                self.settle(index, transactions)
            if self.partitions.owns(index, transactions):  # otherwise what it has said may be out of date
                answered.append(index)
        return PendingEnds(tuple(answered), tuple(ends))

    def _ask(self, transactional_id: str, decide: Callable[[Transactions], R]) -> R:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        return self.ask(transactional_id, decide)

    # --- time

    async def abort_timed_out(self) -> None:
        """Abort transactions that are open for too long, from time to time, until this is cancelled."""
        what = "the end of transactions after their time-out"
        await self.each(self.options.abort_check_ms, what, lambda _, ids: ids.abort_timed_out(self.now()))

    def time_out(self, transactional_id: str) -> bool:
        """Abort the open transaction of an id as after its time-out; its producer is fenced. Returns whether there is one, and nothing
        about it is being appended. Raises ApiError: another broker coordinates the id."""
        return self._ask(transactional_id, lambda ids: ids.time_out(transactional_id, self.now()))

    async def expire_ids(self) -> None:
        """Delete transactional ids that were not used for long, from time to time, until this is cancelled."""
        await self.each(self.options.expiry_check_ms, "the expiry of transactional ids", self._expire)

    def _expire(self, index: int, transactions: Transactions) -> None:
        replica = self._replicas.get(TRANSACTION_TOPIC, index)
        if replica is not None and replica.log is not None:
            transactions.expire(self.now(), replica.log.config.rules.max_message_bytes)

    # --- for the runtime

    def make(self, index: int) -> Transactions:
        """The epoch of the coordinator is that in which this broker became the leader."""
        limits, replica = self.options.limits, self._replicas.get(TRANSACTION_TOPIC, index)
        if replica is None:
            return Transactions(limits, self.phases.broker_id, 0)
        return Transactions(limits, self.phases.broker_id, replica.leader_epoch, is_whole=not replica.is_recovering)

    def replay(self, state: Transactions, batches: Buffer) -> int:
        return replay_batches(state, batches)

    def do(self, index: int, state: Transactions, effect: OwnEffect) -> None:
        is_owned = self.partitions.owns(index, state)
        match effect:
            case NeedProducerId(request) if is_owned:
                self._background.start(self._draw_id(index, state, request))
            case NeedProducerId(request):
                complete(request.ticket, ProducerIdResult(ErrorCode.NOT_COORDINATOR))
            case SendMarkers() if is_owned:  # else the next coordinator sends them
                self.sender.send(effect, partial(self._sent, index, state))

    async def _draw_id(self, index: int, transactions: Transactions, request: InitProducerId | EndTransaction) -> None:
        try:
            new_id = await self._producer_ids.next_id()
        except ApiError as problem:
            complete(request.ticket, ProducerIdResult(problem.code))
        except asyncio.CancelledError:  # this broker stops
            complete(request.ticket, ProducerIdResult(ErrorCode.NOT_COORDINATOR))
            raise
        except Exception:
            complete(request.ticket, ProducerIdResult(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        else:
            transactions.use_producer_id(request, self.now(), new_id)
            self.settle(index, transactions)

    def _sent(self, index: int, transactions: Transactions, sent: SendMarkers, results: Mapping[TopicPartition, ErrorCode]) -> None:
        transactions.markers_sent(sent, results, self.now())
        self.settle(index, transactions)
