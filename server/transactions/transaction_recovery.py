"""The recovery work of a leader that was elected uncleanly: every transaction that is open in its log comes to its end (KIP-704).

The marker of such a transaction may be lost, and nobody would write it again. Readers of committed records would wait for ever. So the
leader asks the coordinators how each one ends (EndPendingTransactions), and writes the markers itself before it serves: what a coordinator
has decided, to commit or to abort; what is ongoing is aborted by the coordinator, which fences the producer. A transaction that no
coordinator knows is aborted. So is what is left when nothing could be ended for `request.timeout.ms`: its coordinator does not respond.

Markers that coordinators send meanwhile are refused with NOT_LEADER_OR_FOLLOWER, as all else, and come again when the leader serves: they
find no open transaction then, so the order is that of the decisions. Nothing is remembered: a recovery that ends in the middle begins again
in the next leader epoch, with what is open in the log then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from klamm.broker.log.log import Log
from klamm.broker.log.producers import OpenTransaction
from klamm.broker.partition import HostedPartition
from klamm.broker.recovery import Recovery
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.transactions.log_records import LOSS
from klamm.broker.transactions.phases import Outcome, PartitionRecovered, PendingTransactionDecided, PendingTransactionEnded
from klamm.broker.transactions.requests import PendingEnd
from klamm.machine.faults import contained
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import ApiError, ErrorCode, received_code
from klamm.protocol.records.record import ControlType, Record, control_batch, encode_batch
from klamm.seams.clock import Clock
from klamm.seams.pace import Pace
from klamm.seams.steering import Steering
from klamm.server.coordinators.broker_links import BrokerLinks
from klamm.server.coordinators.phases import Phases
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC, PendingEnds, TransactionCoordinator

log = logging.getLogger(__name__)

RETRY_S = 0.1
"""Pause before coordinators are asked again."""
_MARKER_COST = 20
"""What a marker counts for `Pace`: fifty of them between two turns of the event loop."""
_VERSION = APIS[ApiKey.PRODUCE].max_version
_NOTHING = PendingEnds((), ())


class _Decided(NamedTuple):
    """How an open transaction ends. `why` is for the log; `transactional_id` is empty if nobody knows it."""

    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transactional_id: str
    why: str


class TransactionRecovery:
    """The recovery work of one broker."""

    def __init__(
        self, replicas: ReplicaManager, coordinator: TransactionCoordinator, links: BrokerLinks, clock: Clock, timeout_s: float,
        steering: Steering | None = None, leaves: bool = False, notes_loss: bool = True,
    ) -> None:
        """`timeout_s` is how long a recovery waits for coordinators while it can end nothing. `steering` holds it at phases. `leaves`:
        transactions stay open, as in Apache Kafka. `notes_loss`: all brokers pass over the record that says what a log has lost."""
        self._leaves = leaves
        self._notes_loss = notes_loss
        self._replicas = replicas
        self._coordinator = coordinator
        self._links = links
        self._clock = clock
        self._timeout_s = timeout_s
        self.phases = Phases(steering, replicas.broker_id)

    async def __call__(self, recovery: Recovery) -> None:
        """End all transactions that are open in the log of a partition. Returns early if this broker does not recover it any more."""
        replica = self._replicas.get(*recovery.partition)
        waits_since = self._clock.monotonic()
        while replica is not None and replica.is_recovering and replica.leader_epoch == recovery.leader_epoch:
            with contained(log, f"the end of transactions of {replica}, which recovers"):
                opened = await self._open(replica)
                pending = [] if opened is None else opened.open_transactions()
                if opened is not None and (self._leaves or not pending):
                    self._note_loss(recovery, replica)
                    opened.flush()
                    await self.phases.reach(PartitionRecovered(*_where(recovery), len(pending)))
                    return
                if opened is not None:
                    await self._end_all(recovery, replica, pending, self._clock.monotonic() - waits_since < self._timeout_s)
                    left = len(opened.open_transactions())
                    if left < len(pending):
                        waits_since = self._clock.monotonic()
                    if not left:
                        continue
            await self._clock.sleep(RETRY_S)

    async def _open(self, replica: HostedPartition) -> Log | None:
        """The log of a partition, None if it cannot be opened or is not complete at the moment."""
        try:
            opened = await self._replicas.open_log(replica)
        except ApiError as error:
            log.info("broker %d: the log of %s, which recovers, cannot be opened: %s", self._replicas.broker_id, replica, error)
            return None
        return None if opened.is_truncating else opened

    async def _end_all(self, recovery: Recovery, replica: HostedPartition, pending: list[OpenTransaction], may_wait: bool) -> None:
        answered, ends = await self._ask(recovery, pending)
        known = {end.producer_id: end for end in ends}
        topic = self._replicas.metadata.topics.get(TRANSACTION_TOPIC)
        is_everybody = topic is None or answered >= topic.partitions.keys()
        pace = Pace()
        for transaction in pending:
            decided = self._decide(transaction, known.get(transaction.producer_id), is_everybody, may_wait)
            if decided is not None:
                await pace(_MARKER_COST)
                await self._end(recovery, replica, transaction, decided)

    def _decide(self, transaction: OpenTransaction, end: PendingEnd | None, is_everybody: bool, may_wait: bool) -> _Decided | None:
        """How a transaction ends; None if that is to be asked again."""
        producer_epoch, coordinator_epoch = transaction.producer_epoch, transaction.coordinator_epoch
        if end is not None and end.error is ErrorCode.NONE:
            coordinator_epoch = max(coordinator_epoch, end.coordinator_epoch)
            why = "as its coordinator has decided" if end.is_commit else "as its coordinator says"
            return _Decided(end.producer_epoch, coordinator_epoch, end.is_commit, end.transactional_id, why)
        if end is None and is_everybody:
            return _Decided(producer_epoch, coordinator_epoch, False, "", "since no coordinator knows it")
        if may_wait:
            return None
        known_as = "" if end is None else end.transactional_id
        why = f"since its coordinator has not decided within {self._timeout_s:g} s"
        return _Decided(producer_epoch, coordinator_epoch, False, known_as, why)

    async def _end(self, recovery: Recovery, replica: HostedPartition, transaction: OpenTransaction, decided: _Decided) -> None:
        outcome: Outcome = "commit" if decided.is_commit else "abort"
        about = *_where(recovery), transaction.producer_id, decided.producer_epoch, decided.transactional_id, outcome
        await self.phases.reach(PendingTransactionDecided(*about))
        kind = ControlType.COMMIT if decided.is_commit else ControlType.ABORT
        now_ms = self._clock.now_ms()
        marker = control_batch(kind, 0, -1, transaction.producer_id, decided.producer_epoch, decided.coordinator_epoch, now_ms)
        leaders = self._replicas.leaders
        leaders.append_while_recovering(replica, recovery.leader_epoch, marker, _VERSION, now_ms)
        leaders.transactions_committed += decided.is_commit
        leaders.transactions_aborted += not decided.is_commit
        log.info(
            "broker %d: %s, which recovers: the transaction of producer %d with epoch %d%s, open since offset %d, is %s, %s",
            recovery.broker_id, replica, transaction.producer_id, transaction.producer_epoch,
            f" ({decided.transactional_id})" if decided.transactional_id else "", transaction.first_offset,
            "committed" if decided.is_commit else "aborted", decided.why,
        )
        await self.phases.reach(PendingTransactionEnded(*about))

    def _note_loss(self, recovery: Recovery, replica: HostedPartition) -> None:
        """Say in a log of coordinators that it may have lost records: later coordinators too must not take it for the whole truth."""
        if self._notes_loss and recovery.partition.topic == TRANSACTION_TOPIC:
            now_ms = self._clock.now_ms()
            batch = encode_batch([Record(0, now_ms, *LOSS)])
            self._replicas.leaders.append_while_recovering(replica, recovery.leader_epoch, batch, _VERSION, now_ms)

    # --- coordinators

    async def _ask(self, recovery: Recovery, pending: list[OpenTransaction]) -> tuple[set[int], list[PendingEnd]]:
        """Ask all coordinators: the partitions of the transaction topic that have answered, and what they say."""
        by_leader: dict[int, set[int]] = {}
        topic = self._replicas.metadata.topics.get(TRANSACTION_TOPIC)
        for index, state in () if topic is None else topic.partitions.items():
            by_leader.setdefault(state.leader, set()).add(index)
        answers = await asyncio.gather(*(self._ask_broker(leader, recovery, pending) for leader in by_leader))
        answered: set[int] = set()
        ends = []
        for indexes, answer in zip(by_leader.values(), answers, strict=True):
            counts = indexes & set(answer.partitions)  # a former coordinator may answer too
            answered |= counts
            ends += [end for end in answer.ends if self._coordinator.partitions.partition_of(end.transactional_id) in counts]
        return answered, ends

    async def _ask_broker(self, broker_id: int, recovery: Recovery, pending: Collection[OpenTransaction]) -> PendingEnds:
        if broker_id == self._replicas.broker_id:
            return await self._coordinator.end_pending(recovery.partition, {each.producer_id: each.producer_epoch for each in pending})
        if not self._links.knows(broker_id):
            return _NOTHING
        response = await self._links.send(broker_id, ApiKey.END_PENDING_TRANSACTIONS, 0, _request(recovery, pending))
        return _NOTHING if response is None else _answer(response)


def _where(recovery: Recovery) -> tuple[int, str, int, int]:
    return recovery.broker_id, *recovery.partition, recovery.leader_epoch


def _request(recovery: Recovery, pending: Iterable[OpenTransaction]) -> messages.EndPendingTransactionsRequest:
    request = messages.EndPendingTransactionsRequest
    return request(
        broker_id=recovery.broker_id, topic_name=recovery.partition.topic, partition_index=recovery.partition.partition,
        leader_epoch=recovery.leader_epoch,
        transactions=[request.PendingTransaction(each.producer_id, each.producer_epoch) for each in pending],
    )


def _answer(response: Any) -> PendingEnds:
    return PendingEnds(
        tuple(response.coordinated_partitions),
        tuple(
            PendingEnd(
                row.transactional_id, row.producer_id, received_code(row.error_code), row.producer_epoch, row.coordinator_epoch,
                row.transaction_result,
            )
            for row in response.transactions
        ),
    )
