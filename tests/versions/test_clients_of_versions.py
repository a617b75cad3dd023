"""Unchanged clients at brokers that are like an older Kafka, or that offer fewer versions of single APIs."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

import klamm
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.testing import BlockingCluster
from klamm.tests.harness.kafka import java_command, request
from klamm.tests.harness.waits import wait_for
from klamm.tests.reference.jars import CLIENTS_OF_2016, TOOL_OF_KIP_183, VERSION, jars
from klamm.tests.reference.releases import exchange, listed

GROUPS = {"offsets.topic.replication.factor": 2, "offsets.topic.num.partitions": 2, "group.initial.rebalance.delay.ms": 0}
RECORDS = [b"%d" % number for number in range(50)]
TOPIC = "orders:1:2"
JAVA = {
    VERSION: ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server"),
    TOOL_OF_KIP_183: ("kafka.tools.ConsoleConsumer", "--broker-list"),
    CLIENTS_OF_2016: ("kafka.tools.ConsoleConsumer", "--broker-list"),
}
"""Version of the Java clients → the class of its console consumer, and the option with which its producer takes the brokers."""


@pytest.fixture(params=["1.0", "2.0", "2.8", "4.4"])
def old(request: pytest.FixtureRequest, zookeeper: str, chroot: str) -> Iterator[BlockingCluster]:
    with klamm.Cluster(2, as_version=request.param, topics=TOPIC, config=GROUPS, zookeeper=zookeeper + chroot) as cluster:
        yield cluster


def port_of(cluster: BlockingCluster) -> int:
    return cluster.addresses[0][2]


def with_kafka_python(bootstrap: str, group: str | None = "kafka-python") -> list[bytes]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for record in RECORDS:
        producer.send("orders", record)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer("orders", bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    read = [next(consumer).value for _ in RECORDS]
    if group is not None:
        consumer.commit()
    consumer.close()
    return read


def with_confluent(bootstrap: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for record in RECORDS:
        producer.produce("orders", record)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert isinstance(value, bytes)
            read.append(value)
        return len(read) == len(RECORDS)

    wait_for(has_all, "all records")
    consumer.commit(asynchronous=False)
    consumer.close()
    return read


def with_aiokafka(bootstrap: str) -> list[bytes]:
    async def run() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            for record in RECORDS:
                await producer.send_and_wait("orders", record)
        async with AIOKafkaConsumer("orders", bootstrap_servers=bootstrap, group_id="aiokafka", auto_offset_reset="earliest") as consumer:
            read = [(await consumer.getone()).value for _ in RECORDS]
            await consumer.commit()
            return read

    return asyncio.run(run())


CLIENTS = {"kafka-python": with_kafka_python, "confluent-kafka": with_confluent, "aiokafka": with_aiokafka}


def test_clients_write_read_and_commit_at_brokers_like_an_older_kafka(old: BlockingCluster) -> None:
    written = 0
    for name, client in CLIENTS.items():
        assert client(old.bootstrap_servers)[: len(RECORDS)] == RECORDS, name
        written += len(RECORDS)
    admin = KafkaAdminClient(bootstrap_servers=old.bootstrap_servers)
    (topic,) = admin.describe_topics(["orders"])
    assert sorted(topic["partitions"][0]["isr_nodes"]) == [1, 2], "the follower has all records"
    admin.create_topics([NewTopic("more", 2, 2)])
    assert "more" in admin.list_topics()
    admin.close()


@pytest.mark.slow
def test_brokers_like_an_older_kafka_go_on_after_their_controller_and_a_leader_were_lost(old: BlockingCluster) -> None:
    left = old.controller_id
    assert left is not None
    old.stop_broker(left)
    other = next(port for number, _, port in old.addresses if number != left)
    assert with_kafka_python(f"127.0.0.1:{other}", group=None) == RECORDS
    old.start_broker(left)

    def both_in_sync() -> bool:
        asked = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name="orders")])
        return sorted(request(other, asked, 1).topics[0].partitions[0].isr_nodes) == [1, 2]

    wait_for(both_in_sync, "the broker is in sync again")


def test_clients_fall_back_to_the_versions_that_are_left_while_followers_keep_theirs(zookeeper: str, chroot: str) -> None:
    ranges = {"Produce": "0-3", "Fetch": "0-4", "Metadata": "1-5", "ApiVersions": "0-2", "OffsetForLeaderEpoch": "none", "ListOffsets": "1"}
    with klamm.Cluster(2, api_versions=ranges, topics=TOPIC, config=GROUPS, zookeeper=zookeeper + chroot) as cluster:
        port = port_of(cluster)
        offered = listed(port)
        assert ApiKey.OFFSET_FOR_LEADER_EPOCH not in offered
        assert [offered[key] for key in (0, 1, 2, 3, 18)] == [(0, 3), (0, 4), (1, 1), (1, 5), (0, 2)]
        for name, client in CLIENTS.items():
            assert client(cluster.bootstrap_servers)[: len(RECORDS)] == RECORDS, name
        asked = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name="orders")])
        wait_for(lambda: sorted(request(port, asked, 1).topics[0].partitions[0].isr_nodes) == [1, 2], "the follower is in sync")
        assert exchange(port, ApiKey.METADATA, 0, messages.encode(messages.MetadataRequest(topics=[]), 0)) is None
        assert exchange(port, ApiKey.FETCH, 5, messages.encode(messages.FetchRequest(), 5)) is None
        unsupported = exchange(port, ApiKey.API_VERSIONS, 3)
        assert unsupported is not None
        response, _ = messages.decode("ApiVersionsResponse", 0, unsupported, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 2)]


@pytest.mark.slow
@pytest.mark.reference
def test_java_clients_of_three_generations_write_and_read_at_brokers_like_an_older_kafka(old: BlockingCluster) -> None:
    for version, (consumer, servers) in JAVA.items():
        topic = f"java-{version}"
        admin = KafkaAdminClient(bootstrap_servers=old.bootstrap_servers)
        admin.create_topics([NewTopic(topic, 1, 2)])
        admin.close()
        write = java_command(jars(version), "kafka.tools.ConsoleProducer", servers, old.bootstrap_servers, "--topic", topic)
        lines = b"\n".join(RECORDS) + b"\n"
        written = subprocess.run(write, input=lines, capture_output=True, timeout=90, check=False)
        assert written.returncode == 0, written.stderr[-2000:]
        words = ("--bootstrap-server", old.bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", str(len(RECORDS)))
        read = subprocess.run(java_command(jars(version), consumer, *words), capture_output=True, timeout=90, check=False)
        assert read.stdout.split() == RECORDS, (version, read.stderr[-2000:])
