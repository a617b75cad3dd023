"""What-if questions about leaders, at the scale of millions of partitions, answered with the controller's own rules.

Partitions with the same replicas and state are one pattern (`simulation/patterns.py`). Spark groups the partitions. Each pattern goes once
through all steps (`simulation/procedures.py`), weighted with its number of partitions, and Spark adds up what each step changes. The
automatic rebalance depends on all partitions of a broker, so a simulation with a rebalance first counts the ratios in a separate pass over
the patterns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from klamm.pipeline.simulation.outcome import Outcome, outcome
from klamm.pipeline.simulation.patterns import COUNTED_DDL, KEY, OUTCOME_DDL, PATTERNS, Batches, Scenario, counting, finishing, measuring
from klamm.pipeline.simulation.steps import Rebalance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Partitions(NamedTuple):
    """The partitions of a simulation, as Spark has them."""

    patterns: DataFrame
    """A DataFrame: columns of `KEY`, `weight` (partitions) and `bytes` (of all of them; may be missing), or the input of `expand`."""
    rows: DataFrame
    """A DataFrame: topic, partition, the same columns of `KEY`, and leader_epoch and partition_epoch where they are known."""
    racks: dict[int, str | None]
    """The racks of all brokers of the cluster, including those that do not run."""
    expand: Callable[[Batches], Iterator[pa.RecordBatch]] | None = None
    """Makes patterns from shorter rows, in the worker that simulates them."""
    ungrouped: DataFrame | None = None
    """Used instead of `patterns` if `expand` groups them itself and several workers may get the same pattern."""

    def map(self, function: Callable[[Batches], Iterator[pa.RecordBatch]], ddl: str) -> DataFrame:
        """A DataFrame with the results of a function that workers call with the patterns."""
        expand = self.expand
        return self.patterns.mapInArrow(function if expand is None else lambda batches: function(expand(batches)), ddl)


def group(rows: DataFrame) -> DataFrame:
    """The patterns of rows that have columns of `KEY` and perhaps `bytes`."""
    names = [name for name in KEY if name in rows.columns]
    sizes = ["CAST(sum(bytes) AS BIGINT) AS bytes"] if "bytes" in rows.columns else []
    grouped = rows.groupBy(*names)
    from pyspark.sql import functions

    return grouped.agg(functions.expr("count(1) AS weight"), *(functions.expr(text) for text in sizes))


def simulate(partitions: Partitions, scenario: Scenario, throttle: int | None = None) -> Outcome:
    """Take a cluster through the steps. `throttle` is in bytes a second, for each broker and direction."""
    held = any(isinstance(step, Rebalance) for step in scenario.steps)
    if held:
        partitions = partitions._replace(patterns=partitions.patterns.persist())
    elif partitions.ungrouped is not None:
        partitions = partitions._replace(patterns=partitions.ungrouped)
    try:
        rebalanced = over_ratio(partitions, scenario)
        sums = _sums(partitions.map(counting(scenario, rebalanced), COUNTED_DDL))
    finally:
        if held:
            partitions.patterns.unpersist()
    number = sums.pop(PATTERNS, (0, 0))[0]
    return outcome(scenario, sums, partitions.racks, throttle, number)


def over_ratio(partitions: Partitions, scenario: Scenario) -> dict[int, frozenset[int]]:
    """For each Rebalance step, the brokers that get leaders back, because others lead more than the percentage of their partitions."""
    rebalanced: dict[int, frozenset[int]] = {}
    for number, step in enumerate(scenario.steps):
        if isinstance(step, Rebalance):
            sums = _sums(partitions.map(measuring(scenario, dict(rebalanced), number), COUNTED_DDL))
            owned = {b: count for (_, metric, b), (count, _) in sums.items() if metric == "owned"}
            elsewhere = {b: count for (_, metric, b), (count, _) in sums.items() if metric == "imbalanced"}
            rebalanced[number] = frozenset(b for b, count in elsewhere.items() if count / owned[b] > step.percentage / 100)
    return rebalanced


def finished_rows(partitions: Partitions, scenario: Scenario) -> DataFrame:
    """A row for each partition: topic, partition, its state before the first step and after the last one."""
    rebalanced = over_ratio(partitions, scenario)
    names = [name for name in KEY if name in partitions.rows.columns]
    key = ", ".join(f"{name} {KEY[name]}" for name in names)
    keys = partitions.patterns.select(*names) if partitions.expand is None else partitions.rows.select(*names)
    done = keys.distinct().mapInArrow(finishing(scenario, rebalanced, names), f"{key}, {OUTCOME_DDL}")
    rows, done = partitions.rows.alias("old"), done.alias("new")
    alike = " AND ".join(f"old.{name} <=> new.{name}" for name in names)
    from pyspark.sql import functions

    joined = rows.join(done, functions.expr(alike))
    was_leader, was_isr = ("old.leader", "old.isr") if "leader" in names else ("old.replicas[0]", "old.replicas")
    columns = partitions.rows.columns
    epoch = "old.leader_epoch" if "leader_epoch" in columns else "0"
    version = "old.partition_epoch" if "partition_epoch" in columns else "0"
    return joined.selectExpr(
        "old.topic", "old.partition", f"{was_leader} AS leader_before", f"{was_isr} AS isr_before", "old.replicas AS replicas_before",
        "new_leader AS leader", "new_isr AS isr", "new_replicas AS replicas", "new_adding AS adding", "new_removing AS removing",
        "new_recovery AS recovery", f"{_risen(epoch, 'leader_epochs')} AS leader_epoch",
        f"{_risen(version, 'partition_epochs')} AS partition_epoch",
    )


def _risen(epoch: str, by: str) -> str:
    """SQL: an epoch that has risen, an int32 that overflows as in Kafka."""
    return f"CAST((CAST({epoch} AS BIGINT) + {by} + 2147483648) % 4294967296 - 2147483648 AS INT)"


def _sums(counted: DataFrame) -> dict[tuple[int, str, int], tuple[int, int]]:
    """The sums over the rows of all workers."""
    counts: defaultdict[tuple[int, str, int], list[int]] = defaultdict(lambda: [0, 0])
    table = counted.toArrow()
    for step, metric, broker, partitions, size in zip(*(column.to_pylist() for column in table.columns), strict=True):
        entry = counts[step, metric, broker]
        entry[0] += partitions
        entry[1] += size
    return {key: (partitions, size) for key, (partitions, size) in counts.items()}
