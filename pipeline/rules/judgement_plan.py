"""Plans the work of a judgement: views before the queries that read them, several queries at once, and no query without rows.

A judgement has about fifty queries. Each names the views that it reads, so they form a graph, and the next free thread takes a query whose
views are ready.

A query reads few rows or many. Among many, a prepared view is kept for its readers, unless it has nearly all rows: then each reader reads
the columns that it needs from the files again. If all views that a query reads have few rows (`ViewSizes`), Spark spends most time on
planning and on starting tasks. Then settings for few rows apply (`session.few_rows`), and each view, also of silver, is computed into one
partition: no query shuffles, and each is one stage with one task. A view with only one reader is computed within that query, unless it is
marked to be kept. Settings belong to the session, so queries over few rows and queries over many take turns (`in_turns`).

If a view that is kept, or was counted, turns out to be empty, queries that only look at its rows are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, TypeVar

from klamm.pipeline.rules.record import View
from klamm.pipeline.spark.settings import SHUFFLE_PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Node = TypeVar("Node", bound=Hashable)

TINY = 2_000
"""A view made from many rows that has at most this number becomes part of the plans that read it."""


def partitions(spark: SparkSession) -> int:
    """Number of partitions of prepared views."""
    return int(spark.conf.get(SHUFFLE_PARTITIONS) or 2)


class ViewSizes:
    """Which views have few rows: at most `limit`. Without a limit all queries are planned by the settings that the session has."""

    def __init__(self, limit: int | None, few: Collection[str] = ()) -> None:
        self._limit = limit
        self._few = set(few)

    def are_few(self, names: Iterable[str]) -> bool:
        """Whether all these views have few rows."""
        return self._few.issuperset(names)

    def add(self, name: str, rows: int | None) -> None:
        """A view was prepared; `rows` is None if it was computed from few."""
        if self._limit is not None and (rows is None or rows <= self._limit):
            self._few.add(name)

    @property
    def are_counted(self) -> bool:
        """Whether rows have to be counted."""
        return self._limit is not None


def prepare(spark: SparkSession, name: str, view: View | None, empty: set[str], readers: int, sizes: ViewSizes) -> None:
    """Register the view `name`: a prepared view, or a view of silver if `view` is None. A view without rows is added to `empty`.

    `readers` is the number of queries that read it.
    """
    rows = spark.table(name) if view is None else spark.sql(view.sql)
    is_kept = view is not None and view.is_kept
    parts = partitions(spark)
    if view is not None and view.is_within and parts > 1 and name not in empty:
        rows.createOrReplaceTempView(name)
        return
    count = None if parts == 1 or not sizes.are_counted else 0
    if name in empty:
        rows = rows.limit(0)  # Spark simplifies the queries that read it
    else:
        rows = _kept(rows, parts, within_reader=readers == 1 and not is_kept)
        count = None if count is None else rows.count()
        if count == 0 or (count is None and is_kept and rows.isEmpty()):
            empty.add(name)
            rows = rows.limit(0)
    sizes.add(name, count)
    if count is not None and 0 < count <= TINY:
        rows = spark.createDataFrame(rows.toArrow(), rows.schema)  # so Spark knows how small it is, and sends it to each task of a join
    elif parts > 1 and sizes.are_few([name]):
        rows = rows.coalesce(1)  # for readers that expect one partition
    rows.createOrReplaceTempView(name)


def _kept(rows: DataFrame, parts: int, *, within_reader: bool) -> DataFrame:
    """What queries read instead of `rows`."""
    # A checkpoint has no plan, while a cached plan is planned again within each query that reads it. And filling Spark's cache takes
    # three times as long as computing the rows.
    if parts == 1:
        rows = rows.coalesce(1)
        return rows if within_reader else rows.localCheckpoint(eager=False)  # its first reader computes it
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


def in_turns(
    graph: Mapping[Node, Iterable[Node]],
    work: Callable[[Node], None],
    at_once: int,
    is_few: Callable[[Node], bool],
    turn: Callable[[bool], AbstractContextManager[None]],
) -> None:
    """Call `work` with each node of the graph, node → what has to be done before it, by `at_once` threads. The first failure is raised.

    Nodes over few rows and nodes over many take turns, each turn within `turn(is_few)`.
    A turn lasts as long as a node of its kind is ready. `is_few` is asked when the node is ready.
    """
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    ready: dict[bool, list[Node]] = {True: [], False: []}

    def take(few: bool) -> list[Node]:
        for node in sorter.get_ready():
            ready[is_few(node)].append(node)
        taken, ready[few] = ready[few], []
        return taken

    with ThreadPoolExecutor(at_once) as threads:
        few = True
        while sorter.is_active():
            running: dict[Future[None], Node] = {}
            nodes = take(few)
            with turn(few) if nodes else nullcontext():
                try:
                    while nodes or running:
                        running |= {threads.submit(work, node): node for node in nodes}
                        for done in wait(running, return_when=FIRST_COMPLETED).done:
                            node = running.pop(done)
                            done.result()
                            sorter.done(node)
                        nodes = take(few)
                finally:
                    for future in running:
                        future.cancel()
                    wait(running)
            few = not few
