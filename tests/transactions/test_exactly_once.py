"""A copy with transactions loses and doubles nothing while brokers are killed and copiers crash."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import klamm
from klamm.server.local.library import BlockingCluster
from klamm.tests.harness.waits import wait_for

PARTITIONS = 4
RECORDS = 6_000
AT_ONCE = 200
WITHIN_S = 300.0
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "1500",
    "min.insync.replicas": "2",
}


@pytest.fixture
def cluster() -> Iterator[BlockingCluster]:
    with klamm.Cluster(brokers=3, config=CONFIG, topics=[f"in:{PARTITIONS}:3", f"out:{PARTITIONS}:3"]) as cluster:
        yield cluster


def fill(cluster: BlockingCluster) -> None:
    """Write the numbers from 0 up into `in`."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("in", key=str(number), value=str(number), partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


class Copier(threading.Thread):
    """Copies `in` to `out` in transactions. After any error it crashes: a new consumer and a new producer with the same ids take over."""

    def __init__(self, cluster: BlockingCluster) -> None:
        super().__init__(daemon=True)
        self._servers = cluster.bootstrap_servers
        self.over = threading.Event()
        self.lives = 0
        self.transactions = 0
        self.last_error: object = None

    def run(self) -> None:
        while not self.over.is_set():
            self.lives += 1
            try:
                self._live()
            except KafkaException as error:
                self.last_error = error

    def _live(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers, "group.id": "copy", "enable.auto.commit": False, "auto.offset.reset": "earliest",
                "isolation.level": "read_committed", "session.timeout.ms": 6000,
            }
        )
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": "copier", "transaction.timeout.ms": 10_000})
        try:
            producer.init_transactions(60)
            consumer.subscribe(["in"])
            while not self.over.is_set():
                self._copy(consumer, producer)
        finally:
            consumer.close()

    def _copy(self, consumer: Consumer, producer: Producer) -> None:
        messages = [message for message in consumer.consume(AT_ONCE, 0.5) if message.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", key=message.key(), value=message.value(), partition=message.partition() or 0)
        positions = [position for position in consumer.position(consumer.assignment()) if position.offset >= 0]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 20)
        if self.transactions % 7 == 6:
            producer.flush(20)
            self.transactions += 1
            raise KafkaException("this copier crashes in its transaction")
        producer.commit_transaction(20)
        self.transactions += 1


class Reader:
    """Reads what is committed in `out`."""

    def __init__(self, cluster: BlockingCluster) -> None:
        self.copies: Counter[int] = Counter()
        self._consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "isolation.level": "read_committed",
             "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition("out", partition, 0) for partition in range(PARTITIONS)])

    def read(self) -> int:
        """Read what has come; how many different numbers there are."""
        while messages := self._consumer.consume(1000, 0.2):
            self.copies.update(int(message.value() or b"") for message in messages if message.error() is None)
        return len(self.copies)

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.slow
def test_every_record_is_copied_once_while_brokers_are_killed_and_copiers_crash(cluster: BlockingCluster) -> None:
    fill(cluster)
    copier, reader = Copier(cluster), Reader(cluster)
    kills = 0

    def kill_brokers() -> None:
        nonlocal kills
        for broker_id in itertools.cycle((1, 2, 3)):
            if copier.over.wait(3):
                return
            cluster.kill_broker(broker_id)
            kills += 1
            copier.over.wait(1)
            cluster.start_broker(broker_id)

    killer = threading.Thread(target=kill_brokers, daemon=True)
    copier.start()
    killer.start()
    try:
        wait_for(lambda: reader.read() == RECORDS, "all records are copied", WITHIN_S)
    finally:
        copier.over.set()
        killer.join(60)
        copier.join(60)
    reader.read()
    reader.close()
    assert set(reader.copies.values()) == {1}
    assert len(reader.copies) == RECORDS
    assert copier.lives > 3
    assert kills > 0
