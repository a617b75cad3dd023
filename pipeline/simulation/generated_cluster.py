"""A generated cluster with a given number of partitions and brokers, the same for the same seed.

All brokers run, all replicas are in sync, and the first one leads. `kafka` places replicas as an Apache Kafka controller does
(`controller/decisions/placement.py`), with a start and a shift drawn for each topic; topics that drew the same are placed once. `random`
draws the replicas of each partition for itself, which gives the most different patterns that there can be.

Draws are hashes of a number and the seed, so that they do not depend on how Spark divides the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import compute

from klamm.controller.decisions.placement import place_replicas
from klamm.pipeline.simulation.patterns import Batches
from klamm.protocol.nouns import Ints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATTERNS = pa.schema([("replicas", pa.list_(pa.int32())), ("weight", pa.int64())])
PATTERNS_DDL = "replicas array<int>, weight bigint"
ROWS = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("replicas", pa.list_(pa.int32()))])
ROWS_DDL = "topic string, partition int, replicas array<int>"
_ROWS_AT_ONCE = 50_000
_DRAWS_AT_ONCE = 8_000_000
"""A worker counts its draws after this many, which take 64 MB."""
_PATTERNS_AT_ONCE = 16_384
_WIDTH = 16
"""Draws in one row, where they are not grouped: a row costs Spark much more than a number in it."""
_LARGEST = 2**62
"""More orders of replicas than this are not told apart."""


class Generated(NamedTuple):
    """What is generated. Brokers have the ids 1, 2, 3, …; with racks, broker n is in rack r(n mod racks)."""

    partitions: int
    brokers: int
    replication_factor: int = 3
    racks: int = 0
    placement: str = "kafka"
    seed: int = 0
    topic_partitions: int = 100
    """Partitions of a topic; the last one has the rest."""

    @property
    def ids(self) -> range:
        return range(1, self.brokers + 1)

    @property
    def rack_of(self) -> dict[int, str | None]:
        return {b: f"r{b % self.racks}" if self.racks else None for b in self.ids}

    @property
    def topics(self) -> int:
        return -(-self.partitions // self.topic_partitions)

    @property
    def orders(self) -> int:
        """How many lists of replicas there are."""
        orders = 1
        for taken in range(self.replication_factor):
            orders *= self.brokers - taken
        return min(orders, _LARGEST)

    def replicas(self, order: int) -> Ints:
        """The list of replicas with this number, from 0."""
        ids, chosen = list(self.ids), []
        for left in range(self.brokers, self.brokers - self.replication_factor, -1):
            order, at = divmod(order, left)
            chosen.append(ids.pop(at))
        return tuple(chosen)

    def placed(self, draw: int, partitions: int) -> dict[int, Ints]:
        """The partitions of a topic with this draw, which is start and shift in one number."""
        start, shift = divmod(draw, self.brokers)
        return place_replicas(self.rack_of, partitions, self.replication_factor, start, shift)


def grouped(spark: SparkSession, cluster: Generated) -> DataFrame:
    """Draws with their numbers, of which `expanding` makes patterns."""
    if cluster.placement == "random":
        drawn = _drawn(spark.range(cluster.partitions), cluster.orders, cluster.seed)
        return drawn.groupBy("draw").count()
    whole, rest = divmod(cluster.partitions, cluster.topic_partitions)
    drawn = _drawn(spark.range(cluster.topics), cluster.brokers**2, cluster.seed)
    size = f"IF(id < {whole}, {cluster.topic_partitions}, {rest})"
    return drawn.selectExpr("draw", f"{size} AS size").groupBy("draw", "size").count()


def ungrouped(spark: SparkSession, cluster: Generated) -> DataFrame:
    """The draws themselves, which `expanding` counts then; None where that is of no use. Arrow counts in a fraction of the time of Spark's
    aggregation, but several workers have the same patterns then, so it is for what looks at all patterns once.
    """
    if cluster.placement != "random":
        return None
    numbers = [f"id * {_WIDTH}L + {place}" for place in range(_WIDTH)]
    draws = [f"IF({n} < {cluster.partitions}L, {_draw(n, cluster.orders, cluster.seed)}, NULL) AS draw{at}" for at, n in enumerate(numbers)]
    return spark.range(-(-cluster.partitions // _WIDTH)).selectExpr(*draws)


def expanding(cluster: Generated) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: draws in, patterns with their weights out (`PATTERNS_DDL`)."""
    return _orders(cluster) if cluster.placement == "random" else _placements(cluster)


def rows(spark: SparkSession, cluster: Generated) -> DataFrame:
    """A row for each partition: `ROWS_DDL`."""
    if cluster.placement == "random":
        drawn = _drawn(spark.range(cluster.partitions), cluster.orders, cluster.seed)
        return drawn.mapInArrow(_random_rows(cluster), ROWS_DDL)
    drawn = _drawn(spark.range(cluster.topics), cluster.brokers**2, cluster.seed)
    return drawn.mapInArrow(_placed_rows(cluster), ROWS_DDL)


def topic_name(cluster: Generated, number: int) -> str:
    """`topic-0007`: as many digits as the largest number has."""
    return f"topic-{number:0{len(str(cluster.topics - 1))}}"


