"""A cluster with a journal: every broker writes all frames and connections, without a gap, and no other broker can write there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import klamm
from klamm.journal import reading
from klamm.protocol.apis import ApiKey
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.testing import Cluster
from klamm.tests.harness.waits import eventually
from klamm.tests.journal.cluster_rows import gaps, rows


async def test_every_broker_of_a_cluster_writes_all_its_frames_without_a_gap(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    config = {"klamm.journal.dir": str(tmp_path), "klamm.journal.run": "one"}
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config=config, topics=[SeedTopic("t", 3, 2)])
    await cluster.start()
    await cluster.kill_broker(2, expire=True)
    await cluster.start_broker(2)
    await eventually(lambda: any(row["kind"] == "to leader" for row in rows(tmp_path, "frames")), "a follower fetched")
    await cluster.stop()
    assert gaps(tmp_path) == {1: 0, 2: 0}
    frames = rows(tmp_path, "frames")
    assert {(row["run_id"], row["node_id"], row["process"]) for row in frames} == {("one", 1, 1), ("one", 2, 1), ("one", 2, 2)}
    kinds = Counter((row["kind"], row["dir"]) for row in frames)
    assert {("accepted", 0), ("accepted", 1), ("channel", 2), ("channel", 3), ("to leader", 2)} <= kinds.keys()
    by_seq = {(row["node_id"], row["seq"]): row for row in frames}
    for row in frames:
        if row["dir"] in (1, 3):
            request = by_seq[row["node_id"], row["cause_seq"]]
            assert (request["conn_id"], request["correlation_id"], request["api_key"]) == (
                row["conn_id"], row["correlation_id"], row["api_key"]
            )
    opened = {(row["node_id"], row["process"], row["conn_id"]) for row in rows(tmp_path, "events") if row["kind"] == "conn_open"}
    assert {(row["node_id"], row["process"], row["conn_id"]) for row in frames} <= opened
    assert all(segment.sealed for segment in reading.segments(tmp_path))


async def test_a_second_cluster_in_the_same_run_is_refused_in_one_line(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    config = {"klamm.journal.dir": str(tmp_path), "klamm.journal.run": "one"}
    cluster = LocalCluster(1, zookeeper=zookeeper + chroot + "/a", config=config)
    await cluster.start()
    try:
        second = LocalCluster(1, zookeeper=zookeeper + chroot + "/b", config=config)
        with pytest.raises(StartFailed, match="another broker 1 is writing its journal of run one"):
            await second.start()
    finally:
        await cluster.stop()


def test_the_coordinator_writes_each_step_of_a_rebalance_and_of_a_transaction(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    small: dict[str, str | int] = {
        "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
    }
    with klamm.Cluster(3, config=small | {"klamm.journal.dir": str(tmp_path)}, topics="t:1:1", zookeeper=zookeeper + chroot) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "copy"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"x")
        producer.commit_transaction(30)
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["t"])
        assert consumer.consume(1, 30)
        consumer.commit(asynchronous=False)
        consumer.close()
    written = [json.loads(row["input"]) for row in rows(tmp_path, "events") if row["kind"] == "coordinator_phase"]
    steps = [step["name"] for step in written if step.get("group") == "readers"]
    assert [*dict.fromkeys(steps)] == [
        "GroupRebalanceBegun", "GroupJoinCompleted", "GroupAssignmentReceived", "GroupAssignmentStored", "GroupMemberRemoved",
        "GroupEmptied",
    ], "commits of offsets have no rows"
    ended = [(step["name"], step.get("outcome")) for step in written if step.get("transactional_id") == "copy"]
    assert ended == [
        ("ProducerEpochStored", None), ("TransactionBegun", None), ("TransactionEndPrepared", "commit"),
        ("TransactionMarkersWritten", "commit"), ("TransactionCompleted", "commit"),
    ]


def test_a_hit_of_a_fault_is_a_row_that_names_its_request(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    config = {"klamm.journal.dir": str(tmp_path)}
    with Cluster(1, config=config, topics="t:1:1", zookeeper=zookeeper + chroot) as cluster:
        cluster.fault(api="Produce", topic="t", error="NOT_LEADER_OR_FOLLOWER", delay_ms=1, first=1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
    (hit,) = [row for row in rows(tmp_path, "events") if row["kind"] == "fault_injected"]
    assert json.loads(hit["input"]) == {"name": "fault 1", "error": "NOT_LEADER_OR_FOLLOWER", "delay_ms": 1}
    (request,) = [row for row in rows(tmp_path, "frames") if (row["node_id"], row["seq"]) == (hit["node_id"], hit["cause_seq"])]
    assert (request["dir"], request["api_key"]) == (0, ApiKey.PRODUCE)
