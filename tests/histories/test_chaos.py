"""Nothing that was acknowledged with acks=all is lost, and order holds, while brokers die, pause, controllers change and replicas move.

    KLAMM_CHAOS_SECONDS=600 KLAMM_CHAOS_SEED=7 .venv/bin/python -m pytest tests/histories -k long

They take a minute unless told otherwise, and say their seed. `klamm chaos` (tests/chaos) has the usual faults. Here are clusters with real
brokers, and what `klamm chaos` has not: directories that go away, logs that move between them, DeleteRecords, compaction, a ZooKeeper that
fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from klamm.chaos.clients.producers import Producing
from klamm.chaos.clients.reading import Reading, read_all
from klamm.chaos.histories.history import Verdict, judge
from klamm.chaos.small_disks import can_mount
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.histories.chaos import SETTINGS, Chaos, Fault
from klamm.tests.histories.keyed import judge_last_values
from klamm.tests.histories.small_disks import SmallDiskMembers
from klamm.tests.histories.storage_faults import StorageFaults
from klamm.tests.histories.workload import LONG_S, SEED, KeyedProducing, last_values
from klamm.tests.histories.zookeeper_faults import FailingZooKeeper
from klamm.tests.moves.moving import Moving
from klamm.tests.reference.jars import jars

BROKERS = (1, 2, 3, 4)
FACTOR = 3
PARTITIONS = 6
TOPIC = "history"
COMPACTED = "latest"
KEYS = 300
ALL_REAL_S = 30.0
REAL_SESSION_MS = 4_000
"""A real broker that starts on a busy machine may lose a shorter session, and then it ends."""
SMALL_SEGMENTS: dict[str, Any] = {"log_segment_bytes": 256 * 1024}


@pytest.fixture
def new_members(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Callable[..., Members]]:
    """Makes members that die with the test."""
    made: list[Members] = []

    def make(jars: Path, **settings: Any) -> Members:
        made.append(Members(jars, Tree(zookeeper, chroot), tmp_path, lambda _: {**SETTINGS, **settings}))
        return made[-1]

    yield make
    for members in made:
        members.close()
        members.tree.close()


def replicas() -> list[list[int]]:
    """Replicas of each partition, spread evenly."""
    return [[BROKERS[(p + n) % len(BROKERS)] for n in range(FACTOR)] for p in range(PARTITIONS)]


More = Callable[[Reading, dict[int, int]], Mapping[str, Fault]]
"""Faults besides the usual ones, for the reader; they note up to which offsets they asked to delete records, by partition."""


def history(members: Members, seconds: float, seed: int, more: More | None = None) -> Verdict:
    """Two idempotent producers and one that is not, a reader beside them, chaos, and then the judgement."""
    members.create(TOPIC, replicas(), {"min.insync.replicas": "2"})
    where = (members.bootstrap(), TOPIC, PARTITIONS)
    producers = [Producing(*where, f"idempotent{n}", idempotent=True).start() for n in range(2)]
    producers.append(Producing(*where, "plain", idempotent=False).start())
    along = Reading(*where).start()
    deleted: dict[int, int] = {}
    chaos = Chaos(members, seed, Moving(members, TOPIC, PARTITIONS), more(along, deleted) if more is not None else None)
    try:
        chaos.run(seconds)
    finally:
        for producer in producers:
            producer.finish()
    logs = read_all(*where)
    along.finish(logs)
    verdict = judge((sent for producer in producers for sent in producer.sent), logs, along.logs, deleted)
    fatal = [error for producer in producers for error in producer.fatal]
    read = sum(len(log) for log in along.logs.values())
    print(f"seed {seed}, {seconds:.0f} s, faults {dict(chaos.done)}; {verdict.text()}; fatal {fatal}; read along {read}; deleted {deleted}")
    assert verdict.faults == {}, f"seed {seed}: {verdict.text()}\n{verdict.faults}"
    assert along.faults == [], f"seed {seed}"
    assert fatal == [], f"seed {seed}: producers were told what cannot be: {fatal}"
    return verdict


@pytest.fixture
def failing_zookeeper(tmp_path: Path) -> Iterator[FailingZooKeeper]:
    server = FailingZooKeeper(tmp_path / "zookeeper", BROKERS)
    yield server
    server.close()


@pytest.fixture
def small_disk_members(failing_zookeeper: FailingZooKeeper, tmp_path: Path) -> Iterator[SmallDiskMembers]:
    """Brokers with two log directories, one of them on a small disk, and a way of their own to a ZooKeeper that fails."""
    if not can_mount():
        assert "CI" not in os.environ, "CI needs a machine on which `unshare` may mount a small disk"
        pytest.skip("nobody may mount a small disk here")

    def settings(broker_id: int) -> dict[str, Any]:
        return {**SETTINGS, **SMALL_SEGMENTS, "zookeeper_connect": failing_zookeeper.address(broker_id), "log_cleaner_backoff_ms": 500}

    members = SmallDiskMembers(Path(), failing_zookeeper.tree, tmp_path, settings)
    members.disk_bytes += int(LONG_S * 200_000)
    yield members
    members.close()


@pytest.mark.slow
@pytest.mark.timeout(int(LONG_S) + 600)
def test_nothing_acknowledged_is_lost_in_a_long_story_of_faults(
    small_disk_members: SmallDiskMembers, failing_zookeeper: FailingZooKeeper
) -> None:
    """With a compacted topic beside: every key ends with its last acknowledged record, or a later one."""
    members = small_disk_members
    members.klamm(*BROKERS)
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05", "segment.ms": "2000", "min.insync.replicas": "2"}
    members.create(COMPACTED, replicas(), configs)
    keyed = KeyedProducing(members.bootstrap(), COMPACTED, PARTITIONS, "keyed", KEYS).start()

    def more(along: Reading, deleted: dict[int, int]) -> Mapping[str, Fault]:
        return {**StorageFaults(members, {TOPIC: PARTITIONS, COMPACTED: PARTITIONS}, along, deleted).faults(), **failing_zookeeper.faults()}

    try:
        verdict = history(members, LONG_S, SEED, more)
    finally:
        keyed.finish()
    last, records = last_values(members.bootstrap(), COMPACTED, PARTITIONS)
    print(f"{COMPACTED}: {keyed.acknowledged} acknowledged, {records} left of {len(last)} keys")
    assert judge_last_values(keyed.keyed(), last) == [], f"seed {SEED}"
    assert keyed.fatal == [], f"seed {SEED}"
    assert records < keyed.acknowledged / 2, "the topic was compacted while this went on"
    assert verdict.acknowledged > 50 * LONG_S


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.timeout(int(LONG_S) + 600)
@pytest.mark.parametrize("real", [(2,), (1, 3, 4), BROKERS], ids=["one real", "three real", "all real"])
def test_nothing_acknowledged_is_lost_beside_real_brokers(new_members: Callable[..., Members], real: tuple[int, ...]) -> None:
    """All real: the story asks nothing that Kafka does not keep."""
    members = new_members(jars(), **SMALL_SEGMENTS, zookeeper_session_timeout_ms=REAL_SESSION_MS)
    ours = [broker_id for broker_id in BROKERS if broker_id not in real]
    if ours:
        members.klamm(*ours)
    members.kafka(*real)
    assert history(members, min(LONG_S, ALL_REAL_S) if real == BROKERS else LONG_S, SEED).acknowledged > 500
