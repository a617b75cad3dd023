"""Copiers: each reads with a group, and writes what it read and the offsets of it in one transaction. Some transactions are aborted."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from klamm.chaos.clients.client_thread import ClientThread
from klamm.chaos.clients.contact import Contact
from klamm.chaos.clients.members import CLOSE_S, LostOffset, member_settings
from klamm.chaos.clients.producers import SILENT
from klamm.chaos.clients.reading import place_of
from klamm.chaos.histories.transaction_history import Attempt, Outcome, copied

ABORTED = 0.1
"""Of the transactions."""
CALL_S = 10.0
HUNG_S = 60.0
"""A transaction takes no longer, unless the client library hangs: none of its calls takes longer than `CALL_S`."""
TRANSACTION_MS = 20_000
BATCH = 500


class Copier(ClientThread):
    """One copier. `attempts` are its transactions, in order."""

    def __init__(
        self, bootstrap: str, source: str, target: str, partitions: int, group: str, name: str, seed: int, reset: LostOffset
    ) -> None:
        """`partitions` is the number of the target's partitions, `seed` chooses which transactions are aborted. The group has committed
        offsets of all partitions of the source; `reset` is called if a copier loses its offset.
        """
        super().__init__(name)
        self._reset = reset
        self.attempts: list[Attempt] = []
        self.assignments = 0
        self.errors: list[str] = []
        self._source, self._target, self._partitions = source, target, partitions
        self._chance = random.Random(seed)
        self._contact = Contact()
        self._reading = member_settings(bootstrap, f"{name}-in", group)
        self._reading |= {"isolation.level": "read_committed", **self._contact.callbacks}
        self._writing: dict[str, object] = {
            **SILENT, "bootstrap.servers": bootstrap, "client.id": f"{name}-out", "transactional.id": name, "linger.ms": 5,
            "transaction.timeout.ms": TRANSACTION_MS, "message.timeout.ms": TRANSACTION_MS, "socket.timeout.ms": 10_000,
            "retry.backoff.ms": 50,
        }
        self._begun_s = time.monotonic()

    @property
    def hangs(self) -> bool:
        """Whether a call of librdkafka does not return: `send_offsets_to_transaction` may never do if its coordinator dies meanwhile."""
        return self.works and time.monotonic() - self._begun_s > HUNG_S

    def leave(self) -> bool:
        """End after the present transaction. Returns whether it has ended: librdkafka may hang."""
        return self.ends(CLOSE_S + 3 * CALL_S)

    def _work(self) -> None:
        while not self._stopped.is_set():
            self._contact.begun()
            consumer = Consumer(self._reading)
            consumer.subscribe([self._source], on_assign=self._assigned)
            try:
                producer = Producer(self._writing)
                goes_on = self._begin(producer)
                while goes_on and not self._stopped.is_set():
                    goes_on = self._copy(consumer, producer) and not self._contact.is_lost_for_good
            except KafkaException as failure:
                self.errors.append(failure.args[0].name())
            finally:
                consumer.close()

    def _begin(self, producer: Producer) -> bool:
        """InitProducerId, again as long as it may succeed. Returns whether it did. Raises KafkaException."""
        until = time.monotonic() + HUNG_S
        while not self._stopped.is_set() and time.monotonic() < until:
            self._begun_s = time.monotonic()
            try:
                producer.init_transactions(CALL_S)
            except KafkaException as failure:
                self.errors.append(failure.args[0].name())
                if not failure.args[0].retriable():
                    raise
            else:
                return True
        return False

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += bool(partitions)

    def _copy(self, consumer: Consumer, producer: Producer) -> bool:
        """One transaction. Returns whether this copier can go on; otherwise it needs a new producer and a new consumer."""
        self._begun_s = time.monotonic()
        messages = []
        for message in consumer.consume(BATCH, 0.2):
            error = message.error()
            if error is None:
                self._contact.made()
                messages.append(message)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                partition = message.partition()
                self._reset(f"{self.name}-in", -1 if partition is None else partition, error.str())
                return False
        if not messages:
            return True
        number = len(self.attempts)
        attempt = Attempt(f"{self.name}.{number}", [])
        self.attempts.append(attempt)
        try:
            producer.begin_transaction()
            self._write(producer, messages, attempt)
            producer.send_offsets_to_transaction(_behind(self._source, messages), consumer.consumer_group_metadata(), CALL_S)
            if self._chance.random() < ABORTED:
                attempt.outcome = Outcome.UNCOMMITTED
                producer.abort_transaction(CALL_S)
                attempt.outcome = Outcome.ABORTED
                _rewind(consumer, self._source, messages)
                return True
            self._commit(producer, attempt)
        except KafkaException as failure:
            return self._failed(producer, attempt, failure)
        return True

    def _write(self, producer: Producer, messages: Sequence[Message], attempt: Attempt) -> None:
        for message in messages:
            partition, offset, value = place_of(message)
            attempt.inputs.append((partition, offset))
            text = copied(value, partition, offset, attempt.name)
            while True:
                try:
                    producer.produce(self._target, text.encode(), partition=partition % self._partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)

    def _commit(self, producer: Producer, attempt: Attempt) -> None:
        """Commit, again as long as nobody knows whether it happened. Raises KafkaException."""
        attempt.outcome = Outcome.UNKNOWN
        while True:
            self._begun_s = time.monotonic()
            try:
                producer.commit_transaction(CALL_S)
            except KafkaException as failure:
                self.errors.append(failure.args[0].name())
                if not failure.args[0].retriable() or self._stopped.is_set():
                    raise
            else:
                attempt.outcome = Outcome.COMMITTED
                return

    def _failed(self, producer: Producer, attempt: Attempt, failure: KafkaException) -> bool:
        """Abort what can be aborted; the copier begins again at the committed offsets."""
        error = failure.args[0]
        self.errors.append(error.name())
        if attempt.outcome is Outcome.OPEN:
            attempt.outcome = Outcome.UNCOMMITTED
        if error.txn_requires_abort():
            try:
                producer.abort_transaction(CALL_S)
                attempt.outcome = Outcome.ABORTED
            except KafkaException as second:
                self.errors.append(second.args[0].name())
        return False


def _behind(topic: str, messages: Sequence[Message]) -> list[TopicPartition]:
    """The offsets behind these records."""
    ends: dict[int, int] = {}
    for message in messages:
        partition, offset, _ = place_of(message)
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return [TopicPartition(topic, partition, offset) for partition, offset in ends.items()]


def _rewind(consumer: Consumer, topic: str, messages: Sequence[Message]) -> None:
    """Let the consumer read these records again. Raises KafkaException if it does not have a partition any more."""
    starts: dict[int, int] = {}
    for message in messages:
        partition, offset, _ = place_of(message)
        starts[partition] = min(starts.get(partition, offset), offset)
    for partition, offset in starts.items():
        consumer.seek(TopicPartition(topic, partition, offset))
