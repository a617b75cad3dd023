"""Transactional producers of unchanged clients: what they commit is read, what they abort is not, and offsets belong to the transaction."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AIOTopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.tests.clients.served import Served

WITHIN_S = 30
COPIED = 300


@pytest.fixture(scope="module")
def admin(served: Served) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 3})


def new_topic(admin: AdminClient, served: Served, partitions: int = 3) -> str:
    name = served.topic()
    for future in admin.create_topics([NewTopic(name, partitions, 3)], operation_timeout=WITHIN_S).values():
        future.result(WITHIN_S)
    return name


def producer_of(served: Served, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": served.bootstrap, "transactional.id": transactional_id, "log_level": 3})
    producer.init_transactions(WITHIN_S)
    return producer


def consumer_of(served: Served, group: str, *topics: str, level: str = "read_committed") -> Consumer:
    consumer = Consumer({
        "bootstrap.servers": served.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "isolation.level": level, "log_level": 3, "enable.partition.eof": False,
    })
    consumer.subscribe(list(topics))
    return consumer


def values(served: Served, topic: str, count: int, level: str = "read_committed") -> list[str]:
    """The first values in a topic, sorted."""
    consumer = consumer_of(served, served.topic(), topic, level=level)
    try:
        return sorted(message.value().decode() for message in consume(consumer, count))
    finally:
        consumer.close()


def consume(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), WITHIN_S)
        assert messages, f"only {len(found)} of {count} records came"
        assert not [each.error() for each in messages if each.error()]
        found += messages
    return found


def test_what_is_committed_is_read_and_what_is_aborted_is_not(admin: AdminClient, served: Served) -> None:
    topic = new_topic(admin, served)
    producer = producer_of(served, topic)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        for each in range(30):
            producer.produce(topic, f"{number}-{each:02}".encode(), partition=each % 3)
        producer.flush(WITHIN_S)
        ends(WITHIN_S)
    assert values(served, topic, 60) == sorted(f"{number}-{each:02}" for number in (0, 2) for each in range(30))
    assert len(values(served, topic, 90, "read_uncommitted")) == 90


def test_a_second_producer_fences_the_first_and_its_transaction_is_aborted(admin: AdminClient, served: Served) -> None:
    topic = new_topic(admin, served)
    first = producer_of(served, topic)
    first.begin_transaction()
    first.produce(topic, b"first", partition=0)
    first.flush(WITHIN_S)
    second = producer_of(served, topic)
    with pytest.raises(KafkaException) as failure:
        first.commit_transaction(WITHIN_S)
    assert failure.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"second", partition=0)
    second.commit_transaction(WITHIN_S)
    assert values(served, topic, 1) == ["second"]


@pytest.mark.slow
def test_records_and_offsets_are_copied_exactly_once_although_transactions_are_aborted(admin: AdminClient, served: Served) -> None:
    source, target, group = new_topic(admin, served), new_topic(admin, served), served.topic()
    plain = Producer({"bootstrap.servers": served.bootstrap, "log_level": 3})
    for number in range(COPIED):
        plain.produce(source, f"{number:04}".encode(), partition=number % 3)
    plain.flush(WITHIN_S)
    producer = producer_of(served, group)
    consumer = consumer_of(served, group, source)
    copied = attempts = 0
    while copied < COPIED:
        messages = consumer.consume(25, WITHIN_S)
        assert messages, f"only {copied} records came"
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WITHIN_S)
        attempts += 1
        if attempts % 3 == 2:
            producer.abort_transaction(WITHIN_S)
            for partition in consumer.committed(consumer.assignment(), WITHIN_S):
                consumer.seek(TopicPartition(partition.topic, partition.partition, max(partition.offset, 0)))
        else:
            producer.commit_transaction(WITHIN_S)
            copied += len(messages)
    committed = sum(each.offset for each in consumer.committed(consumer.assignment(), WITHIN_S))
    consumer.close()
    assert (copied, committed) == (COPIED, COPIED)
    assert values(served, target, COPIED) == [f"{number:04}" for number in range(COPIED)]
    assert attempts > copied / 25, "no transaction was aborted"


@pytest.mark.slow
def test_transactions_of_many_producers_do_not_mix(admin: AdminClient, served: Served) -> None:
    topic = new_topic(admin, served)
    failures: list[BaseException] = []

    def produce(name: str) -> None:
        try:
            producer = producer_of(served, f"{topic}-{name}")
            for number in range(8):
                producer.begin_transaction()
                for partition in range(3):
                    producer.produce(topic, json.dumps([name, number]).encode(), partition=partition)
                # without: EndTxn to abort before the commit before it is complete gets INVALID_TXN_STATE, which librdkafka takes as fatal
                producer.flush(WITHIN_S)
                (producer.commit_transaction if number % 2 else producer.abort_transaction)(WITHIN_S)
        except BaseException as failure:  # the test says it
            failures.append(failure)
            raise

    threads = [threading.Thread(target=produce, args=(f"p{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = [json.loads(value) for value in values(served, topic, 6 * 4 * 3)]
    assert sorted(map(tuple, found)) == sorted((f"p{name}", number) for name in range(6) for number in (1, 3, 5, 7) for _ in range(3))


async def test_aiokafka_commits_aborts_and_is_fenced(admin: AdminClient, served: Served) -> None:
    topic = new_topic(admin, served, 1)
    producer = AIOKafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=topic)
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait(topic, b"committed")
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"aborted")
    await producer.abort_transaction()
    async with producer.transaction():
        await producer.send_and_wait(topic, b"with an offset")
        await producer.send_offsets_to_transaction({AIOTopicPartition(topic, 0): 7}, f"group of {topic}")
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=served.bootstrap, group_id=f"group of {topic}", isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False,
    )
    await consumer.start()
    assert await consumer.committed(AIOTopicPartition(topic, 0)) == 7
    await consumer.seek_to_beginning()
    assert [(await consumer.getone()).value for _ in range(2)] == [b"committed", b"with an offset"]
    await consumer.stop()
    other = AIOKafkaProducer(bootstrap_servers=served.bootstrap, transactional_id=topic)
    await other.start()
    with pytest.raises(ProducerFenced):
        async with producer.transaction():
            await producer.send_and_wait(topic, b"fenced")
    await other.stop()
    await producer.stop()
