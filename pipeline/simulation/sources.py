"""Makes the partitions of a simulation, and its scenario, of a generated cluster, of a snapshot, or of a journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm.pipeline.simulation import generated_cluster as generator
from klamm.pipeline.simulation.generated_cluster import Generated
from klamm.pipeline.simulation.journal import read_journal
from klamm.pipeline.simulation.patterns import Scenario
from klamm.pipeline.simulation.simulate import Partitions, group
from klamm.pipeline.simulation.snapshot import Snapshot, with_sizes, with_targets
from klamm.pipeline.simulation.steps import Brokers, Step, check
from klamm.protocol.nouns import Ints, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Plans = Sequence[Mapping[TopicPartition, Ints]]


class Sizes(NamedTuple):
    """How large partitions are: a table file, or a lognormal distribution with a mean."""

    path: str | None
    mean_bytes: int
    sigma: float
    seed: int


def generated(
    spark: SparkSession, cluster: Generated, steps: tuple[Step, ...], plans: Plans, names: Sequence[str], sizes: Sizes, min_isr: int
) -> tuple[Partitions, Scenario]:
    """A generated cluster. Raises BadStep and BadSource."""
    brokers = Brokers(frozenset(cluster.ids))
    check(brokers, cluster.ids, steps)
    rows = generator.rows(spark, cluster)
    if plans:
        partitions = _planned(spark, rows, cluster.rack_of, plans, names, sizes)
    else:
        patterns, draws = generator.grouped(spark, cluster), generator.ungrouped(spark, cluster)
        partitions = Partitions(patterns, rows, cluster.rack_of, generator.expanding(cluster), draws)
    return partitions, Scenario(brokers, steps, min_isr)


def read(
    spark: SparkSession, snapshot: Snapshot, steps: tuple[Step, ...], plans: Plans, names: Sequence[str], sizes: Sizes, min_isr: int
) -> tuple[Partitions, Scenario]:
    """A cluster that was read. Raises BadStep and BadSource."""
    brokers = Brokers(snapshot.registered, listed=snapshot.listed, unclean=snapshot.unclean)
    check(brokers, snapshot.racks, steps)
    rows = snapshot.rows(spark)
    partitions = _planned(spark, rows, snapshot.racks, plans, names, sizes) if plans else Partitions(group(rows), rows, snapshot.racks)
    return partitions, Scenario(brokers, steps, min_isr)


def journal(
    spark: SparkSession, lake: Path, run: str | None, steps: tuple[Step, ...], plans: Plans, names: Sequence[str], sizes: Sizes,
    min_isr: int,
) -> tuple[Partitions, Scenario]:
    """The cluster of a journal. Raises BadStep and BadSource."""
    return read(spark, read_journal(spark, lake, run), steps, plans, names, sizes, min_isr)


def _planned(
    spark: SparkSession, rows: DataFrame, racks: dict[int, str | None], plans: Plans, names: Sequence[str], sizes: Sizes
) -> Partitions:
    """The partitions with the targets of those that are reassigned, and with their sizes."""
    rows = with_targets(spark, rows, plans, names)
    rows = with_sizes(spark, rows, sizes.path, sizes.mean_bytes, sizes.sigma, sizes.seed)
    return Partitions(group(rows), rows, racks)
