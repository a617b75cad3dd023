"""Disks that are full, brokers that are killed: what was acknowledged by acks=all is found, and leaders move."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.chaos.clients.producers import Producing
from klamm.chaos.clients.reading import read_all
from klamm.chaos.histories.history import judge
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members

TOPIC, PARTITIONS = "full", 4
NewMembers = Callable[..., Members]


def two_directories(folder: Path) -> Callable[[int], dict[str, Any]]:
    return lambda broker_id: {"log_dirs": f"{folder}/{broker_id}-a,{folder}/{broker_id}-b"}


def soon_noticed(_: int) -> dict[str, Any]:
    """Settings of brokers whose deaths are noticed soon."""
    return {"zookeeper_session_timeout_ms": 3000, "controlled_shutdown_max_retries": 1}


def produced(members: Members, records: int, producer: Producing) -> None:
    mark = producer.acknowledged + records
    wait_for(lambda: producer.acknowledged >= mark, f"{records} more records are acknowledged", 60)


def found(members: Members, *producers: Producing) -> None:
    """Everything that was acknowledged is there, once and in order."""
    for producer in producers:
        producer.finish()
    logs = read_all(members.bootstrap(), TOPIC, PARTITIONS)
    verdict = judge([sent for producer in producers for sent in producer.sent], logs)
    assert verdict.faults == {}, verdict.text()
    assert verdict.acknowledged


def leaders(members: Members) -> dict[int, int]:
    return {partition: members.state(TOPIC, partition).leader for partition in range(PARTITIONS)}


def limit_file_size(members: Members, broker_id: int, size: int) -> None:
    """Files of the broker cannot grow beyond this: to the broker it is as if the disk were full."""
    resource.prlimit(members.brokers[broker_id].pid(), resource.RLIMIT_FSIZE, (size, size))


def test_full_directory_takes_its_replicas_offline_and_their_leaders_move(members: NewMembers, tmp_path: Path) -> None:
    cluster = members(two_directories(tmp_path))
    cluster.klamm(1, 2)
    cluster.create(TOPIC, [[1, 2], [1, 2], [1, 2], [2, 1]])
    homes = {
        partition: which for which in "ab" for partition in range(PARTITIONS) if (tmp_path / f"1-{which}/{TOPIC}-{partition}").is_dir()
    }
    assert sorted(homes.values()) == ["a", "a", "b", "b"]
    producer = Producing(cluster.bootstrap(), TOPIC, PARTITIONS, "producer", idempotent=True).start()
    produced(cluster, 100, producer)
    biggest = max((tmp_path / f"1-{which}/{TOPIC}-{p}/{0:020d}.log").stat().st_size for p, which in homes.items())
    full = homes[0]
    # only partition 0 grows on: its file alone comes to the limit
    producer.finish()
    limit_file_size(cluster, 1, biggest + 40_000)
    growing = Producing(cluster.bootstrap(), TOPIC, 1, "growing", idempotent=True, batch=200).start()
    lost = {partition for partition, which in homes.items() if which == full}
    wait_for(lambda: all(leaders(cluster)[p] == 2 for p in lost), "leaders have moved", 60)
    produced(cluster, 500, growing)
    kept = {partition for partition in homes if partition not in lost and partition != 3}
    assert {leaders(cluster)[p] for p in kept} == {1}
    assert cluster.brokers[1].alive()
    wait_for(lambda: cluster.tree.children("/log_dir_event_notification") == [], "the controller has seen it")
    log = "".join(file.read_text() for file in cluster.brokers[1].folder.glob("log-*"))
    assert f"log directory {tmp_path}/1-{full} failed and is offline: [Errno 27] File too large" in log
    found(cluster, producer, growing)


@pytest.mark.slow
def test_broker_without_a_directory_left_ends_and_leaders_move(members: NewMembers, tmp_path: Path) -> None:
    cluster = members(soon_noticed)
    cluster.klamm(1, 2)
    cluster.create(TOPIC, [[1, 2]] * PARTITIONS)
    producer = Producing(cluster.bootstrap(), TOPIC, PARTITIONS, "producer", idempotent=True).start()
    produced(cluster, 100, producer)
    limit_file_size(cluster, 1, 30_000)
    wait_for(lambda: cluster.brokers[1].exit_code() == 1, "broker 1 has ended", 60)
    assert "all log directories have failed" in cluster.brokers[1].tail()
    wait_for(lambda: set(leaders(cluster).values()) == {2}, "leaders have moved", 60)
    produced(cluster, 100, producer)
    found(cluster, producer)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["klamm", pytest.param("kafka", marks=pytest.mark.reference)])
def test_an_idle_broker_without_its_directory_ends(members: NewMembers, tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    folder = tmp_path / "logs-1"
    jars = request.getfixturevalue("kafka_jars") if kind == "kafka" else Path()
    cluster = members(
        lambda broker_id: {
            "log_dirs": f"{tmp_path}/logs-{broker_id}", "replica_high_watermark_checkpoint_interval_ms": 500, **soon_noticed(broker_id),
        },
        jars,
    )
    getattr(cluster, kind)(1, 2)
    cluster.create(TOPIC, [[1, 2]])
    checkpoint = folder / "replication-offset-checkpoint"
    wait_for(lambda: checkpoint.exists() and f"{TOPIC} 0 0" in checkpoint.read_text(), "nothing is left to be written")
    folder.rename(tmp_path / "away")
    wait_for(lambda: cluster.brokers[1].exit_code() == 1, "broker 1 has ended", 60)
    cluster.becomes(TOPIC, 0, lambda state: state.leader == 2, "broker 2 leads")


@pytest.mark.slow
@pytest.mark.parametrize("in_order", [True, False], ids=["stopped", "killed"])
def test_records_survive_the_end_of_all_brokers(members: NewMembers, *, in_order: bool) -> None:
    cluster = members(soon_noticed)
    cluster.klamm(1, 2)
    cluster.create(TOPIC, [[1, 2], [2, 1], [1, 2], [2, 1]], {"segment.bytes": "50000"})
    producer = Producing(cluster.bootstrap(), TOPIC, PARTITIONS, "producer", idempotent=True).start()
    for _ in range(2):
        produced(cluster, 300, producer)
        for broker_id in (1, 2):
            if in_order:
                cluster.brokers[broker_id].stop()
            else:
                cluster.brokers[broker_id].kill()
        wait_for(lambda: cluster.tree.children("/brokers/ids") == [], "all sessions have ended", 30)
        cluster.start(1, 2)
    produced(cluster, 300, producer)
    found(cluster, producer)
