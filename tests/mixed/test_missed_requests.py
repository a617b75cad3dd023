"""A broker that does not get what the controller sends: what `klamm chaos` allows because Apache Kafka does it too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import request, wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.names import unique_name
from klamm.tests.harness.network import Network
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.tree import Tree

pytestmark = [pytest.mark.slow, pytest.mark.reference]

AWAY = 3
"""The broker that does not get it. Others reach it through a proxy."""
UNKNOWN_TOPIC_OR_PARTITION = 3


class Cluster:
    """Brokers 1, 2 and AWAY of one kind."""

    def __init__(self, jars: Path, zookeeper: str, folder: Path, kind: str) -> None:
        self.network = Network()
        port = free_port()
        shown = self.network.proxy(AWAY, port)
        own = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "advertised_listeners": f"PLAINTEXT://127.0.0.1:{shown}"}
        tree = Tree(zookeeper, f"/{unique_name('missed')}")
        self.members = Members(jars, tree, folder, lambda broker_id: own if broker_id == AWAY else {})
        start = self.members.klamm if kind == "klamm" else self.members.kafka
        start(1, 2, AWAY)
        self.away = self.members.brokers[AWAY]

    def close(self) -> None:
        self.members.close()
        self.members.tree.close()
        self.network.close()

    def move(self, topic: str) -> None:
        """The replica of AWAY moves to broker 1; its leader stays 2."""
        body = messages.AlterPartitionReassignmentsRequest
        partition = body.ReassignablePartition(partition_index=0, replicas=[2, 1])
        answer = self.members.ask(body(timeout_ms=10_000, topics=[body.ReassignableTopic(name=topic, partitions=[partition])]), 0)
        assert answer.error_code == 0, answer
        wait_for(lambda: self.members.tree.assignment(topic)[0] == [2, 1], "the reassignment has ended")

    def has_log(self, topic: str) -> bool:
        return (self.away.folder / "data" / f"{topic}-0").is_dir()


@pytest.fixture(scope="module", params=["klamm", "kafka"])
def cluster(
    request: pytest.FixtureRequest, zookeeper: str, kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    one = Cluster(kafka_jars, zookeeper, tmp_path_factory.mktemp("missed"), request.param)
    yield one
    one.close()


def test_a_replica_is_left_where_the_stop_replica_request_did_not_arrive(cluster: Cluster) -> None:
    members, network = cluster.members, cluster.network
    members.office(1)
    for topic in ("cut", "dead", "deleted"):
        members.create(topic, [[2, AWAY]])

    # the controller cannot send it, and is not controller any more when it could
    network.cut(1, AWAY)
    cluster.move("cut")
    members.office(2)
    network.drop(1, AWAY)
    network.heal(1, AWAY)
    members.create("after", [[AWAY, 2]])  # by now AWAY has been told everything
    members.delete("deleted")
    wait_for(lambda: not cluster.has_log("deleted"), "a replica that the controller knows is deleted")
    assert cluster.has_log("cut")

    # the broker does not run
    cluster.away.stop()
    cluster.move("dead")
    members.start(AWAY)
    members.create("again", [[AWAY, 2]])
    assert cluster.has_log("dead") and cluster.has_log("cut")


def test_a_broker_that_starts_knows_no_broker_and_no_topic_until_the_controller_tells_it(cluster: Cluster) -> None:
    members, network = cluster.members, cluster.network
    members.create("known", [[2, AWAY]])
    if members.controller().id == AWAY:  # after another test
        members.office(1)
    controller = members.controller().id
    cluster.away.stop()
    network.cut(controller, AWAY)
    cluster.away.launch()
    wait_for(cluster.away.listens, "it listens")

    def shown() -> Any:
        return request(cluster.away.port, requests.metadata(["known"]), 12)

    first = wait_for(shown, "a response")
    assert first.brokers == [] and [topic.error_code for topic in first.topics] == [UNKNOWN_TOPIC_OR_PARTITION], first
    network.heal(controller, AWAY)
    wait_for(lambda: [topic.error_code for topic in shown().topics] == [0], "it has been told")
    members.settled()


@pytest.mark.parametrize("kind", ["klamm", "kafka"])
def test_a_broker_that_missed_a_deletion_shows_the_topic_until_the_name_is_created_and_deleted_again(members: Members, kind: str) -> None:
    start = members.klamm if kind == "klamm" else members.kafka
    start(1)
    start(2, 3)
    away = members.brokers[3]
    members.create("gone", [[1, 2], [2, 1]])
    members.create("kept", [[1, 2], [2, 1]])
    epoch = members.tree.broker_epoch(3)
    away.freeze()
    wait_for(lambda: sorted(members.brokers[1].known()[0]) == [1, 2], "3 is not registered any more")
    members.delete("gone")
    members.deleted("gone")
    away.thaw()
    wait_for(lambda: members.tree.broker_epoch(3) > epoch, "3 is registered again")
    members.create("after", [[3]])  # by now it has been told everything
    assert members.tree.controller() == 1
    assert {broker.id: set(members.topics(broker)) - {"kept", "after"} for broker in members.running()} == {1: set(), 2: set(), 3: {"gone"}}
    members.create("gone", [[1, 2], [2, 1]])
    members.delete("gone")
    wait_for(lambda: set(members.topics(away)) == {"kept", "after"}, "3 knows it now")
