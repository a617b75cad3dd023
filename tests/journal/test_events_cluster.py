"""The journals of a cluster: what its controller does can be followed from the frames to brokers back to the frame of the request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from klamm.admin.async_client import AsyncAdminClient
from klamm.controller.event_loop import decision_json
from klamm.protocol.nouns import TopicPartition
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.waits import eventually_asked
from klamm.tests.journal.cluster_rows import gaps, rows
from klamm.tests.journal.kinds import KINDS

Rows = dict[tuple[int, int], dict[str, Any]]


@pytest.fixture
async def lake(zookeeper: str, chroot: str, tmp_path: Path) -> Path:
    """Of a cluster of three brokers: a topic is moved on request, a broker dies and comes back."""
    config = {"klamm.journal.dir": str(tmp_path), "klamm.journal.run": "one"}
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, config=config, topics=[SeedTopic("t", 2, 2)])
    await cluster.start()
    async with AsyncAdminClient(cluster.bootstrap_servers) as admin:
        await admin.alter_partition_reassignments({TopicPartition("t", 0): (3, 1), TopicPartition("t", 1): (3, 2)})

        async def all_moved() -> bool | None:
            return not await admin.list_partition_reassignments() or None

        await eventually_asked(all_moved, "nothing is being reassigned")
    await cluster.kill_broker(2, expire=True)
    await cluster.start_broker(2)
    await cluster.stop()
    return tmp_path


def by_number(lake: Path) -> Rows:
    return {(row["node_id"], row["seq"]): {**row, "table": table} for table in ("frames", "events") for row in rows(lake, table)}


async def test_frames_to_brokers_are_followed_to_the_request_that_caused_them(lake: Path) -> None:
    assert set(gaps(lake).values()) == {0}
    all_rows = by_number(lake)
    requests = set()
    followed = 0
    for (node, _), frame in all_rows.items():
        if frame["table"] == "frames" and frame["kind"] == "channel" and frame["dir"] == 2:
            batch = all_rows[node, frame["cause_seq"]]
            assert batch["kind"] == "batch"
            sent = {(key, version, b) for key, version, ids in json.loads(batch["output"])["requests"] for b in ids}
            assert (frame["api_key"], frame["api_version"], frame["peer_id"]) in sent
            event = all_rows[node, batch["cause_seq"]]
            assert event["kind"] == "controller_event"
            followed += 1
            if event["cause_seq"] is not None:
                cause = all_rows[node, event["cause_seq"]]
                if cause["table"] == "frames":
                    requests.add((cause["api_key"], cause["dir"]))
    assert followed > 10
    assert {(45, 0), (56, 0)} <= requests


async def test_rows_are_as_the_table_of_kinds_says_and_decisions_are_made_again(lake: Path) -> None:
    events = rows(lake, "events")
    assert len(events) > 50
    for row in events:
        kind = KINDS[row["kind"]]
        columns = {name for name in row if row[name] is not None} & {
            "conn_id", "topic", "topic_id", "partition", "broker", "controller_epoch", "leader_epoch", "partition_epoch",
        }
        assert {name for name in kind.columns if not name.endswith("?")} <= columns <= {name.rstrip("?") for name in kind.columns}, row
        assert (row["input"] is not None, row["output"] is not None) == (bool(kind.input), bool(kind.output)), row
        if row["kind"] == "decision":
            assert decision_json.replay(row["input"]) == row["output"]
    kinds = {row["kind"] for row in events}
    assert {"broker_started", "advertised", "decision", "zk_write", "batch", "reassign_phase", "partition_state", "conn_close"} <= kinds
    first = {(row["node_id"], row["process"]): row["kind"] for row in sorted(events, key=lambda row: -row["seq"])}
    assert set(first.values()) == {"broker_started"}
    stopped = {(row["node_id"], row["process"]) for row in events if row["kind"] == "broker_stopped"}
    assert stopped == {(1, 1), (2, 2), (3, 1)}
