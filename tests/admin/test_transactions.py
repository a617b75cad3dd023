"""Calls for transactions and producers against brokers that are processes: Klamm's, and a real Kafka's (slow). The same test for both."""

from __future__ import annotations

import time
from collections.abc import Iterator

import kafka.errors
import pytest
from confluent_kafka import KafkaException, Producer

from klamm.admin import (
    AdminClient,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionDescription,
    TransactionState,
)
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.names import unique_name


@pytest.fixture
def admin(members: Members) -> Iterator[AdminClient]:
    with AdminClient(members.bootstrap(), request_timeout_ms=30_000) as one:
        yield one


@pytest.fixture
def topic(members: Members) -> str:
    name = unique_name("t")
    members.create(name, [[1], [2]])
    return name


def begun(members: Members, topic: str, transactional_id: str) -> Producer:
    """A producer with an open transaction that has a record in partition 0."""
    producer = Producer(
        {"bootstrap.servers": members.bootstrap(), "transactional.id": transactional_id, "transaction.timeout.ms": 50_000, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"record", partition=0)
    producer.flush(30)
    return producer


def test_an_open_transaction_is_listed_described_and_committed(members: Members, admin: AdminClient, topic: str) -> None:
    name, zero, one = unique_name("tx"), TopicPartition(topic, 0), TopicPartition(topic, 1)
    before_ms = int(time.time() * 1000) - 60_000
    producer = begun(members, topic, name)
    outcome = admin.describe_transactions([name, "no-such-id"])
    found = outcome[name]
    assert found.start_ms is not None and found.start_ms > before_ms
    assert found == TransactionDescription(
        name, TransactionState.ONGOING, found.producer_id, 0, 50_000, found.start_ms, (zero,), found.coordinator
    )
    assert {key: error.code for key, error in outcome.errors.items()} == {"no-such-id": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
    listed = admin.list_transactions(["Ongoing"], [found.producer_id]).all()
    assert list(listed.values()) == [(name, found.producer_id, TransactionState.ONGOING, found.coordinator)]
    assert name in admin.list_transactions(min_duration_ms=0).all()
    for others in (
        admin.list_transactions(["Empty"]), admin.list_transactions(producer_ids=[2**40]), admin.list_transactions(min_duration_ms=10**9),
    ):
        assert name not in others.all()
    active = admin.describe_producers([zero, one, (topic, 9)])
    ((producer_id, epoch, sequence, _, coordinator_epoch, start),) = active[zero]
    assert (producer_id, epoch, sequence, coordinator_epoch, start) == (found.producer_id, 0, 0, None, 0)
    assert active[one] == ()
    assert {key: error.code for key, error in active.errors.items()} == {(topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    producer.commit_transaction(30)
    wait_for(lambda: admin.describe_transactions([name])[name].state is TransactionState.COMPLETE_COMMIT, "the transaction is complete")
    assert admin.describe_transactions([name])[name].partitions == ()
    ((_, _, _, _, coordinator_epoch, start),) = admin.describe_producers([zero])[zero]
    assert (coordinator_epoch is not None, start) == (True, None)


def test_producers_are_fenced_and_their_transaction_is_aborted(members: Members, admin: AdminClient, topic: str) -> None:
    name, other, zero = unique_name("tx"), unique_name("tx"), TopicPartition(topic, 0)
    producer = begun(members, topic, name)
    former = admin.describe_transactions([name])[name]
    fenced = admin.fence_producers([name, other]).all()
    assert fenced[name] == ProducerIdAndEpoch(former.producer_id, 2)  # one epoch for the abort, one for the new producer
    assert fenced[other].producer_epoch == 0
    after = admin.describe_transactions([name, other]).all()
    assert [each.state for each in after.values()] == [TransactionState.EMPTY] * 2
    assert [each.transaction_start_offset for each in admin.describe_producers([zero])[zero]] == [None]
    with pytest.raises(KafkaException, match="fenced"):
        producer.commit_transaction(30)


def test_a_transaction_is_aborted_in_one_partition_by_its_producer_id_and_epoch(members: Members, admin: AdminClient, topic: str) -> None:
    zero, name = TopicPartition(topic, 0), unique_name("tx")
    begun(members, topic, name)
    ((producer_id, epoch, *_),) = admin.describe_producers([zero])[zero]
    admin.abort_transaction(zero, producer_id, epoch, 0)
    ((_, _, _, _, coordinator_epoch, start),) = admin.describe_producers([zero])[zero]
    assert (coordinator_epoch, start) == (0, None)
    assert admin.describe_transactions([name])[name].state is TransactionState.ONGOING
    with pytest.raises(kafka.errors.TransactionCoordinatorFencedError):
        admin.abort_transaction(zero, producer_id, epoch, -1)
    admin.fence_producers([name]).all()
    with pytest.raises(kafka.errors.InvalidProducerEpochError):
        admin.abort_transaction(zero, producer_id, epoch, 0)
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.abort_transaction((topic, 9), producer_id, epoch, 0)
