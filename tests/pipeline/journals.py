"""Small lakes, and what a pipeline made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from klamm.pipeline.lake import delta_log
from klamm.pipeline.run import RunOutcome, run
from klamm.tests.journal.writing import TinyJournal, simple_exchange


class Silent:
    """Shows no progress."""

    def begin(self, what: str, total: int | None) -> None:
        pass

    def step(self, steps: int) -> None:
        pass


def write(lake: Path, run_id: str = "r", node: int = 1, *, exchanges: int = 3, raw: int = 0, seq: int = 1) -> TinyJournal:
    """A journal that is open: one event, two frames for each exchange, `raw` frames that do not decode."""
    tiny = TinyJournal(lake, run_id, node, seq=seq)
    tiny.event("broker_started", output={"broker": node})
    for _ in range(exchanges):
        simple_exchange(tiny)
    for number in range(raw):
        tiny.raw(9, 0, bytes([0, 0, 0, 3, number, 1, 2]))
    return tiny


def run_with(spark: Any, lake: Path, *, gold: bool = False) -> RunOutcome:
    """`klamm pipeline run` in this process, its tasks by Spark's workers; to silver only unless gold is wanted."""
    return run(lake, lambda: spark, Silent(), gold=gold, local_rows=0)


def run_here(lake: Path) -> RunOutcome:
    """`klamm pipeline run` in this process, which does all work itself."""
    return run(lake, no_session, Silent())


def no_session() -> Any:
    """In place of what opens Spark, where it must not be opened."""
    raise AssertionError("Spark is not needed")


def query(lake: Path, table: str, select: str) -> list[tuple[Any, ...]]:
    """DuckDB's rows of SELECT `select` FROM the valid files of a table."""
    files = [str(path) for path in delta_log.files(lake, table)]
    return duckdb.sql(f"SELECT {select} FROM read_parquet({files!r}, hive_partitioning = false)").fetchall()


def numbers(lake: Path, *tables: str) -> list[tuple[int, int]]:
    """(node_id, seq) of all rows of these tables, sorted, each as often as it is there."""
    return sorted(row for table in tables if delta_log.rows(lake, table) for row in query(lake, table, "node_id, seq"))
