"""What a cluster of Klamm with transactions of each outcome writes to its journals obeys the rules about transactions and about groups."""

from __future__ import annotations

from pathlib import Path

import pytest

import klamm
from klamm.tests.harness.names import unique_name
from klamm.tests.pipeline.in_duckdb import judged, silver
from klamm.tests.pipeline.real_clusters.transaction_session import live_with_transactions

RULES = ("T-01", "T-02", "T-03", "T-04", "T-05", "G-05", "W-01", "W-09", "W-11")


@pytest.mark.slow
def test_no_rule_about_transactions_is_violated_by_a_cluster_of_three_brokers(zookeeper: str, tmp_path: Path) -> None:
    configs = {
        "klamm.journal.dir": str(tmp_path), "klamm.journal.run": "transactions", "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "1", "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "2", "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
    }
    with klamm.Cluster(3, zookeeper=f"{zookeeper}/{unique_name('tx')}", config=configs, topics=["accounts:3:2"]) as cluster:
        live_with_transactions(cluster.bootstrap_servers, "accounts", 3)
    rows = judged(silver(tmp_path), RULES)
    assert [(row["rule"], row["detail"], row["evidence"]) for row in rows if row["detail"] is not None] == []
    assert {row["rule"] for row in rows} >= {rule for rule in RULES if rule.startswith("T-")}
