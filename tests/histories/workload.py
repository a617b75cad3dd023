"""Producers and a reader of confluent-kafka (librdkafka) that go on while a cluster has trouble, and keep what came of every record.

Each has a thread of its own. Producers have acks=all, idempotent or not; those that are not keep one request in flight to a broker.
The reader is assigned all partitions, without a group, and reads what is committed while it is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from klamm.tests.harness.waits import wait_for
from klamm.tests.histories.history import KeyedSent, Sent

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

    def start(self) -> Self:
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
            sent = self._new_sent(f"{self.name}.{len(self.sent)}")
            self.sent.append(sent)
            self._live(sent)

    def _new_sent(self, name: str) -> Sent:
        return Sent(name, self.partitions, self.idempotent)

    def _record(self, sent: Sent, number: int) -> tuple[bytes | None, bytes | None]:
        """Key and value."""
        return None, padded(sent.value(number), self.record_bytes)

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
            key, value = self._record(sent, number)
            producer.produce(self.topic, value, key, partition=sent.partition(number), on_delivery=told)
        except BufferError:
            return False
        except KafkaException as refused:
            self.fatal.append(str(refused))
            failed.set()
            return False
        sent.count += 1
        return True


class KeyedProducing(Producing):
    """A producer of records with keys, one in five a tombstone; idempotent, so that a key's records stay in order."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str, keys: int) -> None:
        super().__init__(bootstrap, topic, partitions, name, idempotent=True)
        self.keys = keys

    def _new_sent(self, name: str) -> KeyedSent:
        return KeyedSent(name, self.partitions, idempotent=True, keys=self.keys)

    def _record(self, sent: Sent, number: int) -> tuple[bytes | None, bytes | None]:
        assert isinstance(sent, KeyedSent)
        key, value = sent.record(number)
        return key.encode(), None if value is None else value.encode()

    def keyed(self) -> list[KeyedSent]:
        """What was sent, by each producer id."""
        return [sent for sent in self.sent if isinstance(sent, KeyedSent)]


def reader(bootstrap: str, topic: str, partitions: int, **more: object) -> Consumer:
    """A consumer without a group's protocol that begins at the start of all partitions. `more` with underscores for dots."""
    settings = {**SOON, "bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
    settings |= {name.replace("_", "."): value for name, value in more.items()}
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
    logs: dict[int, list[tuple[int, str]]] = {partition: [] for partition in range(partitions)}
    for message in _to_the_end(bootstrap, topic, partitions, within_s):
        keep(logs, message)
    return logs


def last_values(bootstrap: str, topic: str, partitions: int, within_s: float = 120) -> tuple[dict[str, str | None], int]:
    """The last value of each key of a compacted topic whose producers have ended, None after a tombstone; and how many records it has."""
    last: dict[str, str | None] = {}
    count = 0
    for message in _to_the_end(bootstrap, topic, partitions, within_s):
        key, value = message.key(), message.value()
        assert key is not None
        last[bytes(key).decode()] = None if value is None else bytes(value).decode()
        count += 1
    return last, count


def log_starts(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """Log start offsets by partition."""
    consumer = reader(bootstrap, topic, partitions)
    try:
        return {p: _marks(consumer, topic, p)[0] for p in range(partitions)}
    finally:
        consumer.close()


def _to_the_end(bootstrap: str, topic: str, partitions: int, within_s: float) -> Iterator[Message]:
    """Every record from the start to the present high watermark. The last offsets of a compacted log may have no record."""
    consumer = reader(bootstrap, topic, partitions, enable_partition_eof=True)
    try:
        ends = {p: _marks(consumer, topic, p)[1] for p in range(partitions)}
        until = time.monotonic() + within_s
        while ends:
            assert time.monotonic() < until, f"not read to the ends {ends}"
            for message in consumer.consume(1000, POLL_S):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None and offset is not None
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF and offset >= ends.get(partition, offset + 1):
                    del ends[partition]
    finally:
        consumer.close()


def _marks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Log start offset and high watermark, once a leader can be asked."""

    def look() -> tuple[int, int] | None:
        try:
            marks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
        except KafkaException:
            return None
        return None if marks is None else (int(marks[0]), int(marks[1]))

    return wait_for(look, f"the ends of {topic}-{partition}", 60)
