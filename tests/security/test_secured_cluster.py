"""A cluster whose brokers and clients use TLS and SASL only: every mechanism, every client, records on all replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.helpers
import confluent_kafka
import kafka
import pytest
from click.testing import CliRunner

from klamm.cli import main
from klamm.protocol.nouns import SecurityProtocol
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.made_security import MadeSecurity, kafka_python_settings, make_security, scram_configs

COUNT = 20


def with_kafka_python(servers: str, client: dict[str, str]) -> None:
    settings: dict[str, Any] = kafka_python_settings(client)
    producer = kafka.KafkaProducer(bootstrap_servers=servers, acks="all", **settings)
    for number in range(COUNT):
        producer.send("t", b"%d" % number, partition=0).get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=30_000, **settings)
    consumer.assign([kafka.TopicPartition("t", 0)])
    consumer.seek_to_beginning()
    assert [next(consumer).value for _ in range(COUNT)] == [b"%d" % number for number in range(COUNT)]
    consumer.close()


def with_confluent(servers: str, client: dict[str, str]) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": servers} | client
    producer = confluent_kafka.Producer(settings | {"acks": "all"})
    for number in range(COUNT):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    values = [record.value() for record in consumer.consume(COUNT, 30)]
    assert values == [b"%d" % number for number in range(COUNT)]
    consumer.close()


async def _with_aiokafka(servers: str, client: dict[str, str]) -> None:
    settings: dict[str, Any] = kafka_python_settings(client)
    authority = settings.pop("ssl_cafile", None)
    if authority is not None:
        settings["ssl_context"] = aiokafka.helpers.create_ssl_context(cafile=authority)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, acks="all", **settings) as producer:
        for number in range(COUNT):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([aiokafka.TopicPartition("t", 0)])
        values = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(COUNT)]
    assert values == [b"%d" % number for number in range(COUNT)]


def with_aiokafka(servers: str, client: dict[str, str]) -> None:
    asyncio.run(_with_aiokafka(servers, client))


def security(folder: Path, *, tls: bool, mechanism: str | None) -> MadeSecurity:
    return make_security(folder / "security", "127.0.0.1", tls=tls, mechanism=mechanism, now_ms=int(time.time() * 1000))


@pytest.mark.parametrize(
    ("tls", "mechanism", "exchange"),
    [
        (True, "SCRAM-SHA-256", with_kafka_python),
        (True, "SCRAM-SHA-512", with_confluent),
        (True, "PLAIN", with_aiokafka),
        (False, "SCRAM-SHA-512", with_aiokafka),
        (False, "PLAIN", with_confluent),
        (True, None, with_kafka_python),
    ],
)
async def test_clients_and_brokers_of_a_secured_cluster(
    zookeeper: str, chroot: str, tmp_path: Path, tls: bool, mechanism: str | None, exchange: Callable[[str, dict[str, str]], None]
) -> None:
    made = security(tmp_path, tls=tls, mechanism=mechanism)
    config = made.config | {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config=config, topics=[SeedTopic("t", 1, 2)], users=made.users)
    await cluster.start()
    try:
        protocols = {SecurityProtocol(endpoint.security_protocol).name for broker in cluster.brokers for endpoint in broker.advertised}
        assert protocols == {made.client["security.protocol"]}
        await asyncio.to_thread(exchange, cluster.bootstrap_servers, made.client)
        replicas = [broker.replicas.get("t", 0) for broker in cluster.brokers]
        assert [hosted.log.log_end_offset for hosted in replicas if hosted is not None and hosted.log is not None] == [COUNT, COUNT]
    finally:
        await cluster.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_the_tools_of_klamm_use_tls_and_sasl(zookeeper: str, chroot: str, tmp_path: Path, mechanism: str) -> None:
    made = security(tmp_path, tls=True, mechanism=mechanism)
    file, wrong = tmp_path / "security/client.properties", tmp_path / "wrong.properties"
    wrong.write_text(file.read_text().replace(made.client["sasl.password"], "wrong"))
    cluster = LocalCluster(1, zookeeper=zookeeper + chroot, config=made.config, topics=[SeedTopic("t", 1, 1)], users=made.users)
    await cluster.start()
    try:
        command = ["topics", "list", "--bootstrap-server", cluster.bootstrap_servers, "--command-config"]
        result = await asyncio.to_thread(CliRunner().invoke, main.klamm, [*command, str(file)])
        assert result.exit_code == 0 and "t" in result.output.split(), result.output
        refused = await asyncio.to_thread(CliRunner().invoke, main.klamm, [*command, str(wrong)])
        assert refused.exit_code != 0 and "SASL_AUTHENTICATION_FAILED" in str(refused.exception)
    finally:
        await cluster.stop()


async def test_acls_know_the_users_of_sasl(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    made = security(tmp_path, tls=False, mechanism="SCRAM-SHA-256")
    made.users["eve"] = scram_configs("eve-secret")
    acls = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:admin"}
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config=made.config | acls, topics=[SeedTopic("t", 1, 2)], users=made.users)
    await cluster.start()
    try:
        await asyncio.to_thread(with_kafka_python, cluster.bootstrap_servers, made.client)
        eve: dict[str, Any] = kafka_python_settings(made.client | {"sasl.username": "eve", "sasl.password": "eve-secret"})
        producer = await asyncio.to_thread(lambda: kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **eve))
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            await asyncio.to_thread(lambda: producer.send("t", b"x", partition=0).get(30))
        await asyncio.to_thread(producer.close)
    finally:
        await cluster.stop()
