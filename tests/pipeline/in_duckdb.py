"""Silver, gold's queries and the queries of rules without a JVM: DuckDB runs the SQL, translated from Spark's.

Spark starts slowly, so tests that need it are slow. This is for the rules that are SQL alone, and for fast tests of each of their
conditions; that Spark says the same is what the slow tests show. Of Spark's functions `translated` knows those that the queries use.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa

from klamm.journal.reading import open_segment, segments
from klamm.pipeline import silver_files
from klamm.pipeline.decode.batches import INPUT
from klamm.pipeline.lake.tables import HEADER, HEADERS, HEADERS_VIEW, MESSAGES, SILVER, SPARK_TYPES, Table
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.prepared import needed
from klamm.pipeline.silver_files import Files, decode_and_write, write_events

_TYPES = {
    "int": "INTEGER", "bigint": "BIGINT", "smallint": "SMALLINT", "tinyint": "TINYINT", "string": "VARCHAR", "variant": "JSON",
    "boolean": "BOOLEAN",
}

_MACROS = """
CREATE MACRO collect_set(x) AS list(DISTINCT x) FILTER (WHERE x IS NOT NULL);
CREATE MACRO collect_list(x) AS list(x) FILTER (WHERE x IS NOT NULL);
CREATE MACRO percentile_approx(x, part, accuracy) AS quantile_disc(x, part);
CREATE MACRO in_order(list) AS list_filter(list, lambda each, place: coalesce(list_position(list, each) = place, true));
CREATE MACRO array_except(list, others) AS in_order(list_filter(list, lambda each: NOT coalesce(list_contains(others, each), false)));
CREATE MACRO array_union(list, others) AS in_order(list_concat(list, others));
CREATE MACRO array_compact(list) AS list_filter(list, lambda each: each IS NOT NULL);
CREATE MACRO array_join(list, text) AS coalesce(array_to_string(list, text), '');
CREATE MACRO arrays_overlap(list, others) AS list_has_any(list, others);
CREATE MACRO arrays_zip(list, others) AS list_zip(list, others);
CREATE MACRO get_json_object(text, path) AS json_extract_string(text, path);
CREATE MACRO sequence(first, last) AS generate_series(first, last);
CREATE MACRO substring_index(text, part, place) AS split_part(text, part, place);
CREATE MACRO size(list) AS len(list);
CREATE MACRO xxhash64(a, b := 0, c := 0, d := 0) AS hash(a, b, c, d);
CREATE MACRO slice(list, first, many) AS list_slice(list, first, first + many - 1);
CREATE MACRO map_contains_key(map, key) AS coalesce(list_contains(map_keys(map), key), false);
CREATE MACRO unbase64(text) AS from_base64(text);
CREATE MACRO conv(digits, from_base, to_base) AS CAST(CAST('0x' || digits AS UBIGINT) AS VARCHAR);
CREATE MACRO try_element_at(list, place) AS list[place];
CREATE MACRO array_intersect(list, others) AS in_order(list_filter(list, lambda each: list_contains(others, each)));
"""


def silver(lake: Path) -> duckdb.DuckDBPyConnection:
    """The journals of a lake as tables of silver and the view `headers`, under their names."""
    rows: dict[str, list[pa.RecordBatch]] = {"frames": [], "events": []}
    for segment in segments(lake):
        rows[segment.table] += list(open_segment(segment.path))
    written: dict[Table, list[pa.RecordBatch]] = defaultdict(list)

    class InMemory(Files):
        """A file for each run and table is what costs most here."""

        def add(self, table: Table, rows: Any) -> None:
            written[table].append(rows)

    with patch.object(silver_files, "Files", InMemory):
        written[MESSAGES] = list(decode_and_write("", "0", (batch.select(list(INPUT)) for batch in rows["frames"])))
        list(write_events("", "0", iter(rows["events"])))
    database = duckdb.connect(config={"threads": 1})
    database.execute(_MACROS)
    for table in SILVER:
        _create(database, table, pa.Table.from_batches(written[table]) if written[table] else None)
    names = ", ".join(column.name for column in HEADER)
    database.execute(f"CREATE VIEW {HEADERS} AS {translated(HEADERS_VIEW.format(names=names))}")
    return database


def _create(database: duckdb.DuckDBPyConnection, table: Table, rows: Any) -> None:
    """`rows` are read by name in the statement."""
    if rows is None:
        nulls = ", ".join(f'CAST(NULL AS {_type(SPARK_TYPES[column.type])}) AS "{column.name}"' for column in table.columns)
        database.execute(f"CREATE TABLE {table.name} AS SELECT {nulls} LIMIT 0")
    else:
        renamed = "* RENAME (body_json AS body)" if table is MESSAGES else "*"
        database.execute(f"CREATE TABLE {table.name} AS SELECT {renamed} FROM rows")


def rows(database: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    """Of a query that is Spark's."""
    found = database.execute(translated(sql))
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def judged(database: duckdb.DuckDBPyConnection, rules: Sequence[str]) -> list[dict[str, Any]]:
    """What these rules say of each thing that they look at, in all runs: `JUDGED_COLUMNS`, and `rule`."""
    known = runner.rules()
    prepare(database, {name for rule in rules for name in known[rule].inputs})
    return [row | {"rule": rule} for rule in rules for row in rows(database, known[rule].judged)]


