"""What is left behind when all faults are over is found: each on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

import klamm.testing
from klamm.admin import AdminClient, ConfigResource, ResourceType
from klamm.chaos.clients.producers import SILENT
from klamm.chaos.end_state import problems, topic_problems
from klamm.control.client import ControlClient
from klamm.testing.blocking_cluster import BlockingCluster
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.waits import wait_for

TOPIC = ConfigResource(ResourceType.TOPIC, "t")


class Whole:
    """A cluster that is whole at the beginning of each test."""

    def __init__(self, cluster: BlockingCluster) -> None:
        self.cluster = cluster
        self.api = ControlClient(str(cluster.control_url))
        self.admin = AdminClient(cluster.bootstrap_servers)
        wait_for(lambda: self.wrong() == [], "the cluster is whole")

    def wrong(self, *deleted: str) -> list[str]:
        return list(problems(self.api, self.admin, deleted=deleted))


@pytest.fixture(scope="module")
def whole(zookeeper: str) -> Iterator[Whole]:
    with klamm.testing.Cluster(topics="t:1:3", zookeeper=f"{zookeeper}/{unique_name('end-state')}", control_port=0) as cluster:
        found = Whole(cluster)
        yield found
        found.admin.close()


def test_a_broker_that_does_not_run_and_a_replica_that_is_not_in_sync_are_found(whole: Whole) -> None:
    whole.cluster.stop_broker(2)
    wrong = whole.wrong()
    whole.cluster.start_broker(2)
    assert "broker 2 is stopped" in wrong and any("t-0 has ISR" in text for text in wrong), wrong
    wait_for(lambda: whole.wrong() == [], "the cluster is whole again")


def test_a_topic_whose_deletion_does_not_end_is_found(whole: Whole) -> None:
    whole.cluster.create_topic("doomed", replicas=[[1, 2]])
    whole.cluster.stop_broker(2)
    whole.admin.delete_topics(["doomed"]).all()
    assert "topic doomed was deleted and is still in ZooKeeper" in whole.wrong("doomed")
    whole.cluster.start_broker(2)
    wait_for(lambda: whole.wrong("doomed") == [], "the cluster is whole again")


def test_a_throttle_that_is_left_is_found(whole: Whole) -> None:
    whole.admin.incremental_alter_configs({TOPIC: {"leader.replication.throttled.replicas": "0:1"}}).all()
    wait_for(lambda: whole.wrong() == ["t still has leader.replication.throttled.replicas=0:1"], "it is found")
    whole.admin.incremental_alter_configs({TOPIC: {"leader.replication.throttled.replicas": None}}).all()
    wait_for(lambda: whole.wrong() == [], "the cluster is whole again")


@pytest.mark.parametrize("what", ["log_end_offset", "high_watermark", "leader_epoch"])
def test_replicas_that_differ_are_found(whole: Whole, what: str) -> None:
    """In what the control API showed of a topic that is whole."""
    shown = whole.api.get("topics", "t")
    assert list(topic_problems(shown)) == []
    seen = shown["partitions"][0]["brokers"]
    seen["3"][what] += 1
    assert [text for text in topic_problems(shown) if f"differ in their {what}" in text], list(topic_problems(shown))


@pytest.mark.parametrize(("ends", "state"), [("commit_transaction", "PrepareCommit"), ("abort_transaction", "PrepareAbort")])
def test_a_transaction_that_does_not_end_is_found(whole: Whole, ends: str, state: str) -> None:
    name = unique_name("transaction")
    producer = Producer({**SILENT, "bootstrap.servers": whole.cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"record", partition=0)
    producer.flush()
    assert f"transaction {name} is Ongoing" in whole.wrong()
    with whole.cluster.hold("TransactionEndPrepared") as hold, ThreadPoolExecutor(1) as other:
        ended = other.submit(getattr(producer, ends), 30)
        hold.wait()
        wrong = whole.wrong()
        hold.release()
        ended.result()
    assert f"transaction {name} is {state}" in wrong, wrong
    wait_for(lambda: whole.wrong() == [], "the cluster is whole again")


def test_a_reassignment_that_does_not_end_is_found(whole: Whole) -> None:
    with whole.cluster.hold("ReassignmentTargetStored", topic="t") as hold:
        whole.admin.alter_partition_reassignments({("t", 0): [1, 2]}).all()
        hold.wait()
        assert any("still being reassigned" in text for text in whole.wrong())
    whole.admin.alter_partition_reassignments({("t", 0): [1, 2, 3]}).all()
    wait_for(lambda: whole.wrong() == [], "the cluster is whole again", 30)
