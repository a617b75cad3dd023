"""Consumer groups and transactions work with one broker and with two, although Kafka's defaults ask for three replicas."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Consumer, Producer

from klamm.server.local.arguments import SeedTopic, with_internal_topics
from klamm.server.local.cluster import LocalCluster


@pytest.mark.parametrize(
    ("brokers", "given", "expected"),
    [
        (1, {}, ("1", "1", "1")),
        (2, {}, ("2", "2", None)),
        (3, {}, (None, None, None)),
        (1, {"transaction.state.log.min.isr": "2", "offsets.topic.replication.factor": "3"}, ("3", "1", "2")),
    ],
)
def test_internal_topics_have_at_most_as_many_replicas_as_there_are_brokers(
    brokers: int, given: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    names = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr")
    properties = with_internal_topics({"other": "x", **given}, brokers)
    assert (properties.pop("other"), tuple(properties.get(name) for name in names)) == ("x", expected)
    assert with_internal_topics(None, 3) == {}


@pytest.mark.parametrize("brokers", [1, 2])
async def test_a_group_reads_what_a_transaction_wrote(zookeeper: str, chroot: str, brokers: int) -> None:
    config = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    cluster = LocalCluster(brokers, zookeeper=zookeeper + chroot, config=config, topics=[SeedTopic("t", 1, 1)])
    await cluster.start()
    try:
        assert await asyncio.to_thread(_exchange, cluster.bootstrap_servers) == b"record"
    finally:
        await cluster.stop()


def _exchange(servers: str) -> bytes | None:
    """Write a record in a transaction, and read it in a group."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "writer"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"record")
    producer.commit_transaction(30)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        read = consumer.poll(30)
        return None if read is None else read.value()
    finally:
        consumer.close()
