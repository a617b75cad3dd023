"""Random histories of transactions and unclean elections, from a seed, on a broker without a network.

Producers, the coordinator, logs, markers and recoveries are real. An unclean election is that of a replica that has not fetched everything:
the log loses its end. The coordinator moves and loads again, cannot be reached for a while, or is elected uncleanly itself; recoveries are
held at their phases, and end there because the leader is elected again.

What must hold: readers of committed records see none of a transaction that is not committed, at any time; and at the end, when time has
passed, all can be read. Neither holds for transactions that were there when the coordinator itself lost its newest records: they may be
committed with an earlier decision, and one that nobody knows any more is open until the next recovery of its partition.
 Run many: python -m klamm.tests.server.recoveries.recovery_histories --seeds 3000
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from klamm.broker.transactions.phases import PendingTransactionDecided, PendingTransactionEnded, TransactionEndPrepared
from klamm.broker.transactions.requests import AddPartitions, EndTransaction, InitProducerId
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.record import ControlType, read_control, read_records
from klamm.seams.steering import Steering
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC
from klamm.tests.server.recoveries.recovering_broker import TRANSACTIONS, RecoveringBroker
from klamm.tests.server.transactions.transaction_broker import LEADERS, OWN

IDS = ("a", "b")
GROUPS = TopicPartition(OFFSETS_TOPIC, 0)
PARTITIONS = (OWN, GROUPS)
STEPS = 150
TIMEOUT_MS = 20_000
END_S = 120.0
"""Longer than a time-out, a recovery without coordinators, and the pauses of both."""


@dataclass(eq=False)
class _Transaction:
    """One transaction, as its producer has begun it. `outcomes` are the decisions that a coordinator has stored."""

    number: int
    outcomes: set[str] = field(default_factory=set)


@dataclass(eq=False)
class _Producer:
    producer_id: int
    epoch: int
    transaction: _Transaction | None = None
    added: set[TopicPartition] = field(default_factory=set)
    sequences: Counter[TopicPartition] = field(default_factory=Counter)


class History:
    """One history. `counts` says what has happened in it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.steering = Steering()
        self.broker = RecoveringBroker(steering=self.steering)
        self.producers: dict[str, _Producer] = {}
        self.transactions: dict[int, _Transaction] = {}
        self.open: dict[tuple[int, int], _Transaction] = {}
        """The newest transaction of a producer id and an epoch."""
        self.epochs: Counter[TopicPartition] = Counter()
        self.counts: Counter[str] = Counter()
        self.is_whole = True
        """Whether the log of the coordinator has lost nothing."""
        self.log: deque[str] = deque(maxlen=60)

    async def play(self) -> None:
        """Play it to its end. Raises AssertionError."""
        broker = self.broker
        await broker.start()
        broker.coordinator.phases.watch = broker.parts.recovery.phases.watch = self._told
        broker.background.start(broker.coordinator.abort_timed_out())
        self._publish(True)
        for partition in (*PARTITIONS, TRANSACTIONS):
            await self._lead(partition)
        for _ in range(STEPS):
            step = self.random.choice(self._steps())
            self.log.append(step.__name__)
            await step()
            await self._confirm()
            self._look()
        await self._end()

    async def close(self) -> None:
        self.steering.release()
        await self.broker.close()

    def _steps(self) -> list[Callable[[], Any]]:
        of_clients = [self.init, *[self.add] * 4, *[self.produce] * 8, *[self.end] * 4]
        of_cluster = [*[self.elect] * 6, *[self.hold] * 3, self.move, self.move, self.hide, self.lose, self.mode]
        return [*of_clients * 4, *of_cluster, *[self.wait] * 3]

    # --- producers

    async def init(self) -> None:
        name = self.random.choice(IDS)
        result = await self._wait_for(self.broker.coordinator.init_producer_id(InitProducerId(None, name, TIMEOUT_MS)))
        if result is not None and result.error is E.NONE:
            self.producers[name] = _Producer(result.producer_id, result.producer_epoch)
            self.counts["producers"] += 1

    def _producer(self) -> tuple[str, _Producer] | None:
        return self.random.choice(list(self.producers.items())) if self.producers else None

    async def add(self) -> None:
        chosen = self._producer()
        if chosen is None:
            return
        name, producer = chosen
        partition = self.random.choice(PARTITIONS)
        request = AddPartitions(None, name, producer.producer_id, producer.epoch, (partition,))
        if await self._wait_for(self.broker.coordinator.add_partitions(request)) is E.NONE:
            if producer.transaction is None:
                producer.transaction = _Transaction(len(self.transactions))
                self.transactions[producer.transaction.number] = producer.transaction
                self.open[producer.producer_id, producer.epoch] = producer.transaction
                self.counts["transactions"] += 1
            producer.added.add(partition)

    async def produce(self) -> None:
        chosen = self._producer()
        if chosen is None or chosen[1].transaction is None or not chosen[1].added:
            return
        name, producer = chosen
        partition = self.random.choice(sorted(producer.added))
        key = producer.producer_id, producer.epoch
        log = self.broker.recoveries.replica(partition).log
        if log is None or not log.is_in_transaction(producer.producer_id):
            # as KIP-890: the coordinator is asked before the first record
            codes = self.broker.coordinator.verify(name, *key, [partition])
            if codes[partition] is not E.NONE or not self.is_reachable:
                return
        value = str(chosen[1].transaction.number).encode() if chosen[1].transaction else b""
        try:
            await self.broker.produce(*key, producer.sequences[partition], partition, value)
        except ApiError as error:
            self.counts[error.code.name] += 1
            return
        producer.sequences[partition] += 1
        self.counts["records"] += 1

    async def end(self) -> None:
        chosen = self._producer()
        if chosen is None or chosen[1].transaction is None:
            return
        name, producer = chosen
        request = EndTransaction(None, name, producer.producer_id, producer.epoch, self.random.random() < 0.5)
        code = await self._wait_for(self.broker.coordinator.end(request))
        if code is E.NONE:
            producer.transaction = None
            producer.added.clear()
            self.counts["ends"] += 1
        elif code in (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_TXN_STATE):
            del self.producers[name]
            self.counts["fenced"] += 1

    async def _wait_for(self, waiting: asyncio.Future[Any]) -> Any:
        await self.broker.settle()
        return waiting.result() if waiting.done() else None

    def _told(self, phase: Any) -> None:
        match phase:
            case TransactionEndPrepared(producer_id=producer_id, producer_epoch=epoch, outcome=outcome):
                for begun in (epoch, epoch - 1) if outcome == "abort" else (epoch,):
                    transaction = self.open.get((producer_id, begun))
                    if transaction is not None and not transaction.outcomes:
                        transaction.outcomes.add(outcome)
                        break
            case PendingTransactionEnded(outcome=outcome, transactional_id=name):
                self.counts[f"{outcome} in a recovery{'' if name else ', by the leader'}"] += 1

    # --- the cluster

    is_reachable = True

    def _publish(self, is_reachable: bool) -> None:
        self.is_reachable = is_reachable
        leaders = LEADERS | dict.fromkeys(PARTITIONS, 1) | {TRANSACTIONS: 1 if is_reachable else -1}
        self.broker.publish(leaders)

    async def _lead(self, partition: TopicPartition, leader: int = 1, recovery: int = 0) -> None:
        self.epochs[partition] += 1
        self.broker.lead(partition.partition, leader, self.epochs[partition], partition.topic, recovery)
        await self.broker.settle()

    async def wait(self) -> None:
        await self.broker.advance(self.random.choice((0.05, 0.2, 1.0, 5.0, 15.0)))

    async def elect(self) -> None:
        """A replica without the newest records is elected."""
        written = [each for each in PARTITIONS if (log := self.broker.recoveries.replica(each).log) is not None and log.log_end_offset]
        partition = self.random.choice(written or PARTITIONS)
        await self._lose_end(partition)
        await self._lead(partition, recovery=1)
        self.counts["unclean elections"] += 1

    async def _lose_end(self, partition: TopicPartition) -> None:
        replica = self.broker.recoveries.replica(partition)
        if self.random.random() < 0.2:
            await self._lead(partition, leader=2)
        if replica.log is None or self.random.random() < 0.2:
            return
        keeps = max(0, replica.log.log_end_offset - self.random.choice((1, 2, 3, 5, 100)))
        markers = [header.base_offset for _, header in each_header(self.broker.data(partition.partition, partition.topic))
                   if header.is_control]
        if markers and self.random.random() < 0.7:  # the end without which a transaction is open
            keeps = self.random.choice(markers[-4:])
        cut = replica.log.truncate_to(keeps)
        if cut is not None:
            await cut

    async def move(self) -> None:
        """The coordinator moves away, and is back; perhaps after an unclean election, after which nothing of the past is known."""
        await self._lead(TRANSACTIONS, leader=2)
        if self.random.random() < 0.5:
            await self.wait()
        await self._lead(TRANSACTIONS, recovery=0 if self.is_whole else 1)
        self.counts["moves"] += 1

    async def lose(self) -> None:
        """The coordinator is elected uncleanly. Later loads are told so too: a later coordinator cannot know it (ADR 29)."""
        if self.random.random() < 0.7:
            return
        self.is_whole = False
        for transaction in self.transactions.values():
            transaction.outcomes.add("lost")  # an earlier decision may be sent again, and end a later transaction
        await self._lead(TRANSACTIONS, leader=2)
        replica = self.broker.recoveries.replica(TRANSACTIONS)
        if replica.log is not None:
            cut = replica.log.truncate_to(max(0, replica.log.log_end_offset - self.random.choice((1, 2, 3, 6))))
            if cut is not None:
                await cut
        await self._lead(TRANSACTIONS, recovery=1)
        self.counts["unclean elections of the coordinator"] += 1

    async def hide(self) -> None:
        """The coordinator is not found for a while, or found again."""
        self._publish(not self.is_reachable or self.random.random() < 0.3)

    async def hold(self) -> None:
        """The next recovery is held at a phase; held ones end there, as their leader is elected again, or go on."""
        if not self.steering.holds:
            self.steering.hold(self.random.choice((PendingTransactionDecided, PendingTransactionEnded)), nth=self.random.choice((1, 1, 2)))
            return
        for held in self.steering.held_phases:
            if self.random.random() < 0.5:
                partition = TopicPartition(held.phase.topic, held.phase.partition)
                await self._lose_end(partition)
                await self._lead(partition, recovery=1)
                self.counts["recoveries that ended at a phase"] += 1
        self.steering.release()
        await self.broker.settle()

    async def mode(self) -> None:
        self.broker.recoveries.process.set_mode(self.random.choice(("instant", "instant", "instant", "manual", "delay:3000")))
        await self.broker.settle()

    async def _confirm(self) -> None:
        """The controller confirms recoveries, mostly at once."""
        recoveries = self.broker.recoveries
        if self.random.random() < 0.8:
            while recoveries.proposals:
                proposal = recoveries.proposals.pop(0)
                leaders = self.broker.replicas.leaders
                leaders.isr_altered(proposal, proposal.leader_epoch, proposal.partition_epoch, proposal.isr, proposal.recovery)
            await self.broker.settle()

    # --- what must hold

    def _look(self) -> None:
        """Whoever reads committed records now sees only those of committed transactions."""
        for partition in PARTITIONS:
            replica = self.broker.recoveries.replica(partition)
            if replica.log is None or replica.is_recovering or not replica.is_leader:
                continue
            for number in committed(self.broker.data(partition.partition, partition.topic), replica.log.last_stable_offset):
                transaction = self.transactions[number]
                self.counts["committed records seen"] += 1
                assert transaction.outcomes & {"commit", "lost"}, f"{partition}: transaction {number} is {transaction.outcomes}"

    async def _end(self) -> None:
        """Time passes: all transactions end, and everything can be read."""
        self.steering.release()
        self.broker.recoveries.process.set_mode("instant")
        self._publish(True)
        self.producers.clear()
        for _ in range(int(END_S)):
            await self.broker.advance(1)
            while self.broker.recoveries.proposals:
                await self._confirm()
        for partition in () if self.is_whole else PARTITIONS:  # what the coordinator has lost is open until the next recovery
            await self._lead(partition, recovery=1)
        while self.broker.recoveries.proposals:
            await self._confirm()
        self._look()
        for partition in PARTITIONS:
            replica = self.broker.recoveries.replica(partition)
            if not replica.is_leader or replica.log is None:
                continue
            assert not replica.is_recovering, f"{partition} is recovering"
            assert replica.log.open_transactions() == [], f"{partition}: {replica.log.open_transactions()}"
            assert replica.log.last_stable_offset == replica.log.high_watermark == replica.log.log_end_offset, str(partition)