def prepare(database: duckdb.DuckDBPyConnection, names: Collection[str]) -> None:
    """Make prepared views, and what they read, as far as they are not there."""
    views = runner.views()
    graph = needed(views, names)
    made = {name for (name,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall()} | {HEADERS}
    while left := graph.keys() - made:
        for name in sorted(name for name in left if made.issuperset(graph[name])):
            database.execute(f"CREATE TABLE {name} AS {translated(views[name].sql)}")
            made.add(name)


def translated(sql: str) -> str:
    """Spark's SQL as DuckDB's."""
    sql = re.sub(r"--[^\n]*", "", sql)
    sql = re.sub(r"\b(at|leading|left)\b", r'"\1"', sql)
    sql = re.sub(r"(\w)\[(\w+)\]", r"\1[\2 + 1]", sql)  # Spark counts from 0
    sql = re.sub(r"\bARRAY<STRING>", "VARCHAR[]", sql)
    sql = re.sub(r"\bLEFT (SEMI|ANTI) JOIN\b", r"\1 JOIN", sql)
    sql = re.sub(r"\* EXCEPT\b", "* EXCLUDE", sql)
    sql = re.sub(r"(\d)L\b", r"\1", sql).replace("<=>", "IS NOT DISTINCT FROM")
    sql = re.sub(r"\) IGNORE NULLS OVER\b", " IGNORE NULLS) OVER", sql)
    sql = re.sub(r"\b(\w+ IS NOT NULL) ROWS\b", r"(\1) ROWS", sql)
    sql = re.sub(r"(\w+) RLIKE ('[^']*')", r"regexp_matches(\1, \2)", sql)
    sql = re.sub(r"\bDIV\b", "//", sql)
    sql = re.sub(r"\beach AS place, (\w)\b", r"each(place, \1)", sql)
    for name, rewrite in _CALLS.items():
        sql = _calls(sql, name, rewrite)
    return sql


def _calls(sql: str, name: str, rewrite: Callable[[list[str]], str]) -> str:
    """All calls of a function, the inner ones of nested calls first."""
    pattern = re.compile(rf"(?<![\w.]){name}\(", re.IGNORECASE if name.startswith("LATERAL") else 0)
    found = list(pattern.finditer(sql))
    for match in reversed(found):
        end, arguments = _arguments(sql, match.end())
        sql = sql[: match.start()] + rewrite(arguments) + sql[end:]
    return sql


def _arguments(sql: str, start: int) -> tuple[int, list[str]]:
    """Where a call ends whose arguments begin at `start`, and the arguments."""
    depth, begun, quoted, found = 1, start, False, []
    for place in range(start, len(sql)):
        character = sql[place]
        if character == "'":
            quoted = not quoted
        elif quoted:
            continue
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and character == "," and not quoted):
            if sql[begun:place].strip():
                found.append(sql[begun:place].strip())
            begun = place + 1
        if depth == 0:
            return place + 1, found
    raise ValueError(f"a call that has no end: {sql[start:]}")


