"""What DuckDB makes of a translated query is what Spark makes of the query."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from klamm.pipeline.quick.duckdb_sql import translated
from klamm.pipeline.quick.macros import MACROS

EXPRESSIONS: dict[str, Any] = {
    "array_contains(array(1, NULL), 2)": None,
    "array_contains(array(1, NULL), 1)": True,
    "array_contains(array(1, 2), 3)": False,
    "array_except(array(3, 1, NULL, 3, NULL), array(1))": [3, None],
    "array_except(array(3, 1, NULL, 3), array(1, NULL))": [3],
    "array_except(array(1, 2), array(2, 1, 3))": [],
    "array_except(array(1), CAST(NULL AS array<int>))": None,
    "array_union(array(2, 1, 2), array(3, 1))": [2, 1, 3],
    "array_union(array(1), CAST(NULL AS array<int>))": None,
    "array_intersect(array(2, 1, NULL, 2), array(NULL, 2))": [2, None],
    "array_distinct(array(3, 1, NULL, 3, NULL))": [3, 1, None],
    "array_compact(array(CAST(1 AS BIGINT), NULL))": [1],
    "array_join(array('a', NULL, 'b'), ', ')": "a, b",
    "array_join(array('a'), ', ')": "a",
    "arrays_overlap(array(1), array(1, NULL))": True,
    "arrays_overlap(array(1), array(2, NULL))": None,
    "arrays_overlap(array(1), array(2))": False,
    "flatten(array(array(1), array(2, 3)))": [1, 2, 3],
    "flatten(array(array(1), CAST(NULL AS array<int>)))": None,
    "slice(array(1, 2, 3, 4), 2, 2)": [2, 3],
    "array(7, 8)[1]": 8,
    "try_element_at(array(7, 8), 1)": 7,
    "try_element_at(array(7, 8), 3)": None,
    "try_element_at(map(1, 2, 3, 4), 3)": 4,
    "try_element_at(map(1, 2), 3)": None,
    "map_contains_key(map(1, 2), 1)": True,
    "map_contains_key(map(1, 2), 2)": False,
    "exists(array(1, NULL), x -> x = 1)": True,
    "exists(array(1, NULL), x -> x = 2)": None,
    "exists(array(1), x -> x = 2)": False,
    "filter(array(1, 2, NULL), x -> x > 1)": [2],
    "size(CAST(NULL AS array<int>))": None,
    "concat('a', 1, true)": "a1true",
    "concat('a', CAST(NULL AS STRING))": None,
    "format_string('%s-%s: %s', 't', 0, CAST(NULL AS INT))": "t-0: null",
    "to_json(array(1, 2))": "[1,2]",
    "get_json_object('{\"a\": [1, 2]}', '$.a')": "[1,2]",
    "get_json_object('{\"a\": \"x\"}', '$.a')": "x",
    "get_json_object('{\"a\": null}', '$.a')": None,
    "get_json_object('{\"a\": tru', '$.a')": None,
    "from_json('[1, 2]', 'array<int>')": [1, 2],
    "from_json('{\"apis\": [[1, 2]]}', 'apis array<array<int>>').apis": [[1, 2]],
    "hex(substring(unbase64('AAECAw=='), 2, 2))": "0102",
    "length(unbase64('AAECAw=='))": 4,
    "length('äb')": 2,
    "conv('8000', 16, 10)": "32768",
    "substring_index('[::1]:9092', ':', -1)": "9092",
    "greatest(1, NULL)": 1,
    "5 DIV 2": 2,
    "1 <=> NULL": False,
    "try_cast('x' AS BIGINT)": None,
    "'broker-1-fetcher' RLIKE '^broker-[0-9]+-'": True,
}
"""Spark's SQL → its value."""

ROWS = "VALUES (1, 'a', NULL), (1, 'b', 2), (2, 'c', 3), (2, NULL, 4)"
QUERIES: dict[str, Any] = {
    f"SELECT k, max_by(t, n) FROM ({ROWS}) AS v(k, t, n) GROUP BY k ORDER BY k": [(1, "b"), (2, None)],
    f"SELECT k, array_sort(collect_set(t)), size(collect_list(n)) FROM ({ROWS}) AS v(k, t, n) GROUP BY k ORDER BY k": [
        (1, ["a", "b"], 1), (2, ["c"], 2),
    ],
    f"SELECT collect_list(n), size(collect_set(t)) FROM ({ROWS}) AS v(k, t, n) WHERE k = 9": [([], 0)],
    f"SELECT t, last_value(n, true) OVER (ORDER BY t ROWS UNBOUNDED PRECEDING) FROM ({ROWS}) AS v(k, t, n) ORDER BY t": [
        (None, 4), ("a", 4), ("b", 2), ("c", 3),
    ],
    f"SELECT k, count_if(n > 2), count_if(n > 2) OVER (PARTITION BY k ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) "
    f"FROM ({ROWS}) AS v(k, t, n) WHERE t = 'a' OR n = 4 GROUP BY k, n, t ORDER BY k": [(1, 0, 0), (2, 1, 0)],
    f"SELECT t FROM ({ROWS}) AS v(k, t, n) LEFT ANTI JOIN (SELECT 1 AS k) USING (k) ORDER BY t": [(None,), ("c",)],
    f"SELECT * EXCEPT (n) FROM ({ROWS}) AS v(k, t, n) WHERE n = 2": [(1, "b")],
    "SELECT x FROM (SELECT array(1, 2) AS l UNION ALL SELECT array()) LATERAL VIEW explode(l) AS x ORDER BY x": [(1,), (2,)],
    "SELECT p, x FROM (SELECT array('a', 'b') AS l) LATERAL VIEW posexplode(l) each AS p, x ORDER BY p": [(0, "a"), (1, "b")],
    "SELECT count(DISTINCT xxhash64(a, b)) FROM (VALUES (1, 'x'), (1, 'x'), (2, 'x')) AS v(a, b)": [(2,)],
    "SELECT max(s).b FROM (SELECT struct(a AS a, b AS b) AS s FROM (VALUES (1, 9), (2, 3)) AS v(a, b))": [(3,)],
}


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    for macro in MACROS:
        database.execute(f"CREATE MACRO {macro}")
    return database


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_has_sparks_value(database: duckdb.DuckDBPyConnection, text: str) -> None:
    assert database.execute(translated(f"SELECT {text}")).fetchall() == [(EXPRESSIONS[text],)]


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_has_sparks_rows(database: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert database.execute(translated(sql)).fetchall() == QUERIES[sql]


@pytest.mark.slow
def test_spark_has_these_values(spark: Any) -> None:
    columns = ", ".join(f"{text} AS c{place}" for place, text in enumerate(EXPRESSIONS))
    row = spark.sql(f"SELECT {columns}").toArrow().to_pylist()[0]
    assert list(row.values()) == list(EXPRESSIONS.values())
    for sql, rows in QUERIES.items():
        assert [tuple(row.values()) for row in spark.sql(sql).toArrow().to_pylist()] == rows, sql
