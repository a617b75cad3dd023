"""`klamm metadata-log dump` with whole clusters: its lines, replayed, are what ZooKeeper holds; Kafka's own tool prints the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import klamm
from klamm.admin import AdminClient, AlterOperation, ConfigChange, ConfigResource, ResourceType
from klamm.testing import BlockingCluster
from klamm.tests.cli.conftest import Start
from klamm.tests.cli.metadata_log.kafka_rows import compare
from klamm.tests.cli.metadata_log.log_replay import Seen, of_lines, of_zookeeper
from klamm.tests.cli.running import call
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import wait_for

BY_REQUEST = {"registerbroker.enable": "true", "klamm.broker.registration": "controller"}
BY_ZOOKEEPER = {"registerbroker.enable": "true"}
ORDERS = ConfigResource(ResourceType.TOPIC, "orders")
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


@pytest.fixture
def tree(zookeeper: str, chroot: str) -> Iterator[Tree]:
    one = Tree(zookeeper, chroot)
    yield one
    one.close()


@pytest.fixture(params=[BY_ZOOKEEPER, BY_REQUEST], ids=["zookeeper", "request"])
def cluster(request: pytest.FixtureRequest, tree: Tree) -> Iterator[BlockingCluster]:
    """Three brokers, registered in one way or the other, that never rebalance by themselves."""
    config = {**request.param, "auto.leader.rebalance.enable": "false"}
    topics = ["orders:4:3:retention.ms=60000", "single:1:1"]
    with klamm.Cluster(3, topics=topics, zookeeper=tree.hosts, config=config) as one:
        yield one


def lines_of(cluster: BlockingCluster, *arguments: object) -> list[str]:
    said = call("metadata-log", "dump", "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    assert (said.returncode, said.stderr) == (0, "")
    return said.stdout.splitlines()


def change_everything(cluster: BlockingCluster) -> None:
    """Leaders move, a broker goes and comes, replicas move, configs change."""
    cluster.stop_broker(2)
    cluster.start_broker(2)
    with AdminClient(cluster.bootstrap_servers) as admin:
        wait_for(lambda: all(len(p.isr) == 3 for p in admin.describe_topics(["orders"])["orders"].partitions), "all in sync")
        admin.elect_preferred_leaders().all()
        admin.alter_partition_reassignments({("single", 0): [3], ("orders", 1): [3, 1]}).all()
        wait_for(lambda: not admin.list_partition_reassignments(), "the replicas have moved")
        set_one, delete = ConfigChange("cleanup.policy", "compact"), ConfigChange("retention.ms", None, AlterOperation.DELETE)
        admin.incremental_alter_configs({ORDERS: [set_one, delete], ALL_BROKERS: [ConfigChange("log.retention.ms", "1000")]}).all()


def agrees(cluster: BlockingCluster, tree: Tree) -> Callable[[], Seen | None]:
    """Looks whether the lines, replayed, are what ZooKeeper holds; notifications of configs take a moment."""

    def look() -> Seen:
        logged, stored = of_lines(lines_of(cluster)), of_zookeeper(tree)
        assert logged == stored
        return logged

    return look


@pytest.mark.requirement("RREG-18")
def test_the_lines_replayed_are_what_zookeeper_holds_whatever_has_happened(cluster: BlockingCluster, tree: Tree) -> None:
    seen = wait_for(agrees(cluster, tree), "the log of a new cluster")
    assert sorted(seen.brokers) == [1, 2, 3] and len(seen.topics["orders"][1]) == 4
    change_everything(cluster)
    seen = wait_for(agrees(cluster, tree), "the log after the changes")
    assert seen.topics["single"][1][0]["replicas"] == [3]
    assert seen.configs[2, "orders"] == {"cleanup.policy": "compact"} and seen.configs[4, ""] == {"log.retention.ms": "1000"}
    cluster.move_controller()
    wait_for(agrees(cluster, tree), "the log of the next controller")


def test_follow_shows_the_next_controllers_log_from_its_beginning(cluster: BlockingCluster, start: Start) -> None:
    before = lines_of(cluster)
    running = start("metadata-log", "dump", "--bootstrap-server", cluster.bootstrap_servers, "--follow")
    assert [running.line() for _ in before] == before
    epoch = json.loads(before[0])["controllerEpoch"]
    cluster.move_controller()
    lines = iter(running.line, "")
    row = next(row for row in map(json.loads, lines) if row["controllerEpoch"] == epoch + 1)
    assert row["offset"] == 0 and row["type"] == "REGISTER_BROKER_RECORD"
    running.logged(f"the controller has changed (epoch {epoch}, now {epoch + 1}): its log begins at offset 0")


def test_a_controller_that_has_the_feature_off_keeps_no_log(tree: Tree) -> None:
    with klamm.Cluster(1, zookeeper=tree.hosts) as cluster:
        said = call("metadata-log", "dump", "--bootstrap-server", cluster.bootstrap_servers)
    assert (said.returncode, said.stdout) == (1, "")
    assert "the controller has no metadata log: registerbroker.enable is not true" in said.stderr


@pytest.mark.slow
@pytest.mark.reference
def test_kafkas_dump_tool_prints_the_log_of_a_cluster_record_by_record(cluster: BlockingCluster, tmp_path: Path) -> None:
    change_everything(cluster)
    with AdminClient(cluster.bootstrap_servers) as admin:
        admin.incremental_alter_configs({ALL_BROKERS: [ConfigChange("log.retention.ms", None, AlterOperation.DELETE)]}).all()
    types = {json.loads(line)["type"] for line in lines_of(cluster)}
    assert {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "CONFIG_RECORD"} <= types
    assert compare(cluster.bootstrap_servers, tmp_path) > 20
