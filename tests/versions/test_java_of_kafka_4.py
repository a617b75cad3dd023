"""Tools and clients of Apache Kafka 4.4.0 at brokers that stand for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import klamm
from klamm.protocol import messages
from klamm.testing import BlockingCluster
from klamm.tests.harness.kafka import java_command, request
from klamm.tests.reference import newest_kafka

CONFIG = {
    "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 1, "transaction.state.log.min.isr": 1, "group.initial.rebalance.delay.ms": 0,
}
pytestmark = [pytest.mark.slow, pytest.mark.reference]


@pytest.fixture
def cluster(zookeeper: str, chroot: str) -> Iterator[BlockingCluster]:
    with klamm.Cluster(1, as_version="4.4", topics="orders:3", config=CONFIG, zookeeper=zookeeper + chroot) as made:
        yield made


class Tools:
    """What the tools print."""

    def __init__(self, jars: Path, bootstrap: str) -> None:
        self.jars, self.bootstrap = jars, bootstrap

    def __call__(self, name: str, *arguments: str) -> str:
        command = java_command(self.jars, f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.bootstrap, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ | {"LANG": "C"})
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


def test_java_describes_and_changes_features_while_a_transactional_producer_goes_on(cluster: BlockingCluster) -> None:
    tools = Tools(newest_kafka.jars(), cluster.bootstrap_servers)
    assert "Elr:" in tools("TopicCommand", "--describe", "--topic", "orders"), "by DescribeTopicPartitions"
    assert "LeaderId:               1" in tools("MetadataQuorumCommand", "describe", "--status")
    assert "FinalizedVersionLevel: 4.4-IV2" in tools("FeatureCommand", "describe")
    perf = (
        "--topic", "orders", "--record-size", "10", "--throughput", "1000", "--transactional-id", "tx", "--transaction-duration-ms", "100",
    )
    assert "300 records sent" in tools("ProducerPerformance", *perf, "--num-records", "300")
    raised = epoch(cluster)
    assert raised > 1, "each transaction has its epoch"
    assert "was downgraded to 0" in tools("FeatureCommand", "downgrade", "--feature", "transaction.version=0")
    assert "100 records sent" in tools("ProducerPerformance", *perf, "--num-records", "100")
    assert epoch(cluster) == raised + 1, "InitProducerId alone has raised it"
    read = tools(
        "consumer.ConsoleConsumer", "--topic", "orders", "--from-beginning", "--max-messages", "400", "--group", "java",
        "--isolation-level", "read_committed", "--timeout-ms", "60000",
    )
    assert len(read.splitlines()) == 400


def epoch(cluster: BlockingCluster) -> int:
    (row,) = request(cluster.addresses[0][2], messages.DescribeTransactionsRequest(["tx"]), 0).transaction_states
    return int(row.producer_epoch)


def test_a_running_broker_of_4_4_0_lists_the_same_apis_and_versions(cluster: BlockingCluster, tmp_path: Path) -> None:
    asked = messages.ApiVersionsRequest("apache-kafka-java", "4.4.0")
    with newest_kafka.running(newest_kafka.jars(), tmp_path / "kafka") as bootstrap:
        theirs, ours = (request(port, asked, 5) for port in (int(bootstrap.rpartition(":")[2]), cluster.addresses[0][2]))
    assert theirs.api_keys == ours.api_keys
    theirs_by_name, supported = {row.name: row for row in theirs.supported_features}, ours.supported_features
    assert [row.name for row in supported] == ["metadata.version", "transaction.version"]
    assert all(theirs_by_name[row.name] == row for row in supported)
