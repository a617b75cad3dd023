"""A broker of a local cluster that ends by itself is no running broker any more, and can be started again."""

from __future__ import annotations

from pathlib import Path

from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.waits import eventually


async def test_a_broker_whose_last_log_directory_failed_is_started_again(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    """Steps wait for what running brokers show: they would wait in vain for one that has ended."""
    config = {"replica.high.watermark.checkpoint.interval.ms": "50"}
    topics = [SeedTopic.parse("t:1:2")]
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, data_dir=tmp_path, config=config, topics=topics)
    await cluster.start()
    try:
        home, away = tmp_path / "broker-1", tmp_path / "away"
        checkpoint = home / "replication-offset-checkpoint"
        await eventually(lambda: checkpoint.exists() and "t 0 0" in checkpoint.read_text(), "nothing is left to be written")
        home.rename(away)
        await eventually(lambda: [broker.id for broker in cluster.brokers] == [2], "broker 1 has ended", 40)
        away.rename(home)
        await cluster.start_broker(1)
        assert [broker.id for broker in cluster.brokers] == [1, 2]
        assert await cluster.move_controller() in (1, 2)
    finally:
        await cluster.stop()