def orders(cluster: Generated, numbers: pa.Array) -> pa.Array:
    """`Generated.replicas` of many numbers at once: the place among the brokers that are left becomes one among all."""
    chosen: list[pa.Array] = []
    ascending: list[pa.Array] = []
    for left in range(cluster.brokers, cluster.brokers - cluster.replication_factor, -1):
        rest = compute.divide(numbers, left)
        broker = compute.subtract(numbers, compute.multiply(rest, left))
        numbers = rest
        for taken in ascending:
            broker = compute.add(broker, compute.cast(compute.greater_equal(broker, taken), pa.int64()))
        chosen.append(broker)
        for at, taken in enumerate(ascending):
            ascending[at] = compute.min_element_wise(taken, broker)
            broker = compute.max_element_wise(taken, broker)
        ascending.append(broker)
    rows, places = len(chosen[0]), len(chosen)
    position = pa.array(range(rows * places), pa.int64())
    row = compute.divide(position, places)
    place = compute.subtract(position, compute.multiply(row, places))
    flat = pa.concat_arrays(chosen).take(compute.add(compute.multiply(place, rows), row))
    ends = pa.array(range(0, rows * places + 1, places), pa.int32())
    return pa.ListArray.from_arrays(ends, compute.cast(compute.add(flat, 1), pa.int32()))


def _drawn(numbers: DataFrame, limit: int, seed: int) -> DataFrame:
    return numbers.selectExpr("id", f"{_draw('id', limit, seed)} AS draw")


def _draw(number: str, limit: int, seed: int) -> str:
    return f"pmod(xxhash64({number}, {seed}L), {limit}L)"


def _orders(cluster: Generated) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def expand(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in _counted(batches):
            yield pa.RecordBatch.from_arrays([orders(cluster, batch.column("draw")), batch.column("count")], schema=PATTERNS)

    return expand


def _counted(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Draws with their numbers, which Spark counted, or which are counted here."""
    counted, waiting = pa.table({"draw": pa.array([], pa.int64()), "count": pa.array([], pa.int64())}), []
    rows = 0
    for batch in batches:
        if "count" in batch.schema.names:
            yield batch
            continue
        waiting += [column.drop_null() for column in batch.columns]
        rows += batch.num_rows * batch.num_columns
        if rows >= _DRAWS_AT_ONCE:
            counted, waiting, rows = _added(counted, waiting), [], 0
    yield from _added(counted, waiting).to_batches(_PATTERNS_AT_ONCE)


def _added(counted: pa.Table, draws: list[pa.Array]) -> pa.Table:
    """What was counted, with more draws."""
    counts = compute.value_counts(pa.chunked_array(draws, pa.int64()))
    more = pa.table({"draw": counts.field("values"), "count": counts.field("counts")})
    if not counted.num_rows:
        return more
    sums = pa.concat_tables([counted, more]).group_by("draw", use_threads=False).aggregate([("count", "sum")])
    return sums.rename_columns({"count_sum": "count"})


def _placements(cluster: Generated) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def expand(batches: Batches) -> Iterator[pa.RecordBatch]:
        weights: Counter[Ints] = Counter()
        for batch in batches:
            for draw, size, count in zip(*(batch.column(name).to_pylist() for name in ("draw", "size", "count")), strict=True):
                for replicas in cluster.placed(draw, size).values():
                    weights[replicas] += count
        yield pa.RecordBatch.from_arrays([_lists(list(weights)), pa.array(weights.values(), pa.int64())], schema=PATTERNS)

    return expand


def _random_rows(cluster: Generated) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def expand(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places = [divmod(number, cluster.topic_partitions) for number in batch.column("id").to_pylist()]
            replicas = [tuple(order) for order in orders(cluster, batch.column("draw")).to_pylist()]
            yield _rows_batch(cluster, places, replicas)

    return expand


def _placed_rows(cluster: Generated) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def expand(batches: Batches) -> Iterator[pa.RecordBatch]:
        places: list[tuple[int, int]] = []
        replicas: list[Ints] = []
        for batch in batches:
            for number, draw in zip(batch.column("id").to_pylist(), batch.column("draw").to_pylist(), strict=True):
                size = min(cluster.topic_partitions, cluster.partitions - number * cluster.topic_partitions)
                places += [(number, i) for i in range(size)]
                replicas += cluster.placed(draw, size).values()
                if len(places) >= _ROWS_AT_ONCE:
                    yield _rows_batch(cluster, places, replicas)
                    places, replicas = [], []
        if places:
            yield _rows_batch(cluster, places, replicas)

    return expand


def _rows_batch(cluster: Generated, places: list[tuple[int, int]], replicas: list[Ints]) -> pa.RecordBatch:
    names = {number: topic_name(cluster, number) for number in {number for number, _ in places}}
    topics = pa.array([names[number] for number, _ in places], pa.string())
    partitions = pa.array([i for _, i in places], pa.int32())
    return pa.RecordBatch.from_arrays([topics, partitions, _lists(replicas)], schema=ROWS)


def _lists(values: list[Ints]) -> pa.Array:
    """Lists of the same or of different lengths."""
    ends = [0]
    flat: list[int] = []
    for value in values:
        flat += value
        ends.append(len(flat))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(flat, pa.int32()))
