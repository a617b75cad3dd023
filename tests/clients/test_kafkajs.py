"""kafkajs, on Node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.tests.clients.served import Served

WITHIN_S = 30


def test_admin_client(served: Served, node_script: Callable[..., list[dict[str, Any]]]) -> None:
    topic = served.topic()
    said = {line["what"]: line["answer"] for line in node_script("kafkajs.mjs", served.bootstrap, topic)}
    assert {b["nodeId"]: b["port"] for b in said["cluster"]["brokers"]} == served.ports
    assert (said["cluster"]["controller"], said["cluster"]["clusterId"]) == (served.controller, served.cluster_id)
    assert (said["created"], said["again"], said["assigned"]) == (True, False, True)
    assert said["bad name"] == ["INVALID_TOPIC_EXCEPTION"]
    assert said["bad factor"] == ["INVALID_REPLICATION_FACTOR"]
    assert sorted(p["partitionId"] for p in said["metadata"]) == [0, 1]
    for p in said["metadata"]:
        assert sorted(p["replicas"]) == sorted(p["isr"]) == [1, 2, 3]
        assert p["leader"] == p["replicas"][0]
    assert sorted(p["partitionId"] for p in said["more metadata"]) == [0, 1, 2, 3, 4]
    assert said["config"] == 36
    assert said["altered"]["configValue"] == "7000"
    assert not [name for name in said["deleted"] if name.startswith(topic)]
    assert said["unknown"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_transactional_producer(served: Served, node_script: Callable[..., list[dict[str, Any]]]) -> None:
    topic, group = served.topic(), served.topic()
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 3})
    for future in admin.create_topics([NewTopic(topic, 1, 3)], operation_timeout=WITHIN_S).values():
        future.result(WITHIN_S)
    said = {line["what"]: line["answer"] for line in node_script("kafkajs_transactions.mjs", served.bootstrap, topic, group)}
    assert said["fenced"] in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    assert said["offsets"] == [7]
    consumer = Consumer({"bootstrap.servers": served.bootstrap, "group.id": served.topic(), "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = [message.value() for message in consumer.consume(4, WITHIN_S)]
    consumer.close()
    assert read == [b"committed 0", b"committed 1", b"with offsets", b"of the second"]
