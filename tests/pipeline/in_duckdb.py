"""Silver, gold's queries and the queries of rules without a JVM: what `klamm pipeline check --quick` uses, for tests of single queries.

Spark starts slowly, so tests that need it are slow. That Spark says the same is what the slow tests show.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import duckdb

from klamm.journal.reading import segments
from klamm.pipeline.quick import tables
from klamm.pipeline.quick.duckdb_sql import translated
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.judgement_plan import needed


def silver(lake: Path) -> duckdb.DuckDBPyConnection:
    """The journals of a lake as tables of silver and the view `headers`, under their names."""
    database = tables.opened("1g", str(lake))
    database.execute("SET threads = 1")
    tables.load(database, segments(lake))
    return database


def rows(database: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    """Of a query that is Spark's."""
    found = database.execute(translated(sql))
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def judged(database: duckdb.DuckDBPyConnection, rules: Sequence[str]) -> list[dict[str, Any]]:
    """What these rules say of each thing that they look at, in all runs: `JUDGED_COLUMNS`, and `rule`."""
    known = runner.rules()
    prepare(database, {name for rule in rules for name in known[rule].reads})
    return [row | {"rule": rule} for rule in rules for part in known[rule].parts if part.query for row in rows(database, part.query)]


def prepare(database: duckdb.DuckDBPyConnection, names: Collection[str]) -> None:
    """Make prepared views, and what they read, as far as they are not there."""
    views = runner.views()
    made = {name for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    left = {name: inputs for name, inputs in needed(views, names).items() if name in views and name not in made}
    while left:
        for name in [name for name, inputs in left.items() if not left.keys() & set(inputs)]:
            database.execute(f"CREATE TABLE {name} AS {translated(views[name].sql)}")
            del left[name]
