"""A broker loses its ZooKeeper session while it creates a log, or announces that a log directory has failed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import klamm.testing
from klamm.admin import AdminClient, NewTopic
from klamm.broker.replication_quotas import ReplicationQuota
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.lifecycle.disks import Disks
from klamm.testing.blocking_cluster import BlockingCluster
from klamm.tests.harness.waits import wait_for
from klamm.tests.services import broker_config
from klamm.zk.admin import AdminZk
from klamm.zk.layout.paths import LOG_DIR_EVENT_NOTIFICATION
from klamm.zk.session.session import ZkSession

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


async def test_a_failed_directory_is_announced_in_the_next_session(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    session = ZkSession(f"{zookeeper}{chroot}", 6000)
    await session.start(15_000)
    admin_zk = AdminZk(session)
    await admin_zk.ensure_paths()
    disks = Disks(broker_config(log_dirs=tmp_path), SYSTEM_CLOCK, random.getrandbits, ReplicationQuota(11, 1, SYSTEM_CLOCK))
    session.cut()
    announcing = asyncio.create_task(disks.announce(1, admin_zk))
    await asyncio.sleep(0)
    await session.expire()
    session.restore()
    await announcing
    assert len(await session.children(LOG_DIR_EVENT_NOTIFICATION)) == 1
    await session.stop()
    await disks.close()
