"""Silver to gold: the tables that people look at (`gold_tables/queries.py`), and the verdicts of the rules.

Whenever a run has new rows, its gold is computed again, in place of what was there; of a run that goes on for long only what
is not final (`lake/windows.py`). The tables of verdicts are made at the same time, from the same views. They are committed last, and say of
which rows gold was made.

What is judged at once is a task: several short runs, a run, or a window of one. A worker that has its rows in memory does it with DuckDB
(`quick/lake_gold.py`). A task that is too large for a worker is done by Spark's SQL, which spreads each query over all workers
(`gold_tables/by_spark.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from klamm.pipeline.gold_tables.by_spark import made_by_spark
from klamm.pipeline.gold_tables.parts import GoldTask, Made, batch_of
from klamm.pipeline.gold_tables.queries import QUERIES
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.local_workers import Choose
from klamm.pipeline.lake.spark_views import rows_seen
from klamm.pipeline.lake.tables import RULE_STATS, SILVER, VERDICTS
from klamm.pipeline.lake.windows import SIZES, WindowSizes, windows
from klamm.pipeline.quick.lake_gold import made_by_duckdb
from klamm.pipeline.rules.runner import Begin, Judgement, no_steps, together
from klamm.pipeline.rules.verdict_tables import drop_parts, last_closed, read_judgement, write_judgement, write_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ROWS = 300_000
"""Runs are judged together up to this number of rows in a table: the queries of a task cost half a second however few rows they read."""

MOST_ROWS = 6_000_000
"""A task with more rows in a table is not given to a worker. Windows of long runs have less (`STEP_ROWS`)."""

TASKS_AT_ONCE = 64
"""Number of tasks whose parts are committed together: a command that is killed does them again."""


def build_gold(
    lake: Lake, runs: Sequence[str], workers: Choose, session: Callable[[], SparkSession], sizes: WindowSizes = SIZES,
    begin: Begin = no_steps, most_rows: int = MOST_ROWS,
) -> Judgement:
    """Compute gold's tables of these runs again, and judge them by all rules. Of a run that was cut: what is not final yet.

    `session` opens Spark for tasks with more rows than `most_rows`. `begin` is called with the number of steps of some work.
    """
    tasks, judged = list(_tasks(lake, runs, sizes)), []
    large = [task for task in tasks if task.rows > most_rows]
    for one in large:
        judged += _commit(lake, [one.task], [made_by_spark(session(), lake, one.task, begin)])
    small = [task for task in tasks if task.rows <= most_rows]
    for first in range(0, len(small), TASKS_AT_ONCE):
        some = small[first : first + TASKS_AT_ONCE]
        judged += _commit(lake, [one.task for one in some], _made(lake, some, workers, begin))
    cut = sorted({run for one in tasks if one.task.window is not None for run in one.task.runs})
    stored = read_judgement(lake, cut) if cut else None
    return together(judged if stored is None else [*judged, stored])


class _Sized(NamedTuple):
    """A task, and the rows that it reads of its largest table."""

    task: GoldTask
    rows: int


def _tasks(lake: Lake, runs: Sequence[str], sizes: WindowSizes) -> Iterator[_Sized]:
    """The windows of each run that has any, in order; the other runs together, as many as fit into a task."""
    rows_of, short, rows = Counter[str](), list[str](), 0
    for table in SILVER:
        rows_of |= delta_log.rows_by_run(lake, table.path)
    for run in runs:
        closed = last_closed(lake, run)
        found = list(windows(lake, run, closed, sizes))
        for window in found:
            yield _Sized(GoldTask((run,), window), max(rows_seen(lake, table, [run], window) for table in SILVER))
        if found:
            drop_parts(lake, (*QUERIES, VERDICTS, RULE_STATS), [run], closed)
            continue
        if short and rows + rows_of[run] > TASK_ROWS:
            yield _Sized(GoldTask(tuple(short)), rows)
            short, rows = [], 0
        short.append(run)
        rows += rows_of[run]
    if short:
        yield _Sized(GoldTask(tuple(short)), rows)


def _made(lake: Lake, some: Sequence[_Sized], workers: Choose, begin: Begin) -> list[Made]:
    doing = workers(sum(one.rows for one in some))
    if len(some) == 1 and doing.are_here:
        return [made_by_duckdb(lake, 1, some[0].task, begin)]
    end_step = begin(len(some))

    def ended(tasks: int) -> None:
        for _ in range(tasks):
            end_step()

    return doing.do(partial(made_by_duckdb, lake, len(some)), [one.task for one in some], ended)


def _commit(lake: Lake, tasks: Sequence[GoldTask], made: Sequence[Made]) -> list[Judgement]:
    """Make the parts of tasks valid, windows of a run in their order; the verdicts on runs that are not cut."""
    done = list(zip(tasks, made, strict=True))
    whole = [(task, one) for task, one in done if task.window is None]
    if whole:
        runs = [run for task, _ in whole for run in task.runs]
        judgement = together(one.judgement for _, one in whole)
        delta_log.append(lake, QUERIES, [entry for task, one in whole for entry in (*one.entries, *_emptied(lake, task, one))])
        write_judgement(lake, judgement, runs, with_gold=True)
        drop_parts(lake, QUERIES, runs, behind=None)
    for task, one in done:
        if task.window is not None:
            delta_log.append(lake, QUERIES, [*one.entries, *_emptied(lake, task, one)])
            write_window(lake, one.judgement, task.window)
    return [one.judgement for _, one in whole]


def _emptied(lake: Lake, task: GoldTask, made: Made) -> Iterator[Entry]:
    """An entry without a file for each part that had rows before and has none now."""
    there = {(entry.table, entry.run, entry.batch) for entry in made.entries}
    for table in QUERIES:
        batches = {batch_of(part) for part in task.parts(table)}
        for entry in delta_log.entries(lake, table.path, task.runs):
            if entry.batch in batches and (entry.table, entry.run, entry.batch) not in there:
                yield entry._replace(rows=0, bytes=0)
