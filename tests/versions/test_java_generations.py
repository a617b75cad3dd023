"""Kafka's own clients of nine years, in groups and transactions: `Group.java` and `Transactions.java`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

import klamm
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.testing import BlockingCluster
from klamm.tests.harness.kafka import java_command, request
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import wait_for
from klamm.tests.reference.jars import CLIENTS_OF_4, CLIENTS_OF_2016, VERSION, jars

SINCE_TRANSACTIONS = ("1.0.2", "2.0.1", "2.8.2", VERSION, CLIENTS_OF_4)
GENERATIONS = (CLIENTS_OF_2016, *SINCE_TRANSACTIONS)
CONFIG = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2, "group.initial.rebalance.delay.ms": 0}
PARTITIONS, RECORDS = 4, 100
WITHIN_S = 120


@pytest.fixture(scope="module")
def brokers(zookeeper: str) -> Iterator[BlockingCluster]:
    with klamm.Cluster(3, config=CONFIG, zookeeper=f"{zookeeper}/{unique_name('generations')}") as cluster:
        yield cluster


def run(version: str, program: str, *arguments: str) -> list[str]:
    """The lines of a program beside this file, run with the clients of a version."""
    command = java_command(jars(version), str(Path(__file__).with_name(program)), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, (version, done.stdout, done.stderr[-3000:])
    return done.stdout.splitlines()


def created(brokers: BlockingCluster, topic: str, partitions: int) -> str:
    """A new topic that has this many partitions."""
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    admin.create_topics([NewTopic(topic, partitions, 3)])
    admin.close()
    return topic


def committed(brokers: BlockingCluster, group: str) -> dict[int, int]:
    """The offsets of a group by partition."""
    fetch = messages.OffsetFetchRequest(groups=[messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])

    def answered() -> dict[int, int] | None:
        for _, _, port in brokers.addresses:
            (row,) = request(port, fetch, 8).groups
            if row.error_code == ErrorCode.NONE:
                return {each.partition_index: each.committed_offset for topic in row.topics for each in topic.partitions}
        return None

    return wait_for(answered, "the coordinator of the group")


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("version", GENERATIONS)
def test_two_consumers_of_java_clients_share_a_group_and_one_takes_over(brokers: BlockingCluster, version: str) -> None:
    topic, group = created(brokers, f"read-{version}", PARTITIONS), f"readers-{version}"
    lines = run(version, "Group.java", brokers.bootstrap_servers, topic, group)
    assert lines == ["two members 2 2", "read 60", "one member 4", "read 100"]
    assert committed(brokers, group) == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("version", SINCE_TRANSACTIONS)
def test_java_clients_commit_abort_and_fence_transactions(brokers: BlockingCluster, version: str) -> None:
    topic, group = created(brokers, f"written-{version}", 1), f"writers-{version}"
    fenced, *read = run(version, "Transactions.java", brokers.bootstrap_servers, topic, group)
    texts = ["committed 0", "committed 1", "committed 2", "with offsets", "of the second"]
    assert fenced in ("ProducerFencedException", "InvalidProducerEpochException")
    assert read == [f"committed: [{', '.join(texts)}]", f"all: [{', '.join([*texts[:3], 'aborted', *texts[3:]])}]"]
    assert committed(brokers, group) == {0: 7}
