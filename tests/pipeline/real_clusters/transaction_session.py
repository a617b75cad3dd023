"""Producers of librdkafka with transactions: committed and aborted ones, with offsets of a group, fenced and too slow; and a consumer that
reads what is committed."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from klamm.tests.harness.kafka import WITHIN_S, wait_for

SETTINGS: dict[str, Any] = {"logger": logging.getLogger("librdkafka")}
GROUP = "copiers"


def _producer(bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
    options = SETTINGS | {
        "bootstrap.servers": bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms,
    }
    producer = Producer(options)
    producer.init_transactions(WITHIN_S)
    return producer


def _send(producer: Producer, topic: str, partitions: int, text: str) -> None:
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(topic, text.encode(), partition=partition)
    producer.flush(WITHIN_S)


def _is_refused(producer: Producer) -> bool:
    try:
        producer.commit_transaction(WITHIN_S)
    except KafkaException:
        return True
    return False


def live_with_transactions(bootstrap: str, topic: str, partitions: int) -> None:
    """Transactions of each outcome in all partitions of a topic that nobody else writes to. Blocks for some seconds."""
    committed = 0
    for transactional_id in ("one", "two", "three"):
        producer = _producer(bootstrap, transactional_id)
        for round_ in range(3):
            _send(producer, topic, partitions, f"{transactional_id}-{round_}")
            if round_ == 1:
                producer.abort_transaction(WITHIN_S)
            else:
                producer.commit_transaction(WITHIN_S)
                committed += partitions
    options = SETTINGS | {
        "bootstrap.servers": bootstrap, "group.id": GROUP, "isolation.level": "read_committed", "enable.auto.commit": False,
    }
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    read = 0

    def look() -> bool:
        nonlocal read
        message = consumer.poll(0.5)
        read += message is not None and message.error() is None
        return read >= committed

    wait_for(look, f"{committed} records are read", WITHIN_S)
    for offset, is_commit in ((1, True), (2, False), (3, True)):
        _send(producer, topic, 1, "offsets")
        rows = [TopicPartition(topic, each, offset) for each in range(partitions)]
        producer.send_offsets_to_transaction(rows, consumer.consumer_group_metadata(), WITHIN_S)
        (producer.commit_transaction if is_commit else producer.abort_transaction)(WITHIN_S)
        _await_offset(consumer, topic, partitions, offset if is_commit else 1)
    slow = _producer(bootstrap, "fenced")
    _send(slow, topic, partitions, "fenced")
    other = _producer(bootstrap, "fenced")
    assert _is_refused(slow)
    _send(other, topic, partitions, "after the fence")
    other.commit_transaction(WITHIN_S)
    late = _producer(bootstrap, "late", 1_000)
    _send(late, topic, partitions, "late")
    wait_for(lambda: _is_nothing_open(bootstrap, topic, partitions), "the transaction of who is late is aborted", 4 * WITHIN_S)
    again = _producer(bootstrap, "late")
    _send(again, topic, partitions, "after the time-out")
    again.commit_transaction(WITHIN_S)
    consumer.close()


def _await_offset(consumer: Consumer, topic: str, partitions: int, offset: int) -> None:
    """Until the group has committed this offset in all partitions."""

    def look() -> bool:
        rows = consumer.committed([TopicPartition(topic, each) for each in range(partitions)], timeout=WITHIN_S)
        return [each.offset for each in rows] == [offset] * partitions

    wait_for(look, f"offset {offset} is committed", WITHIN_S)


def _is_nothing_open(bootstrap: str, topic: str, partitions: int) -> bool:
    """Whether no transaction is open in any partition: its last stable offset is its end."""
    admin = AdminClient(SETTINGS | {"bootstrap.servers": bootstrap})
    ends = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        wanted = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(partitions)}
        found = admin.list_offsets(wanted, isolation_level=level, request_timeout=WITHIN_S)
        ends.append({row.partition: result.result(WITHIN_S).offset for row, result in found.items()})
    return ends[0] == ends[1]
