"""Plans the work of a judgement: views before the queries that read them, several queries at once, and no query without rows.

A judgement has about fifty queries. Each names the views that it reads, so they form a graph, and the next free thread takes a query whose
views are ready. Prepared views have two layouts:

* `Spread` is for many rows. A view is partitioned and sorted for the window functions of the rules that read it.
* `Gathered` is for few rows, when Spark spends most time on planning and on starting tasks. Each view, also of silver, is computed into a
  single partition. So no query shuffles, and each is one stage with one task. A view with only one reader is computed within that query,
  unless it is marked to be kept.

If a view that is kept turns out to be empty, queries that only look at its rows are left out.
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
    """Whether the views of silver are prepared too."""

    def keep(self, rows: DataFrame, view: View | None, readers: int) -> DataFrame:
        """What queries read instead of `rows`. `readers` is the number of queries that read this view."""


class Spread:
    """For many rows."""

    keeps_silver = False

    def __init__(self, spark: SparkSession) -> None:
        # With an explicit number Spark keeps these partitions, and knows how rows are partitioned and sorted.
        self._parts = int(spark.conf.get(SHUFFLE_PARTITIONS) or 2)

    def keep(self, rows: DataFrame, view: View | None, readers: int) -> DataFrame:
        """Computed now; partitioned and sorted if the view asks for it."""
        if view is not None and view.cluster_by:
            rows = rows.repartition(self._parts, *view.cluster_by).sortWithinPartitions(*view.cluster_by, *view.order_by)
        # A checkpoint has no plan, while a cached plan is planned again within each query that reads it. And filling Spark's cache takes
        # three times as long as computing the rows.
        return rows.localCheckpoint()


class Gathered:
    """For few rows."""

    keeps_silver = True

    def keep(self, rows: DataFrame, view: View | None, readers: int) -> DataFrame:
        """One partition, computed by its first reader. With one reader it is part of that query, unless it is kept."""
        rows = rows.coalesce(1)
        if readers == 1 and not _is_kept(view):
            return rows
        return rows.localCheckpoint(eager=False)


def _is_kept(view: View | None) -> bool:
    return view is not None and view.is_kept


def prepare(spark: SparkSession, name: str, view: View | None, layout: Layout, empty: set[str], readers: int) -> None:
    """Register the view `name`: a prepared view, or a view of silver if `view` is None. A view without rows is added to `empty`."""
    rows = spark.table(name) if view is None else spark.sql(view.sql)
    if name in empty:
        rows = rows.limit(0)  # Spark simplifies the queries that read it
    else:
        rows = layout.keep(rows, view, readers)
        if _is_kept(view) and rows.isEmpty():
            empty.add(name)
    rows.createOrReplaceTempView(name)


def needed(known: Mapping[str, View], wanted: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The wanted views and all views that they read, directly or not, each with the views that it reads directly."""
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
