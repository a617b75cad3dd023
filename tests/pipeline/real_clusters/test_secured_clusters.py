"""Nobody is accused in a cluster with TLS and SASL: brokers, the admin client, librdkafka and kafka-python do nothing wrong."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import kafka
import pytest

import klamm
from klamm.admin import AdminClient
from klamm.pipeline.quick.check import check_quickly
from klamm.server.local.made_security import kafka_python_settings


def use(servers: str, client: dict[str, str]) -> None:
    """An administrator, a producer, and a member of a group."""
    settings = kafka_python_settings(client)
    with AdminClient(servers, **settings) as admin:
        admin.describe_cluster()
        admin.describe_cluster()
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **client})
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    consumer = kafka.KafkaConsumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"x"
    consumer.close()


@pytest.mark.slow
def test_nobody_is_accused_in_a_secured_cluster(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    config: dict[str, str | int | bool] = {
        "klamm.journal.dir": str(tmp_path / "lake"), "offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0,
    }
    cluster = klamm.Cluster(
        2, zookeeper=zookeeper + chroot, config=config, topics="t:1:2", tls=True, sasl="SCRAM-SHA-256", data_dir=tmp_path / "data"
    )
    with cluster as running:
        use(running.bootstrap_servers, running.client)
    checked = check_quickly(tmp_path / "lake")
    assert [(one.rule, one.detail) for one in checked.judgement.verdicts] == []
    assert {"W-06", "W-10", "C-16", "G-01"} <= {stat.rule for stat in checked.judgement.stats if stat.checked}
