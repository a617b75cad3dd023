"""The judge is judged: what real brokers of Apache Kafka 3.9.1 say breaks no rule about frames and groups, recorded long ago or now."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from klamm.journal.proof import verify
from klamm.pipeline.lake.spark_views import views
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.runner import Judgement
from klamm.protocol import messages
from klamm.tests.harness.kafka import WITHIN_S, KafkaBroker, all_know, request
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.record_clients import produce, read_all
from klamm.tests.harness.tree import Tree
from klamm.tests.pipeline.both_engines import assert_quick_agrees
from klamm.tests.pipeline.real_clusters.group_session import live_in_groups
from klamm.tests.pipeline.real_clusters.recorded_frames import RECORDINGS, write_recording
from klamm.tests.pipeline.real_clusters.recording import Door, Recorder
from klamm.tests.pipeline.real_clusters.transaction_session import live_with_transactions
from klamm.tests.pipeline.rules.conftest import into_silver

pytestmark = [pytest.mark.slow]


ABORTS: dict[str, Any] = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 500}


def judged_by_rules_of_frames(spark: Any, lake: Path, runs: list[str]) -> Judgement:
    """By the rules about the wire, logs, groups, transactions, and what brokers answer of coordinators and new topics; by Spark, and DuckDB
    says the same."""
    into_silver(spark, lake)
    views(spark, lake, runs)
    rules = [rule for rule in runner.rules().values() if rule.id.startswith(("W-", "L-", "G-", "T-", "C-23", "C-24", "X-05"))]
    judgement = runner.judge(spark, runs, rules)
    assert_quick_agrees(lake, runs, judgement, [rule.id for rule in rules])
    return judgement


@pytest.fixture(scope="module")
def recorded(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    lake = tmp_path_factory.mktemp("recorded")
    for name in RECORDINGS:
        write_recording(lake, name)
    return judged_by_rules_of_frames(spark, lake, sorted(RECORDINGS))


class RealCluster:
    """Two real brokers, each behind a proxy that keeps a journal of the run `real`."""

    def __init__(self, jars: Path, tree: Tree, folder: Path, lake: Path) -> None:
        self.recorder = Recorder(lake)
        self.brokers = []
        self.ports: list[int] = []
        for broker_id, (port, target_port) in enumerate(zip(free_ports(2), free_ports(2), strict=True), 1):
            self.recorder.begin("real", broker_id, [Door(port, target_port)])
            listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{target_port}", "advertised_listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            self.brokers.append(KafkaBroker(jars, tree, folder, broker_id, **listeners, **ABORTS))
            self.ports.append(port)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self.recorder.close()


@pytest.fixture
def cluster(zookeeper: str, chroot: str, kafka_jars: Path, tmp_path: Path) -> Iterator[RealCluster]:
    tree = Tree(zookeeper, chroot)
    made = RealCluster(kafka_jars, tree, tmp_path, tmp_path / "lake")
    yield made
    made.close()
    tree.close()


def test_no_wire_rule_is_violated_by_recordings_of_real_brokers(recorded: Judgement) -> None:
    assert [(one.rule, one.run_id, one.detail) for one in recorded.verdicts if one.rule != "W-03" and one.severity == "error"] == []
    assert [one.detail for one in recorded.verdicts if one.rule == "W-03" and one.run_id != "raw"] == []
    checked = {rule: sum(stat.checked for stat in recorded.stats if stat.rule == rule) for rule in {stat.rule for stat in recorded.stats}}
    assert all(checked[f"W-{number:02d}"] for number in (1, 2, 3, 4, 5, 7, 8, 9, 11)), checked


def odd_requests(port: int) -> None:
    """What no client sends: versions and keys that do not exist, a request that is cut short."""
    for payload in (
        b"\0\x12\0\x63\0\0\0\1\0\1c\0", b"\0\x12\xff\xff\0\0\0\1\0\1c", b"\3\xe7\0\0\0\0\0\1\0\1c",
        b"\0\3\0\x63\0\0\0\1\0\1c", b"\0\3\0\1\0\0\0\1\0\1c",
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as connection:
            connection.sendall(len(payload).to_bytes(4, "big") + payload)
            connection.recv(1)


async def with_aiokafka(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number in range(20):
        await producer.send_and_wait("orders", b"aio-%d" % number)
    await producer.stop()
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=bootstrap, group_id="aio", auto_offset_reset="earliest")
    await consumer.start()
    await asyncio.wait_for(consumer.getone(), WITHIN_S)
    await consumer.stop()


def with_kafka_python(bootstrap: str) -> None:
    for acks in (0, 1):
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks=acks)
        for number in range(20):
            producer.send("orders", b"python-%d" % number)
        producer.flush(WITHIN_S)
        producer.close()
    options = {"group_id": "python", "auto_offset_reset": "earliest", "consumer_timeout_ms": 30_000}
    consumer = KafkaConsumer("orders", bootstrap_servers=bootstrap, **options)
    assert next(iter(consumer)).topic == "orders"
    consumer.close()


@pytest.mark.reference
def test_no_rule_of_frames_is_violated_by_real_brokers_behind_a_recording_proxy(cluster: RealCluster, spark: Any, tmp_path: Path) -> None:
    for broker in cluster.brokers:
        broker.start()
    all_know(cluster.brokers)
    options: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "logger": logging.getLogger("librdkafka")}
    admin = AdminClient(options)
    for created in admin.create_topics([NewTopic("orders", 3, 2), NewTopic("accounts", 3, 2), NewTopic("passing", 1, 1)]).values():
        created.result(WITHIN_S)
    produce(cluster.bootstrap, "orders", [f"confluent-{number}" for number in range(100)])
    assert sum(read_all(cluster.bootstrap, "orders").values()) == 100
    with_kafka_python(cluster.bootstrap)
    asyncio.run(with_aiokafka(cluster.bootstrap))
    live_in_groups(cluster.bootstrap, "orders", 3)
    live_with_transactions(cluster.bootstrap, "accounts", 3)
    odd_requests(cluster.ports[0])
    cluster.brokers[1].stop()
    produce(cluster.bootstrap, "orders", [f"alone-{number}" for number in range(10)])
    cluster.brokers[1].start()
    all_know(cluster.brokers)
    for port in cluster.ports:
        request(port, messages.ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000), 2)
    for deleted in admin.delete_topics(["passing"]).values():
        deleted.result(WITHIN_S)
    cluster.close()
    lake = tmp_path / "lake"
    proofs, foreign = verify(lake)
    assert ([proof.problems for proof in proofs], foreign) == ([[], []], [])
    judgement = judged_by_rules_of_frames(spark, lake, ["real"])
    checked = {stat.rule: stat.checked for stat in judgement.stats}
    assert [(one.rule, one.detail) for one in judgement.verdicts if one.severity == "error" or one.rule == "X-05"] == []
    assert all(checked[f"W-{number:02d}"] for number in (1, 2, 3, 4, 5, 7, 8, 9, 11)), checked
    assert all(checked[rule] for rule in ("G-01", "G-02", "G-03", "G-04", "G-05", "G-07", "X-05")), checked
    assert all(checked[rule] for rule in ("L-01", "L-02", "L-03", "C-23", "C-24")), checked
    assert all(checked[f"T-{number:02d}"] for number in range(1, 6)), checked
