"""Gold of runs and windows that are too large for one worker: Spark's SQL computes the tables and judges, from the same views."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klamm.pipeline.gold_tables.parts import GoldTask, Made, batch_of
from klamm.pipeline.gold_tables.queries import INPUTS, query_of
from klamm.pipeline.lake import table_parts
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.tables import WINDOW, Table, ddl
from klamm.pipeline.lake.windows import WindowPart
from klamm.pipeline.rules.runner import Begin, Reader, judge_lake, no_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def made_by_spark(spark: SparkSession, lake: Lake, task: GoldTask, begin: Begin = no_steps) -> Made:
    """Make the parts of a task. `begin` is called with the number of steps."""
    entries: list[Entry] = []

    def build(table: Table) -> None:
        for part in task.parts(table):
            entries.extend(table_parts.write(lake, table, _rows(spark, table, part), batch_of(part)))

    readers = [Reader(inputs, partial(build, table)) for table, inputs in INPUTS.items()]
    judgement = judge_lake(spark, lake, task.runs, readers=readers, window=task.window, begin=begin)
    return Made(entries, judgement)


def _rows(spark: SparkSession, table: Table, part: WindowPart | None) -> DataFrame:
    """Exactly the columns of the table, in its types."""
    rows = spark.sql(query_of(table, part))
    if WINDOW in table.columns:
        since_ns = None if part is None else part.since_ns
        rows = rows.selectExpr("*", f"{'NULL' if since_ns is None else since_ns} AS {WINDOW.name}")
    kinds = dict(column.split(" ", 1) for column in ddl(table.columns).split(", "))
    return rows.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items()))
