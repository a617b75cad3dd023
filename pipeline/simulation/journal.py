"""A cluster from a journal: the last state of each partition that the controller told brokers (`silver/partition_state`), and the brokers
that its last UpdateMetadata listed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.pipeline.lake import delta_log, spark_views, tables
from klamm.pipeline.simulation.snapshot import BadSource, Snapshot
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATES = f"""
SELECT topic, partition,
    max_by(struct(leader, leader_epoch, isr, replicas, partition_epoch, recovery), struct(controller_epoch, ts_ns, seq)) AS last,
    max_by(struct(replicas, adding, removing, recovery), struct(controller_epoch, ts_ns, seq))
        FILTER (WHERE api_key = {ApiKey.LEADER_AND_ISR}) AS told
FROM simulated_states
WHERE api_key IN ({ApiKey.LEADER_AND_ISR}, {ApiKey.UPDATE_METADATA}) AND topic IS NOT NULL AND replicas IS NOT NULL
GROUP BY topic, partition
"""
"""`told`: UpdateMetadata names neither the replicas that are added and removed nor the recovery mark, LeaderAndIsr does."""
_BROKERS = f"""
SELECT broker_id, max_by(rack, struct(ts_ns, seq)) AS rack,
    max(struct(controller_epoch, ts_ns)) = (
        SELECT max(struct(controller_epoch, ts_ns)) FROM simulated_brokers WHERE api_key = {ApiKey.UPDATE_METADATA}) AS runs
FROM simulated_brokers WHERE api_key = {ApiKey.UPDATE_METADATA} GROUP BY broker_id
"""


def last_run(lake: Path) -> str:
    """The run of the journal that began last. Raises BadSource where there is none."""
    runs = [entry.run for entry in delta_log.entries(lake, tables.PARTITION_STATE.path)]
    if not runs:
        raise BadSource(f"{lake}: no table {tables.PARTITION_STATE.path} to begin from; `klamm pipeline run {lake}` makes it of a journal")
    return max(runs)


def read_journal(spark: SparkSession, lake: Path, run: str | None = None) -> Snapshot:
    """The cluster at the end of a run, of the last one where none is named. Raises BadSource."""
    chosen = last_run(lake) if run is None else run
    for name, table in (("simulated_states", tables.PARTITION_STATE), ("simulated_brokers", tables.BROKER_STATE)):
        spark_views.read(spark, lake, table, [chosen]).createOrReplaceTempView(name)
    partitions: dict[TopicPartition, tuple[Assignment, LeaderAndIsr | None]] = {}
    for row in spark.sql(_STATES).collect():
        last = row["last"]
        if last["leader"] < NO_LEADER:
            continue  # the topic was being deleted
        told, moving = row["told"], {}
        if told is not None and told["replicas"] == last["replicas"]:
            moving = {name: tuple(told[name]) for name in ("adding", "removing") if told[name] is not None}
        assignment = Assignment(tuple(last["replicas"]), **moving)
        recovery = next((r for r in (last["recovery"], None if told is None else told["recovery"]) if r is not None), 0)
        state = LeaderAndIsr(last["leader"], last["leader_epoch"], tuple(last["isr"]), recovery, last["partition_epoch"])
        partitions[TopicPartition(row["topic"], row["partition"])] = assignment, state
    if not partitions:
        raise BadSource(f"{lake}: run {chosen} tells of no partition")
    brokers = spark.sql(_BROKERS).collect()
    for name in ("simulated_states", "simulated_brokers"):
        spark.catalog.dropTempView(name)
    return Snapshot(
        partitions, frozenset(row["broker_id"] for row in brokers if row["runs"]), {row["broker_id"]: row["rack"] for row in brokers}
    )
