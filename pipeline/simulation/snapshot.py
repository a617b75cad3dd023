"""The state of a cluster as it was read from somewhere, and the partitions of a simulation made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.protocol.nouns import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INTS = pa.list_(pa.int32())
_DRAWS = 2**53


class BadSource(Exception):
    """A source of partitions that cannot be used; the text is one line."""


@dataclass(slots=True)
class Snapshot:
    """A cluster: who is registered, what is assigned, and the states of the partitions."""

    partitions: dict[TopicPartition, tuple[Assignment, LeaderAndIsr | None]]
    registered: frozenset[int]
    racks: dict[int, str | None] = field(default_factory=dict)
    listed: frozenset[int] = frozenset()
    """Brokers on `preferred_leader_blacklist`."""
    unclean: bool = False
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    deleting: frozenset[str] = frozenset()
    """Topics that are queued for deletion."""

    def __post_init__(self) -> None:
        """Every broker that something is assigned to is a broker of the cluster, whether it runs or not."""
        assigned = {b for assignment, _ in self.partitions.values() for b in assignment.replicas}
        for b in sorted(self.registered | assigned):
            self.racks.setdefault(b, None)

    def rows(self, spark: SparkSession) -> DataFrame:
        """A row for each partition. Columns that are the same for all, and that a key does without, are left out."""
        if not self.partitions:
            raise BadSource("the cluster has no partitions")
        keys = list(self.partitions)
        assignments = [assignment for assignment, _ in self.partitions.values()]
        states = [state for _, state in self.partitions.values()]
        columns: dict[str, pa.Array] = {
            "topic": pa.array([topic for topic, _ in keys], pa.string()),
            "partition": pa.array([partition for _, partition in keys], pa.int32()),
            "replicas": pa.array([a.replicas for a in assignments], _INTS),
            "leader": pa.array([None if s is None else s.leader for s in states], pa.int32()),
            "isr": pa.array([None if s is None else s.isr for s in states], _INTS),
            "leader_epoch": pa.array([NO_EPOCH if s is None else s.leader_epoch for s in states], pa.int32()),
            "partition_epoch": pa.array([NO_EPOCH if s is None else s.partition_epoch for s in states], pa.int32()),
        }
        if any(a.is_reassigning for a in assignments):
            columns["adding"] = pa.array([a.adding for a in assignments], _INTS)
            columns["removing"] = pa.array([a.removing for a in assignments], _INTS)
        if any(s is not None and s.recovery for s in states):
            columns["recovery"] = pa.array([None if s is None else s.recovery for s in states], pa.int32())
        columns |= self._by_topic([topic for topic, _ in keys])
        return spark.createDataFrame(pa.table(columns))

    def _by_topic(self, topics: Sequence[str]) -> dict[str, pa.Array]:
        columns: dict[str, pa.Array] = {}
        unclean = {t: c["unclean.leader.election.enable"] for t, c in self.topic_configs.items() if "unclean.leader.election.enable" in c}
        if unclean:
            allowed = {topic: value.strip().lower() == "true" for topic, value in unclean.items()}
            columns["unclean"] = pa.array([allowed.get(topic) for topic in topics], pa.bool_())
        least = {t: int(c["min.insync.replicas"]) for t, c in self.topic_configs.items() if _is_number(c.get("min.insync.replicas"))}
        if least:
            columns["min_isr"] = pa.array([least.get(topic) for topic in topics], pa.int32())
        if self.deleting:
            columns["queued"] = pa.array([topic in self.deleting for topic in topics], pa.bool_())
        return columns


def _is_number(text: str | None) -> bool:
    return text is not None and text.strip().isdigit()


def with_targets(
    spark: SparkSession, rows: DataFrame, plans: Sequence[Mapping[TopicPartition, Sequence[int]]], names: Sequence[str]
) -> DataFrame:
    """Rows with a column `targets`: what each of the plans wants of the partition. Raises BadSource for a partition that is not there."""
    wanted: dict[TopicPartition, list[Sequence[int] | None]] = {}
    for at, plan in enumerate(plans):
        for key, replicas in plan.items():
            wanted.setdefault(key, [None] * len(plans))[at] = replicas
    if not wanted:
        return rows
    table = pa.table({
        "topic": pa.array([topic for topic, _ in wanted], pa.string()),
        "partition": pa.array([partition for _, partition in wanted], pa.int32()),
        "targets": pa.array(list(wanted.values()), pa.list_(_INTS)),
    })
    targets = spark.createDataFrame(table)
    missing = targets.join(rows, ["topic", "partition"], "left_anti").select("topic", "partition").sort("topic", "partition").take(1)
    if missing:
        key = TopicPartition(missing[0]["topic"], missing[0]["partition"])
        name = next(name for plan, name in zip(plans, names, strict=True) if key in plan)
        raise BadSource(f"{name}: the cluster has no partition {key}")
    return rows.join(targets, ["topic", "partition"], "left")


def with_sizes(spark: SparkSession, rows: DataFrame, path: str | None, mean_bytes: int, sigma: float, seed: int) -> DataFrame:
    """Rows with a column `bytes`: from a table file (Parquet, CSV with a header, JSON lines) with topic, partition and bytes, or drawn from
    a lognormal distribution. Raises BadSource where the file lacks a column or a partition.
    """
    if path is None:
        first, second = (f"((pmod(xxhash64(topic, partition, {seed}L, {salt}), {_DRAWS - 1}L) + 1) / {_DRAWS}D)" for salt in (1, 2))
        normal = f"sqrt(-2 * ln({first})) * cos(2 * pi() * {second})"
        return rows.selectExpr("*", f"CAST({mean_bytes}D * exp({sigma}D * {normal} - {sigma * sigma / 2}D) AS BIGINT) AS bytes")
    kind = path.rsplit(".", 1)[-1].lower()
    try:
        if kind == "csv":
            sizes = spark.read.option("header", True).csv(path)
        elif kind in ("json", "jsonl"):
            sizes = spark.read.json(path)
        else:
            sizes = spark.read.parquet(path)
        columns = set(sizes.columns)
    except Exception as problem:  # PySpark raises many classes for a file that cannot be read
        raise BadSource(f"{path}: {str(problem).strip().splitlines()[0]}") from problem
    lacking = [name for name in ("topic", "partition", "bytes") if name not in columns]
    if lacking:
        raise BadSource(f"{path}: the table of sizes has no column {', '.join(lacking)}")
    sizes = sizes.selectExpr("topic", "try_cast(partition AS INT) AS partition", "try_cast(bytes AS BIGINT) AS bytes")
    sizes = sizes.groupBy("topic", "partition").max("bytes").withColumnRenamed("max(bytes)", "bytes")
    joined = rows.join(sizes, ["topic", "partition"], "left")
    missing = joined.where("bytes IS NULL OR bytes < 0").select("topic", "partition").sort("topic", "partition").take(1)
    if missing:
        raise BadSource(f"{path}: no size of partition {missing[0]['topic']}-{missing[0]['partition']}")
    return joined


