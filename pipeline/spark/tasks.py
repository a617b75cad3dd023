"""Tasks of a command, done by Spark's workers, on this machine or on others. They see the lake under the same path."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from klamm.pipeline.spark.task_counts import ended_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MOST_PARTITIONS = 1_000
"""More tasks are done in turn: each partition is sent all tasks."""

T = TypeVar("T")
R = TypeVar("R")


class SparkWorkers:
    """The workers of a session."""

    are_here = False

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def do(self, work: Callable[[T], R], tasks: Sequence[T], ended: Callable[[int], None] = lambda _: None) -> list[R]:
        """What the function returns for each task, as one job; `ended` is called with the number of tasks that have ended since its last
        call, at last with those of which Spark did not say it in time."""
        if not tasks:
            return []
        numbers = self._spark.range(0, len(tasks), 1, min(len(tasks), MOST_PARTITIONS))
        done = numbers.mapInArrow(partial(_done, work, list(tasks)), "outcome binary")
        told = 0

        def tell(count: int) -> None:
            nonlocal told
            told += count
            ended(count)

        with ended_tasks(self._spark, tell):
            outcomes = [pickle.loads(row.outcome) for row in done.collect()]
        if told < len(tasks):
            ended(len(tasks) - told)
        return outcomes


def _done(work: Callable[[T], R], tasks: Sequence[T], numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for some in numbers:
        outcomes = [pickle.dumps(work(tasks[number])) for number in some.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(outcomes, pa.binary())], names=["outcome"])
