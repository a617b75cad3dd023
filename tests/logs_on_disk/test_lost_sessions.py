"""A broker loses its ZooKeeper session while it creates a log, and so cannot read the configs of the topic: no log directory has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

import klamm.testing
from klamm.admin import AdminClient, NewTopic
from klamm.testing.blocking_cluster import BlockingCluster
from klamm.tests.harness.waits import wait_for

LOSES = 2
CONFIGS: dict[str, str | int | bool] = {"replica.lag.time.max.ms": 3000, "auto.leader.rebalance.enable": False}


@pytest.mark.parametrize("replicas", [[1, LOSES], [LOSES, 1]], ids=["follower", "leader"])
def test_log_that_was_not_created_before_the_session_was_lost_is_created_later(
    zookeeper: str, chroot: str, tmp_path: Path, replicas: list[int]
) -> None:
    with (
        klamm.testing.Cluster(2, zookeeper=f"{zookeeper}{chroot}", data_dir=tmp_path, config=CONFIGS) as cluster,
        AdminClient(cluster.bootstrap_servers) as admin,
    ):
        cluster.move_controller(1)
        cluster.cut_zookeeper(LOSES)
        admin.create_topics([NewTopic("t", assignments=[replicas])]).all()
        wait_for(lambda: "role" in seen(cluster), "the broker has the LeaderAndIsr request")
        cluster.expire_session(LOSES)
        cluster.restore_zookeeper(LOSES)
        wait_for(lambda: sorted(cluster.topic("t")["partitions"][0]["isr"]) == [1, LOSES], "both replicas are in sync", 30)
        cluster.delete_topic("t")


def seen(cluster: BlockingCluster) -> dict[str, object]:
    """The partition as the broker that loses its session sees it."""
    return dict(cluster.topic("t")["partitions"][0]["brokers"].get(str(LOSES), {}))