def _struct(arguments: list[str]) -> str:
    fields = []
    for argument in arguments:
        value, _, name = argument.partition(" AS ") if " AS " in argument else (argument, "", argument.rpartition(".")[2])
        fields.append(f"'{name}': {value}")
    return "{" + ", ".join(fields) + "}"


def _lambda(function: str) -> Callable[[list[str]], str]:
    def rewrite(arguments: list[str]) -> str:
        name, _, value = arguments[1].partition("->")
        return function.format(arguments[0], f"lambda {name.strip()}: {value.strip()}")

    return rewrite


def _variant(arguments: list[str]) -> str:
    kind = " ".join(arguments[2].strip("'").split())
    if kind == "string":
        return f"json_extract_string({arguments[0]}, {arguments[1]})"
    value = f"json_extract({arguments[0]}, {arguments[1]})"
    return f"TRY_CAST({value} AS {_type(kind)})" if kind in _TYPES else f"from_json({value}, '{_structure(kind)}')"


def _type(kind: str) -> str:
    return f"{_type(kind[6:-1])}[]" if kind.startswith("array<") else _TYPES.get(kind, kind.upper().replace("BINARY", "BLOB"))


def _structure(kind: str) -> str:
    """A type as JSON that DuckDB's from_json takes."""
    kind = kind.strip()
    if kind.startswith("array<"):
        return f"[{_structure(kind[6:-1])}]"
    if kind in _TYPES:
        return f'"{_TYPES[kind]}"'
    inner = kind[7:-1] if kind.startswith("struct<") else kind
    fields = _arguments(inner.replace("<", "(").replace(">", ")") + ")", 0)[1]
    parts = [re.split(r"[ :]\s*", field.replace("(", "<").replace(")", ">"), maxsplit=1) for field in fields]
    return "{" + ", ".join(f'"{name}": {_structure(of)}' for name, of in parts) + "}"


def _null_is_text(argument: str) -> str:
    return f"coalesce(CAST({argument} AS VARCHAR), 'null')"


_CALLS: dict[str, Callable[[list[str]], str]] = {
    "from_json": lambda given: f"from_json({given[0]}, '{_structure(given[1].strip(chr(39)))}')",
    "try_variant_get": _variant,
    "struct": _struct,
    "transform": _lambda("list_transform({}, {})"),
    "filter": _lambda("list_filter({}, {})"),
    "exists": _lambda("len(list_filter({}, {})) > 0"),
    "element_at": lambda given: f"map_extract_value({given[0]}, {given[1]})",
    "map": lambda given: f"map([{', '.join(given[::2])}], [{', '.join(given[1::2])}])",
    "concat": lambda given: "(" + " || ".join(f"CAST({each} AS VARCHAR)" for each in given) + ")",
    "format_string": lambda given: f"printf({given[0]}, {', '.join(map(_null_is_text, given[1:]))})",
    "array": lambda given: f"[{', '.join(given)}]",
    "array_distinct": lambda given: f"list_distinct({given[0]})",
    "array_sort": lambda given: f"list_sort({given[0]})",
    "last_value": lambda given: f"last_value({given[0]}{' IGNORE NULLS' if given[1:] == ['true'] else ''})",
    "first_value": lambda given: f"first_value({given[0]}{' IGNORE NULLS' if given[1:] == ['true'] else ''})",
    "LATERAL VIEW posexplode": lambda given: f"CROSS JOIN LATERAL (SELECT unnest(range(len({given[0]}))), unnest({given[0]}))",
    "LATERAL VIEW explode": lambda given: f"CROSS JOIN LATERAL unnest({given[0]})",
    "explode": lambda given: f"unnest({given[0]})",
}
