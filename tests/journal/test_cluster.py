"""A cluster with a journal: every broker writes all frames and connections, without a gap, and no other broker can write there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from klamm.journal import reading
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.waits import eventually
from klamm.tests.journal.cluster_rows import gaps, rows


async def test_every_broker_of_a_cluster_writes_all_its_frames_without_a_gap(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    config = {"klamm.journal.dir": str(tmp_path), "klamm.journal.run": "one"}
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config=config, topics=[SeedTopic("t", 3, 2)])
    await cluster.start()
    await cluster.kill_broker(2, expire=True)
    await cluster.start_broker(2)
    await eventually(lambda: any(row["kind"] == "to leader" for row in rows(tmp_path, "frames")), "a follower fetched")
    await cluster.stop()
    assert gaps(tmp_path) == {1: 0, 2: 0}
    frames = rows(tmp_path, "frames")
    assert {(row["run_id"], row["node_id"], row["process"]) for row in frames} == {("one", 1, 1), ("one", 2, 1), ("one", 2, 2)}
    kinds = Counter((row["kind"], row["dir"]) for row in frames)
    assert {("accepted", 0), ("accepted", 1), ("channel", 2), ("channel", 3), ("to leader", 2)} <= kinds.keys()
    by_seq = {(row["node_id"], row["seq"]): row for row in frames}
    for row in frames:
        if row["dir"] in (1, 3):
            request = by_seq[row["node_id"], row["cause_seq"]]
            assert (request["conn_id"], request["correlation_id"], request["api_key"]) == (
                row["conn_id"], row["correlation_id"], row["api_key"]
            )
    opened = {(row["node_id"], row["process"], row["conn_id"]) for row in rows(tmp_path, "events") if row["kind"] == "conn_open"}
    assert {(row["node_id"], row["process"], row["conn_id"]) for row in frames} <= opened
    assert all(segment.sealed for segment in reading.segments(tmp_path))


async def test_a_second_cluster_in_the_same_run_is_refused_in_one_line(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    config = {"klamm.journal.dir": str(tmp_path), "klamm.journal.run": "one"}
    cluster = LocalCluster(1, zookeeper=zookeeper + chroot + "/a", config=config)
    await cluster.start()
    try:
        second = LocalCluster(1, zookeeper=zookeeper + chroot + "/b", config=config)
        with pytest.raises(StartFailed, match="another broker 1 is writing its journal of run one"):
            await second.start()
    finally:
        await cluster.stop()
