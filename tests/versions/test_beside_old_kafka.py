"""A broker of Klamm that is like an older Kafka, in one cluster with a broker of that Kafka: either of them is the controller in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaProducer

from klamm.admin import AdminClient, NewTopic, PartitionDescription
from klamm.configs.releases.kafka_releases import release_of
from klamm.tests.harness.kafka import OwnedBroker, all_know, wait_for
from klamm.tests.harness.tree import Tree
from klamm.tests.reference import jars
from klamm.tests.reference.releases import ReleaseBroker

VERSIONS = [version for version in jars.RELEASES if release_of(version) in ("1.0", "2.8", "3.6")]
"""Before AlterPartition, with its first version, and with KIP-890."""


def partitions(admin: AdminClient) -> tuple[PartitionDescription, ...]:
    return admin.describe_topics(["orders"]).all()["orders"].partitions


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize("version", VERSIONS)
def test_replicas_join_and_leave_whoever_is_the_controller(version: str, zookeeper: str, chroot: str, tmp_path: Path) -> None:
    tree = Tree(zookeeper, chroot)
    theirs, ours = ReleaseBroker(version, tree, tmp_path), OwnedBroker(tree, tmp_path, 2, klamm_as_version=version)
    try:
        theirs.start()
        ours.start()
        all_know([theirs, ours])
        with AdminClient(f"127.0.0.1:{ours.port}") as admin:
            admin.create_topics([NewTopic("orders", 2, 2)]).all()
            producer = KafkaProducer(bootstrap_servers=f"127.0.0.1:{ours.port}", acks="all")
            for number in range(40):
                producer.send("orders", b"record", partition=number % 2).get(30)
            producer.close()
            assert tree.controller() == theirs.id
            assert sorted(each.leader or 0 for each in partitions(admin)) == [1, 2]
            theirs.stop()
            wait_for(lambda: all((each.leader, each.isr) == (2, (2,)) for each in partitions(admin)), "ours leads alone")
            theirs.start()
            assert tree.controller() == ours.id
            wait_for(lambda: all(len(each.isr) == 2 for each in partitions(admin)), "theirs joins by our controller")
        ours.stop()
        ours.start()
        assert tree.controller() == theirs.id
        with AdminClient(f"127.0.0.1:{theirs.port}") as admin:
            wait_for(lambda: all(len(each.isr) == 2 for each in partitions(admin)), "ours joins by their controller")
    finally:
        ours.kill()
        theirs.kill()
        tree.close()
