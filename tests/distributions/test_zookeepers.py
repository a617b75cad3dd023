"""A cluster runs on each line of ZooKeeper from 3.5 to 3.9: topics, records, a lost broker, a moved controller, moves, deletion."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

import klamm
from klamm.admin import AdminClient
from klamm.tests.distributions.zookeepers import RELEASES, zookeeper
from klamm.tests.harness.waits import wait_for

pytestmark = pytest.mark.slow
CONFIG = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "6000",
}


@pytest.mark.parametrize("release", RELEASES)
def test_a_cluster_on_this_zookeeper_elects_moves_and_deletes(release: str, tmp_path: Path) -> None:
    with (
        zookeeper(release, tmp_path) as address,
        klamm.Cluster(brokers=3, topics=["orders:3:2"], zookeeper=f"{address}/dev", config=CONFIG) as cluster,
    ):
        produced = produce(cluster.bootstrap_servers)
        left = cluster.controller_id
        cluster.kill_broker(left, expire=True)
        wait_for(lambda: cluster.controller_id not in (-1, left), "another controller")
        with AdminClient(cluster.bootstrap_servers) as admin:
            wait_for(lambda: not {None, left} & leaders(admin), "other leaders")
            # kafka-python 3.0.12 may wait for ever for a coordinator when the broker that it asked first is gone
            wait_for(lambda: left not in {broker.id for broker in admin.describe_cluster().brokers}, "clients learn that it is gone")
            assert consume(cluster.bootstrap_servers) == produced
            cluster.start_broker(left)
            assert cluster.move_controller(to=left) == left
            admin.reassign_partitions({("orders", 0): [1, 2, 3]}).all()
            wait_for(lambda: not admin.list_partition_reassignments(), "the end of the reassignment")
            admin.delete_topics(["orders"]).all()
            wait_for(lambda: "orders" not in admin.describe_topics().all(), "the deletion")


def produce(servers: str) -> list[bytes]:
    values = [b"one", b"two", b"three"]
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    for partition, value in enumerate(values):
        producer.send("orders", value, partition=partition).get(30)
    producer.close()
    return sorted(values)


def consume(servers: str) -> list[bytes]:
    consumer = KafkaConsumer("orders", bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest")
    values = sorted(next(consumer).value for _ in range(3))
    consumer.close()
    return values


def leaders(admin: AdminClient) -> set[int | None]:
    """The leaders of the topic's partitions."""
    return {partition.leader for partition in admin.describe_topics(["orders"])["orders"].partitions}
