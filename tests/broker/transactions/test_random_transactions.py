"""Random lives of transactional ids: what producers do, what fails, and a coordinator that moves, from a seed."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from klamm.broker.coordinators.effects import AppendRecords
from klamm.broker.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdResult,
    TransactionLimits,
)
from klamm.broker.transactions.states import CAN_EXPIRE, COMPLETE, ONGOING
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.tests.broker.transactions.transaction_driver import TransactionDriver

LIMITS = TransactionLimits(max_timeout_ms=5_000, expiration_ms=60_000)
STEPS = 200
IDS = ("a", "b", "c")
PARTITIONS = tuple(TopicPartition("t", index) for index in range(4))
NOT_APPENDED = (E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER)
Producer = tuple[str, int, int]


class RandomProducers:
    """Producers that know what they were told, and a record of what each transaction should come to.

    `opened` are the partitions that a producer has been told are in its transaction; `outcomes` how a client was told that it ended.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.driver = TransactionDriver(LIMITS)
        self.producers: dict[str, list[Producer]] = {each: [] for each in IDS}
        self.waiting: dict[object, InitProducerId | AddPartitions | EndTransaction] = {}
        self.given: set[tuple[int, int]] = set()
        self.opened: dict[tuple[int, int], set[TopicPartition]] = defaultdict(set)
        self.outcomes: dict[tuple[int, int], list[tuple[bool, frozenset[TopicPartition]]]] = defaultdict(list)
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []

    def step(self) -> None:
        self.driver.holds = self.random.random() < 0.3
        action = self.random.choice((
            self.init, self.add, self.add, self.add, self.end, self.end, self.continues, self.wait, self.release, self.release, self.fail,
            self.scan,
        ))
        action(self.random.choice(IDS))
        self.learn()

    def _producer(self, transactional_id: str) -> Producer | None:
        """Mostly the latest producer of an id, at times a former one."""
        known = self.producers[transactional_id]
        if not known:
            return None
        return known[-1] if self.random.random() < 0.8 else self.random.choice(known)

    def init(self, transactional_id: str) -> None:
        self._init(transactional_id, -1, -1)

    def continues(self, transactional_id: str) -> None:
        producer = self._producer(transactional_id)
        if producer is not None:
            self._init(*producer)

    def _init(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        ticket = self.driver.ticket()
        timeout_ms = self.random.choice((200, 5_000))
        request = InitProducerId(ticket, transactional_id, timeout_ms, producer_id, epoch)
        self.waiting[ticket] = request
        self.driver.transactions.init_producer_id(request, self.driver.now)
        self.driver.settle()

    def add(self, transactional_id: str) -> None:
        producer = self._producer(transactional_id)
        if producer is not None:
            ticket = self.driver.ticket()
            partitions = tuple(self.random.sample(PARTITIONS, self.random.randint(1, 3)))
            request = AddPartitions(ticket, *producer, partitions)
            self.waiting[ticket] = request
            self.driver.transactions.add_partitions(request, self.driver.now)
            self.driver.settle()

    def end(self, transactional_id: str) -> None:
        producer = self._producer(transactional_id)
        if producer is not None:
            ticket = self.driver.ticket()
            request = EndTransaction(ticket, *producer, self.random.random() < 0.6)
            self.waiting[ticket] = request
            self.driver.transactions.end(request, self.driver.now)
            self.driver.settle()

    def wait(self, transactional_id: str) -> None:
        self.driver.advance(self.random.choice((1, 90, 250)))

    def release(self, transactional_id: str) -> None:
        if self.random.random() < 0.5:
            self.random.shuffle(self.driver.held)
        self.driver.release(*([self.random.choice(NOT_APPENDED)] if self.random.random() < 0.2 else []))

    def fail(self, transactional_id: str) -> None:
        if self.random.random() < 0.5:
            self.driver.errors = [self.random.choice(NOT_APPENDED)]
        else:
            self.driver.marker_errors = {self.random.choice(PARTITIONS): [E.NOT_LEADER_OR_FOLLOWER] * self.random.randint(1, 3)}

    def scan(self, transactional_id: str) -> None:
        self.driver.abort_timed_out()
        self.driver.expire()

    def learn(self) -> None:
        """Producers take what they are told; no producer gets what another one has."""
        for ticket in [each for each in self.waiting if each in self.driver.results]:
            request, result = self.waiting.pop(ticket), self.driver.results[ticket]
            match request, result:
                case InitProducerId(), ProducerIdResult(E.NONE, producer_id, epoch):
                    is_repeated = request.producer_id != -1 and (request.transactional_id, producer_id, epoch) in self.producers[
                        request.transactional_id
                    ]
                    assert is_repeated or (producer_id, epoch) not in self.given, "two producers have one epoch"
                    self.given.add((producer_id, epoch))
                    self.producers[request.transactional_id].append((request.transactional_id, producer_id, epoch))
                    self.opened[producer_id, epoch].clear()
                case AddPartitions(_, _, producer_id, epoch, partitions), E.NONE:
                    self.opened[producer_id, epoch] |= set(partitions)
                case EndTransaction(_, _, producer_id, epoch, is_commit), E.NONE if self.opened[producer_id, epoch]:
                    self.outcomes[producer_id, epoch].append((is_commit, frozenset(self.opened[producer_id, epoch])))
                    self.opened[producer_id, epoch].clear()

    def moves(self) -> None:
        """Another coordinator takes over; who waits is told. What was held is lost: an append is in the log or not."""
        former = self.driver
        for held in former.held:
            if isinstance(held, AppendRecords) and self.random.random() < 0.5:
                former.log += [(key, value, len(former.log)) for key, value in held.records]
        former.transactions.unload(former.now)
        former.errors = []
        log, former.log = list(former.log), []
        former.release()
        former.log = log
        self.markers += former.markers
        self.learn()
        assert not self.waiting
        for producer in self.opened.values():
            producer.clear()  # whether the last partitions or an end counted is not known to the client
        self.driver = former.reloaded()

    def finish(self) -> None:
        """Everything that waits is answered, every decision gets its markers, and the log says what memory has.

        A coordinator that cannot append because it does not lead any more does nothing more, so a next one comes first.
        """
        self.driver.holds, self.driver.errors, self.driver.marker_errors = False, [], {}
        self.moves()
        driver = self.driver
        driver.settle()
        for _ in range(20):
            driver.advance(1_000)
            driver.abort_timed_out()
        self.learn()
        self.markers += driver.markers
        assert not self.waiting
        assert driver.transactions.next_deadline_ms is None
        for transaction in driver.transactions:
            assert transaction.pending is None
            assert transaction.state in CAN_EXPIRE
        loaded = driver.reloaded()
        loaded.settle()
        stored = {each.transactional_id: each.stored for each in driver.transactions if each.producer_epoch >= 0}
        assert stored == {each.transactional_id: each.stored for each in loaded.transactions}

    def check_markers(self) -> None:
        """A client that was told of a commit finds a commit marker in each of its partitions, as often as it was told."""
        written: dict[tuple[int, int, bool], list[TopicPartition]] = defaultdict(list)
        for partition, producer_id, epoch, is_commit in self.markers:
            written[producer_id, epoch, is_commit].append(partition)
        for (producer_id, epoch), outcomes in self.outcomes.items():
            for is_commit in (True, False):
                for partition in PARTITIONS:
                    told = sum(partition in partitions for ended, partitions in outcomes if ended is is_commit)
                    assert written[producer_id, epoch, is_commit].count(partition) >= told


@pytest.mark.parametrize("seed", range(80))
def test_every_request_is_answered_once_every_decision_is_marked_and_the_log_has_what_memory_has(seed: int) -> None:
    producers = RandomProducers(seed)
    for step in range(STEPS):
        producers.step()
        if step % 50 == 49 and seed % 2:
            producers.moves()
    producers.finish()
    producers.check_markers()


def test_random_lives_reach_what_they_are_to_test() -> None:
    """Without this, a change of the drawing could leave the checks without anything to check."""
    commits = aborts = repeated = open_ones = 0
    for seed in range(10):
        producers = RandomProducers(seed)
        for _ in range(STEPS):
            producers.step()
            open_ones += any(each.state is ONGOING or each.state in COMPLETE for each in producers.driver.transactions)
        outcomes = [is_commit for each in producers.outcomes.values() for is_commit, _ in each]
        commits += sum(outcomes)
        aborts += len(outcomes) - sum(outcomes)
        repeated += len({each for known in producers.producers.values() for each in known}) < sum(map(len, producers.producers.values()))
    assert min(commits, aborts, repeated, open_ones) > 0
