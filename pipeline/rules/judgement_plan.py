"""Plans the work of a judgement: views before the queries that read them, several queries at once, and no query without rows.

A judgement has about fifty queries. Each names the views that it reads, so they form a graph, and the next free thread takes a query whose
views are ready. A prepared view is kept for its readers, unless it has nearly all rows: then each reader reads the columns that it needs
from the files again. If a view that is kept turns out to be empty, queries that only look at its rows are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, TypeVar

from klamm.pipeline.rules.record import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Node = TypeVar("Node", bound=Hashable)

TINY = 2_000
"""A view that has at most this number of rows becomes part of the plans that read it."""


def prepare(spark: SparkSession, view: View, empty: set[str]) -> None:
    """Register a prepared view. A view without rows is added to `empty`."""
    rows = spark.sql(view.sql)
    if view.name in empty:
        rows = rows.limit(0)  # Spark simplifies the queries that read it
    elif not view.is_within:
        # A checkpoint has no plan, while a cached plan is planned again within each query that reads it. And filling Spark's cache takes
        # three times as long as computing the rows.
        rows = rows.localCheckpoint(eager=False)  # the count computes it
        count = rows.count()
        if count == 0:
            empty.add(view.name)
            rows = rows.limit(0)
        elif count <= TINY:
            rows = spark.createDataFrame(rows.toArrow(), rows.schema)  # so Spark knows how small it is, and sends it to each task of a join
    rows.createOrReplaceTempView(view.name)


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


def in_order(graph: Mapping[Node, Iterable[Node]], work: Callable[[Node], None], at_once: int) -> None:
    """Call `work` with each node of the graph, node → what has to be done before it, by `at_once` threads. The first failure is raised."""
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    running: dict[Future[None], Node] = {}
    with ThreadPoolExecutor(at_once) as threads:
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
