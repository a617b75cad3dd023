"""Producers and a reader of confluent-kafka (librdkafka) that go on while a cluster has trouble, and keep what came of every record.

Each has a thread of its own. Producers have acks=all, idempotent or not; those that are not keep one request in flight to a broker.
The reader is assigned all partitions, without a group, and reads what is committed while it is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from klamm.tests.harness.waits import wait_for
from klamm.tests.histories.history import Sent

FLUSH_S = 60.0
POLL_S = 0.1
SOON = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 5000, "log_level": 0}
"""A client that finds a new leader soon, and says nothing."""
QUIET_S = 0.02
"""Between two batches of a producer."""


class Producing:
    """A producer in a thread; `sent` is what came of it, one entry for each producer id it was given."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, name: str, *, idempotent: bool, batch: int = 10, record_bytes: int = 0
    ) -> None:
        """`record_bytes` is how long a record's value is at least."""
        self.record_bytes = record_bytes
        self.topic, self.partitions, self.name, self.idempotent, self.batch = topic, partitions, name, idempotent, batch
        self._settings: dict[str, object] = {
            **SOON,
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": idempotent,
            "message.timeout.ms": 600_000,
            "batch.size": 250_000,  # fits into the smallest segments of these tests, also after a pause
            "linger.ms": 5,
            "socket.timeout.ms": 10_000,
            "retry.backoff.ms": 50,
        }
        if not idempotent:
            self._settings["max.in.flight.requests.per.connection"] = 1
        self.sent: list[Sent] = []
        self.fatal: list[str] = []
        """Errors after which librdkafka refuses to go on with a producer id."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Producing:
        self._thread.start()
        return self

    def finish(self) -> None:
        """Send no more, and wait until all has come to an end."""
        self._stopped.set()
        self._thread.join(FLUSH_S + 30)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    @property
    def acknowledged(self) -> int:
        return sum(len(sent.offsets) for sent in self.sent)

    def _run(self) -> None:
        while not self._stopped.is_set():
            sent = Sent(f"{self.name}.{len(self.sent)}", self.partitions, self.idempotent)
            self.sent.append(sent)
            self._live(sent)

    def _live(self, sent: Sent) -> None:
        """As long as one producer goes on."""
        producer = Producer(self._settings)
        failed = threading.Event()
        while not self._stopped.is_set() and not failed.is_set():
            for _ in range(self.batch):
                if not self._send(producer, sent, failed):
                    break
            producer.poll(0)
            self._stopped.wait(QUIET_S)
        producer.flush(FLUSH_S)

    def _send(self, producer: Producer, sent: Sent, failed: threading.Event) -> bool:
        number = sent.count

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                sent.offsets[number] = -1 if offset is None else offset
                return
            sent.errors[number] = error.name()
            if error.fatal():
                self.fatal.append(str(error))
                failed.set()

        try:
            producer.produce(self.topic, padded(sent.value(number), self.record_bytes), partition=sent.partition(number), on_delivery=told)
        except BufferError:
            return False
        except KafkaException as refused:
            self.fatal.append(str(refused))
            failed.set()
            return False
        sent.count += 1
        return True


def reader(bootstrap: str, topic: str, partitions: int) -> Consumer:
    """A consumer without a group's protocol that begins at the start of all partitions."""
    settings = {**SOON, "bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({**settings, "check.crcs": True, "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    return consumer


class Reading:
    """A reader in a thread; `logs` is what it got, by partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.logs: dict[int, list[tuple[int, str]]] = {partition: [] for partition in range(partitions)}
        self.errors: list[str] = []
        self._settings = (bootstrap, topic, partitions)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> Reading:
        self._thread.start()
        return self

    def finish(self) -> None:
        self._stopped.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the reader does not end"

    def _run(self) -> None:
        consumer = reader(*self._settings)
        while not self._stopped.is_set():
            self._keep(consumer.consume(500, POLL_S))
        consumer.close()

    def _keep(self, messages: Sequence[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                self.errors.append(error.name())
            else:
                keep(self.logs, message)


def keep(logs: dict[int, list[tuple[int, str]]], message: Message) -> None:
    value, partition, offset = message.value(), message.partition(), message.offset()
    assert value is not None and partition is not None and offset is not None
    logs[partition].append((offset, bytes(value).decode().rstrip()))


def padded(value: str, size: int) -> bytes:
    """The value with spaces behind it, `size` bytes at least; `keep` takes them off."""
    return value.encode().ljust(size)


def fill(bootstrap: str, topic: str, partitions: int, name: str, records: int, record_bytes: int) -> Sent:
    """Write so many records as fast as they are acknowledged by all replicas; every one is."""
    sent = Sent(name, partitions, idempotent=True)
    settings = {**SOON, "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 20, "batch.size": 100_000}
    producer = Producer(settings)

    def told(number: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        sent.offsets[number] = -1 if offset is None else offset

    for number in range(records):
        value = padded(sent.value(number), record_bytes)
        while True:
            try:
                producer.produce(topic, value, partition=sent.partition(number), on_delivery=partial(told, number))
                break
            except BufferError:
                producer.poll(0.1)
        sent.count += 1
        producer.poll(0)
    assert producer.flush(FLUSH_S) == 0
    assert len(sent.offsets) == records
    return sent


def read_all(bootstrap: str, topic: str, partitions: int, within_s: float = 120) -> dict[int, list[tuple[int, str]]]:
    """All records of a topic whose producers have ended, from the start to the high watermark."""
    consumer = reader(bootstrap, topic, partitions)
    try:
        ends = {p: wait_for(lambda p=p: _end(consumer, topic, p), f"the end of {topic}-{p}", 60)[0] for p in range(partitions)}  # type: ignore[misc]
        logs: dict[int, list[tuple[int, str]]] = {partition: [] for partition in range(partitions)}
        until = time.monotonic() + within_s
        while any((logs[p][-1][0] + 1 if logs[p] else 0) < end for p, end in ends.items()):
            assert time.monotonic() < until, f"read {[len(log) for log in logs.values()]} of {ends}"
            for message in consumer.consume(1000, POLL_S):
                if message.error() is None:
                    keep(logs, message)
        return logs
    finally:
        consumer.close()


def _end(consumer: Consumer, topic: str, partition: int) -> tuple[int] | None:
    """The high watermark, None while no leader can be asked."""
    try:
        marks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
    except KafkaException:
        return None
    return None if marks is None else (int(marks[1]),)
