"""Clients of the data: confluent-kafka producers and consumers, one-shot and running, that keep account of every record.

A record is its text, `PREFIX-NUMBER`, sent once by one producer. Acknowledged is what the delivery report said of it; a record is lost
when it was acknowledged and is in no log afterwards, duplicated when it is there more than once.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from klamm.tests.harness.kafka import WITHIN_S, wait_for

CONNECTIONS = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
}
"""What librdkafka says when a broker's connection is gone: it connects again by itself."""


_LOG: dict[str, Any] = {"logger": logging.getLogger("librdkafka")}


def is_retriable(error: KafkaError) -> bool:
    """Whether a client mends this by itself."""
    return error.retriable() or error.code() in CONNECTIONS


def text_of(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()


def produce(bootstrap: str, topic: str, texts: Iterable[str], *, idempotent: bool = True) -> None:
    """Write records with acks=all, each once if idempotent; returns when all are acknowledged."""
    failed: list[KafkaError] = []
    producer = Producer({**_LOG, "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": idempotent})
    for text in texts:
        producer.produce(topic, text.encode(), on_delivery=lambda error, _: failed.append(error) if error is not None else None)
        producer.poll(0)
    left = producer.flush(WITHIN_S)
    assert left == 0 and not failed, (left, failed)


def read_all(bootstrap: str, topic: str) -> collections.Counter[str]:
    """Every record that a topic's logs hold below the high watermark, without any group."""
    config = {**_LOG, "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(config)
    found: collections.Counter[str] = collections.Counter()
    try:
        open_ones = set(consumer.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in open_ones])
        end = time.monotonic() + WITHIN_S
        while open_ones:
            assert time.monotonic() < end, f"partitions {open_ones} of {topic} cannot be read to their end"
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    found[text_of(message)] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(message.partition())
                else:
                    assert is_retriable(error), error
    finally:
        consumer.close()
    return found


def read_by_group(bootstrap: str, topic: str, group: str, count: int) -> collections.Counter[str]:
    """Read as a consumer group until `count` records came, and commit."""
    config = {**_LOG, "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    found: collections.Counter[str] = collections.Counter()
    try:
        consumer.subscribe([topic])
        end = time.monotonic() + WITHIN_S
        while found.total() < count:
            assert time.monotonic() < end, f"group {group} read {found.total()} of {count} records of {topic}"
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                found[text_of(message)] += 1
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


class RunningProducer:
    """Writes small records with acks=all until it is stopped; keeps what was acknowledged and every error it was told of."""

    def __init__(self, bootstrap: str, topic: str, prefix: str, pause_s: float, **config: Any) -> None:
        self.topic, self.prefix, self.pause_s = topic, prefix, pause_s
        self.acknowledged: list[str] = []
        self.failed: list[tuple[str, KafkaError]] = []
        self.errors: list[KafkaError] = []
        self._sent = 0
        self._producer = Producer(
            {**_LOG, "bootstrap.servers": bootstrap, "acks": "all", "error_cb": self.errors.append, "linger.ms": 5, **config}
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=prefix)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            text = f"{self.prefix}-{self._sent}"
            try:
                self._producer.produce(self.topic, text.encode(), on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
                continue
            self._sent += 1
            self._producer.poll(self.pause_s)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        text = text_of(message)
        if error is None:
            self.acknowledged.append(text)
        else:
            self.failed.append((text, error))

    def goes_on(self, records: int = 20) -> None:
        """Wait until it had some more records acknowledged, sent from now on."""
        mark, before = self._sent, len(self.acknowledged)
        names = {f"{self.prefix}-{mark + n}" for n in range(records)}
        wait_for(lambda: names <= set(self.acknowledged[before:]), f"{self.prefix} goes on from {mark}", 2 * WITHIN_S)

    def end(self) -> None:
        """Send no more."""
        self._end.set()
        self._thread.join()

    def stop(self) -> None:
        """Send no more, wait for the reports of all that was sent."""
        self.end()
        assert self._producer.flush(2 * WITHIN_S) == 0


class RunningConsumer:
    """Reads as the member of a group until it is stopped, committing as it goes."""

    def __init__(self, bootstrap: str, topics: Sequence[str], group: str) -> None:
        self.seen: collections.Counter[str] = collections.Counter()
        self.errors: list[KafkaError] = []
        config = {
            **_LOG,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "error_cb": self.errors.append,
        }
        self._consumer = Consumer(config)
        self._consumer.subscribe(list(topics))
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=group)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                for message in self._consumer.consume(500, timeout=0.1):
                    error = message.error()
                    if error is None:
                        self.seen[text_of(message)] += 1
                    else:
                        self.errors.append(error)
            except KafkaException as problem:
                self.errors.append(problem.args[0])

    def stop(self) -> None:
        """Leave the group. A second call does nothing."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
            self._consumer.close()
