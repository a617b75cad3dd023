"""Plans the work of a judgement: views before the queries that read them, several queries at once, and no query without rows.

A judgement has about fifty queries. Each names the views that it reads, so they form a graph, and the next free thread takes a query whose
views are ready. A prepared view is partitioned and sorted for the window functions of the rules that read it.

With one partition (`session.few_rows`), when Spark spends most time on planning and on starting tasks, each view, also of silver, is
computed into this partition. So no query shuffles, and each is one stage with one task. A view with only one reader is computed within that
query, unless it is marked to be kept.

If a view that is kept turns out to be empty, queries that only look at its rows are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from klamm.pipeline.rules.record import View
from klamm.pipeline.spark.settings import SHUFFLE_PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def partitions(spark: SparkSession) -> int:
    """Number of partitions of prepared views."""
    return int(spark.conf.get(SHUFFLE_PARTITIONS) or 2)


def prepare(spark: SparkSession, name: str, view: View | None, empty: set[str], readers: int) -> None:
    """Register the view `name`: a prepared view, or a view of silver if `view` is None. A view without rows is added to `empty`.

    `readers` is the number of queries that read it.
    """
    rows = spark.table(name) if view is None else spark.sql(view.sql)
    is_kept = view is not None and view.is_kept
    if name in empty:
        rows = rows.limit(0)  # Spark simplifies the queries that read it
    else:
        rows = _kept(rows, view, partitions(spark), within_reader=readers == 1 and not is_kept)
        if is_kept and rows.isEmpty():
            empty.add(name)
    rows.createOrReplaceTempView(name)


def _kept(rows: DataFrame, view: View | None, parts: int, *, within_reader: bool) -> DataFrame:
    """What queries read instead of `rows`."""
    # A checkpoint has no plan, while a cached plan is planned again within each query that reads it. And filling Spark's cache takes
    # three times as long as computing the rows.
    if parts == 1:
        rows = rows.coalesce(1)
        return rows if within_reader else rows.localCheckpoint(eager=False)  # its first reader computes it
    if view is not None and view.cluster_by:
        # With an explicit number Spark keeps these partitions, and knows how rows are partitioned and sorted.
        rows = rows.repartition(parts, *view.cluster_by).sortWithinPartitions(*view.cluster_by, *view.order_by)
    return rows.localCheckpoint()


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
