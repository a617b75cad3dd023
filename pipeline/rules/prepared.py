"""The order of a judgement's work: views before what reads them, several pieces at once, and nothing that has no rows to look at.

A judgement is some fifty queries. Each names the views that it reads, so they form a graph, and whatever has its inputs is worked on by
the next free thread. There are two layouts of the prepared views:

* `Spread` is for many rows: a view that rules' windows go over is spread and sorted as they want it.
* `Gathered` is for few: Spark then spends its time on planning and on starting tasks, hardly any on rows. Each view, also of silver, is
  computed into one partition that Spark knows to be the only one. So no query shuffles, and each is one stage with one task. A view that
  only one query reads stays a part of it, unless it is to be kept.

A view that is to be kept and turns out to be empty is known to be so, and what only looks at its rows is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, Protocol

from klamm.pipeline.rules.record import View
from klamm.pipeline.spark.settings import SHUFFLE_PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Layout(Protocol):
    """How prepared views are kept while rules read them."""

    keeps_silver: bool
    """The views of silver are prepared too."""

    def keep(self, rows: DataFrame, view: View | None, readers: int) -> DataFrame:
        """What so many queries read in place of `rows`, of a prepared view or of silver."""


class Spread:
    """For many rows."""

    keeps_silver = False

    def __init__(self, spark: SparkSession) -> None:
        # With a number Spark keeps the partitions, and knows of the rows how they are spread and sorted.
        self._parts = int(spark.conf.get(SHUFFLE_PARTITIONS) or 2)

    def keep(self, rows: DataFrame, view: View | None, readers: int) -> DataFrame:
        """Computed, spread and sorted where windows go over it."""
        if view is not None and view.cluster_by:
            rows = rows.repartition(self._parts, *view.cluster_by).sortWithinPartitions(*view.cluster_by, *view.order_by)
        # Cut off from its plan: a plan that is cached is planned again inside each query that reads it. And to put rows into the columns of
        # Spark's cache takes three times as long as to compute them.
        return rows.localCheckpoint()


class Gathered:
    """For few rows."""

    keeps_silver = True

    def keep(self, rows: DataFrame, view: View | None, readers: int) -> DataFrame:
        """Computed into one partition by its first reader, unless there is only one; what is to be kept at once."""
        rows = rows.coalesce(1)
        if readers == 1 and not _is_kept(view):
            return rows
        return rows.localCheckpoint(eager=False)


def _is_kept(view: View | None) -> bool:
    return view is not None and view.is_kept


def prepare(spark: SparkSession, name: str, view: View | None, layout: Layout, empty: set[str], readers: int) -> None:
    """Register what is read under `name`: a prepared view, or without one a view of silver. `empty` gets the name if it has no row."""
    rows = spark.table(name) if view is None else spark.sql(view.sql)
    if name in empty:
        rows = rows.limit(0)  # which Spark folds into what reads it
    else:
        rows = layout.keep(rows, view, readers)
        if _is_kept(view) and rows.isEmpty():
            empty.add(name)
    rows.createOrReplaceTempView(name)


def needed(known: Mapping[str, View], wanted: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Each view among `wanted`, and all that they read, with what it reads itself."""
    found: dict[str, tuple[str, ...]] = {}
    left = list(wanted)
    while left:
        name = left.pop()
        if name not in found:
            found[name] = known[name].inputs if name in known else ()
            left += found[name]
    return found


def in_order(graph: Mapping[Any, Iterable[Any]], work: Callable[[Any], None], at_once: int) -> None:
    """Call `work` with each node of the graph, node → what has to be done before it, by `at_once` threads. The first failure is raised."""
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    with ThreadPoolExecutor(at_once) as threads:
        running: dict[Future[None], Hashable] = {}
        try:
            while sorter.is_active():
                running |= {threads.submit(work, node): node for node in sorter.get_ready()}
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    node = running.pop(done)
                    done.result()
                    sorter.done(node)
        finally:
            for future in running:
                future.cancel()