def committed(data: bytes, last_stable_offset: int) -> list[int]:
    """The numbers of the transactions whose records a reader of committed records gets."""
    waiting: dict[int, list[int]] = {}
    seen: list[int] = []
    for position, header in each_header(data):
        if header.is_control:
            (control,) = read_records(data, header, position)
            records = waiting.pop(header.producer_id, [])
            seen += records if read_control(control)[0] is ControlType.COMMIT else []
        elif header.base_offset < last_stable_offset:
            numbers = [int(record.value) for record in read_records(data, header, position) if record.value]
            waiting.setdefault(header.producer_id, []).extend(numbers)
    assert not any(waiting.values()), "records below the last stable offset are of an open transaction"
    return seen


async def play(seed: int) -> Counter[str]:
    """Play one history; what has happened. Raises AssertionError, with the last steps."""
    history = History(seed)
    try:
        await history.play()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{' '.join(history.log)}") from error
    finally:
        await history.close()
    return history.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    total: Counter[str] = Counter()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            total += asyncio.run(play(seed))
        except AssertionError as error:
            failed += 1
            print(error, flush=True)
    print(f"{options.seeds} histories, {failed} failed")
    print("\n".join(f"  {count:8} {what}" for what, count in total.most_common()))


if __name__ == "__main__":
    main()
