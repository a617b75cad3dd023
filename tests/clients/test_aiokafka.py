"""aiokafka's clients, which speak older versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from klamm.tests.clients.served import Served
from klamm.tests.harness.waits import eventually_asked


@pytest.fixture
async def admin(served: Served) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=served.bootstrap, request_timeout_ms=20_000)
    await client.start()
    yield client
    await client.close()


async def test_metadata_and_describe_cluster(admin: AIOKafkaAdminClient, served: Served) -> None:
    cluster = await admin.describe_cluster()
    assert {b["node_id"]: b["port"] for b in cluster["brokers"]} == served.ports
    assert cluster["controller_id"] == served.controller


async def test_create_describe_grow_delete(admin: AIOKafkaAdminClient, served: Served) -> None:
    name = served.topic()
    answer = await admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=3)])
    assert [(t, code) for t, code, _ in answer.topic_errors] == [(name, 0)]

    async def described(count: int) -> Any:
        (topic,) = await admin.describe_topics([name])
        return topic["partitions"] if topic["error_code"] == 0 and len(topic["partitions"]) == count else None

    for p in await eventually_asked(lambda: described(2), "the topic in the metadata"):
        state = served.tree.state(name, p["partition"])
        assert state is not None and (state.leader, state.isr) == (p["leader"], p["isr"])
        assert p["replicas"] == served.tree.assignment(name)[p["partition"]]
    answer = await admin.create_partitions({name: NewPartitions(4)})
    assert [code for _, code, _ in answer.topic_errors] == [0]
    await eventually_asked(lambda: described(4), "four partitions")
    answer = await admin.delete_topics([name])
    assert list(answer.topic_error_codes) == [(name, 0)]

    async def listed() -> bool:
        return name not in await admin.list_topics()

    await eventually_asked(listed, "the topic is gone")


async def test_explicit_assignments(admin: AIOKafkaAdminClient, served: Served) -> None:
    name = served.topic()
    answer = await admin.create_topics([NewTopic(name, -1, -1, replica_assignments={0: [3, 1], 1: [2, 1]})])
    assert answer.topic_errors[0][1] == 0
    assert served.tree.assignment(name) == {0: [3, 1], 1: [2, 1]}


async def test_refusals(admin: AIOKafkaAdminClient, served: Served) -> None:
    name = served.topic()
    await admin.create_topics([NewTopic(name, 1, 1)])
    for topic, error in (
        (NewTopic(name, 1, 1), "TopicAlreadyExistsError"),
        (NewTopic("x/y", 1, 1), "InvalidTopicError"),
        (NewTopic("too-many", 1, 4), "InvalidReplicationFactorError"),
        (NewTopic("none", 0, 1), "InvalidPartitionsError"),
    ):
        answer = await admin.create_topics([topic])
        assert for_code(answer.topic_errors[0][1]).__name__ == error


async def test_configs(admin: AIOKafkaAdminClient, served: Served) -> None:
    name = served.topic()
    await admin.create_topics([NewTopic(name, 1, 1)])

    async def described() -> dict[str, str]:
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        return {entry[0]: entry[1] for entry in answer.resources[0][4]}

    assert (await described())["retention.ms"] == "604800000"
    (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "5000"})])
    assert answer.resources[0][0] == 0

    async def changed() -> bool:
        return (await described())["retention.ms"] == "5000"

    await eventually_asked(changed, "the changed config")


async def test_what_was_written_is_read(admin: AIOKafkaAdminClient, served: Served) -> None:
    name = served.topic()
    await admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=3)])
    wanted = {b"%d" % n for n in range(30)}
    async with AIOKafkaProducer(bootstrap_servers=served.bootstrap, acks="all", enable_idempotence=True) as producer:
        for sent in [await producer.send(name, value, partition=int(value) % 3) for value in sorted(wanted)]:
            await sent
    found: set[bytes | None] = set()
    async with AIOKafkaConsumer(bootstrap_servers=served.bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(name, p) for p in range(3)])
        while found != wanted:
            record = await consumer.getone()
            assert record.value in wanted - found
            found.add(record.value)
