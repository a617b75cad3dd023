"""Brokers that coordinate groups in tests, of Klamm or of Apache Kafka: `GROUPS_COORDINATED_BY=kafka` says which."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import jars

BROKERS = (1, 2, 3)
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": 3,
    "offsets_topic_replication_factor": 3,
    "group_min_session_timeout_ms": 1000,
    "group_initial_rebalance_delay_ms": 200,
    "zookeeper_session_timeout_ms": 3000,
    "replica_lag_time_max_ms": 3000,
    "auto_leader_rebalance_enable": "false",
}


def make_members(zookeeper: str, chroot: str, folder: Path) -> Members:
    """Three brokers that run, of Klamm or of Apache Kafka."""
    of_kafka = os.environ.get("GROUPS_COORDINATED_BY") == "kafka"
    members = Members(jars() if of_kafka else Path(), Tree(zookeeper, chroot), folder, lambda _: SETTINGS)
    (members.kafka if of_kafka else members.klamm)(*BROKERS)
    return members


def close(members: Members) -> None:
    members.close()
    members.tree.close()
