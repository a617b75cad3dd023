"""Gold's tables of a database: the queries of `pipeline/gold.py`, executed by DuckDB.

Percentiles are exact here. Spark's are so of up to 10,000 latencies, and close to it of more.
"""

from __future__ import annotations

from functools import partial

import duckdb

from klamm.pipeline.gold_tables.queries import INPUTS, NEEDS, QUERIES, query_of
from klamm.pipeline.lake.column_types import arrow_schema
from klamm.pipeline.lake.tables import WINDOW, Table
from klamm.pipeline.lake.windows import WindowPart
from klamm.pipeline.quick.judge import TableContents
from klamm.pipeline.quick.translations import SIGN, translations
from klamm.pipeline.rules.runner import Reader

SCHEMA = "gold"


def makers(database: duckdb.DuckDBPyConnection, contents: TableContents) -> list[Reader]:
    """What makes each table, when the views that it reads are there. Until then tables are empty."""
    database.execute(f"CREATE SCHEMA {SCHEMA}")
    for table in QUERIES:
        database.register("part", arrow_schema(table.columns).empty_table())
        database.execute(f"CREATE TABLE {SCHEMA}.{table.name} AS SELECT * FROM part")
        database.unregister("part")
    return [Reader(INPUTS[table], partial(_make, database, table)) for table in QUERIES if not contents.lacks(NEEDS.get(table, ()))]


def _make(database: duckdb.DuckDBPyConnection, table: Table) -> None:
    names = ", ".join(name for name in table.names if name != WINDOW.name)
    database.execute(f"INSERT INTO {SCHEMA}.{table.name} ({names}) SELECT {names} FROM ({query(table)})")


def query(table: Table, part: WindowPart | None = None) -> str:
    """The query of a table, or of one part of it, in DuckDB's SQL."""
    return query_of(table, part, translations().of, SIGN)
