"""MirrorMaker 2, exactly once: records, partitions, configs and offsets of groups come to another cluster: `Mirror.java`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.mixed.applications.application import KINDS, of_java, properties_file, running, three_brokers

MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
SETTINGS = {
    "clusters": "source,target",
    "source->target.enabled": "true",
    "source->target.topics": "orders",
    "source->target.groups": "shop",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.topics.interval.seconds": "2",
    "refresh.groups.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "2",
    "offset.lag.max": "0",
    "exactly.once.source.support": "enabled",
    "target.offset.flush.interval.ms": "500",
    "replication.factor": "2",
} | {
    f"{name}.replication.factor": "2"
    for name in ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage", "config.storage")
}

pytestmark = [pytest.mark.slow, pytest.mark.reference]


@KINDS
def test_a_topic_and_a_group_are_mirrored(new_members: Callable[..., Members], of_klamm: int, tmp_path: Path) -> None:
    source, target = (three_brokers(new_members, of_klamm) for _ in range(2))
    addresses = source.bootstrap(), target.bootstrap()
    settings = SETTINGS | {"source.bootstrap.servers": addresses[0], "target.bootstrap.servers": addresses[1]}
    with running(of_java(MIRROR_MAKER, properties_file(tmp_path / "mirror.properties", settings)), tmp_path / "mirror.txt"):
        with running(of_java("Mirror.java", *addresses), tmp_path / "program.txt") as program:
            said = program.lines()
    assert said == [
        "* partitions 3",
        "* retention.ms 123456789",
        "* max.message.bytes 2000000",
        "* partitions 4",
        "* retention.ms 987654321",
        "* records 600 in 600",
        "* committed [source.orders-0, source.orders-1, source.orders-2]",
    ]
