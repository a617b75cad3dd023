"""Statements that make views of a lake's tables in DuckDB or Spark, for people with questions; no other code of Klamm is needed to read.

A view has the columns of its table, and beside them: a timestamp for each `…ts_ns`, the API's name for each `api_key`, words for `dir`,
and of messages `body` as a VARIANT.
A table without rows is an empty view. Five more views answer frequent questions: `requests` (with their responses), `connections`,
`bytes_by_api`, `latency_by_minute`, and `generations` of groups (with how often members committed).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from klamm.journal.columns import Direction
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.column_types import duckdb_type, spark_type
from klamm.pipeline.lake.folder import Lake
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import BRONZE, GOLD, SILVER, Table, direction_words
from klamm.protocol.apis import APIS

Engine = Literal["duckdb", "spark"]
TABLES = (*BRONZE, *SILVER, *GOLD)

_SHAPED = {
    "requests": """
SELECT q.run_id, q.node_id, q.process, q.seq, q.ts, q.direction, q.kind, q.conn_id, q.peer, q.peer_id, q.principal, q.client_id,
    q.client_sw, q.api_key, q.api, q.api_version, q.correlation_id, q.frame_bytes AS request_bytes, q.body AS request,
    r.seq AS response_seq, r.ts AS response_ts, r.latency_ns, r.frame_bytes AS response_bytes, r.error_code, r.errors, r.throttle_ms,
    r.body AS response
FROM messages q LEFT JOIN messages r ON r.run_id = q.run_id AND r.node_id = q.node_id AND r.cause_seq = q.seq AND r.dir IN (1, 3)
WHERE q.dir IN (0, 2)""",
    "connections": """
SELECT run_id, node_id, process, conn_id, min(kind) AS kind, min(listener) AS listener, min(peer) AS peer, min(peer_id) AS peer_id,
    max(principal) AS principal, max(client_id) AS client_id, max(client_sw) AS client_sw, min(ts) AS first_ts, max(ts) AS last_ts,
    count(CASE WHEN dir IN (0, 2) THEN 1 END) AS requests, count(CASE WHEN dir IN (1, 3) THEN 1 END) AS responses,
    sum(CASE WHEN dir IN (0, 3) THEN frame_bytes ELSE 0 END) AS bytes_in,
    sum(CASE WHEN dir IN (1, 2) THEN frame_bytes ELSE 0 END) AS bytes_out,
    count(CASE WHEN errors > 0 THEN 1 END) AS responses_with_errors
FROM messages GROUP BY run_id, node_id, process, conn_id""",
    "bytes_by_api": """
SELECT run_id, node_id, api_key, api, direction, count(*) AS frames, sum(frame_bytes) AS bytes
FROM messages GROUP BY run_id, node_id, api_key, api, direction""",
    "latency_by_minute": """
SELECT run_id, node_id, api_key, api, date_trunc('minute', response_ts) AS minute, count(*) AS requests,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ns) AS p50_ns, percentile_cont(0.99) WITHIN GROUP (ORDER BY latency_ns) AS p99_ns,
    max(latency_ns) AS max_ns
FROM requests WHERE latency_ns IS NOT NULL GROUP BY run_id, node_id, api_key, api, date_trunc('minute', response_ts)""",
    "generations": """
SELECT g.*, coalesce(n.commits, 0) AS commits
FROM group_generations g LEFT JOIN (
    SELECT g.run_id, g.node_id, g.seq, count(DISTINCT c.seq) AS commits
    FROM group_generations g JOIN offset_commits c ON c.run_id = g.run_id AND c.node_id = g.node_id AND c.group_id = g.group_id
        AND c.generation = g.generation AND c.error_code = 0 AND c.seq > g.seq AND (g.to_ts_ns IS NULL OR c.ts_ns < g.to_ts_ns)
    GROUP BY g.run_id, g.node_id, g.seq) n ON n.run_id = g.run_id AND n.node_id = g.node_id AND n.seq = g.seq""",
}
"""Name → query, valid in both engines. A later one may use an earlier one."""


def statements(lake: Lake, engine: Engine) -> list[str]:
    """CREATE VIEW statements for all tables of a lake (an absolute path), in the order in which they are to be executed.

    Views name the files that the tables have now: after another run of the pipeline they are made again.
    """
    create = "CREATE OR REPLACE VIEW" if engine == "duckdb" else "CREATE OR REPLACE TEMPORARY VIEW"
    names = ", ".join(f"({key}, {_text(api.name)})" for key, api in sorted(APIS.items()))
    found = [f"{create} api_names AS SELECT * FROM (VALUES {names}) AS named(api_key, api)"]
    store = Store(lake)
    for table in TABLES:
        entries = [entry for entry in delta_log.entries(lake, table.path) if entry.rows]
        paths = [str(store.address(entry.path)) for entry in entries]
        if engine == "spark" and paths:
            schema = ", ".join(f"`{column.name}` {spark_type(column.type)}" for column in table.columns)
            alternatives = ",".join(entry.path.removeprefix(f"{table.path}/") for entry in entries)
            path = _text(re.sub("^s3://", "s3a://", f"{store.address(table.path)}/{{{alternatives}}}"))  # as Hadoop calls it
            found.append(f"{create} {table.name}_files ({schema}) USING parquet OPTIONS (path {path})")
        found.append(f"{create} {table.name} AS {_selection(table, paths, engine)}")
    return found + [f"{create} {name} AS{query}" for name, query in _SHAPED.items()]


def _selection(table: Table, paths: Sequence[str], engine: Engine) -> str:
    quote, type_of = ('"', duckdb_type) if engine == "duckdb" else ("`", spark_type)
    columns = []
    for column in table.columns:
        value = f"t.{quote}{column.name}{quote}"
        if column.name == "ts":
            continue  # it is made of ts_ns, as in all views
        columns.append(f"{value} AS {column.name}")
        if column.name == "body_json":
            columns.append(f"{'CAST(CAST(t.body_json AS JSON) AS VARIANT)' if engine == 'duckdb' else 'parse_json(t.body_json)'} AS body")
        if column.name.endswith("ts_ns"):
            time = f"make_timestamp_ns({value})" if engine == "duckdb" else f"timestamp_micros({value} div 1000)"
            columns.append(f"{time} AS {column.name.removesuffix('_ns')}")
        elif column.name == "api_key" and "api" not in table.names:
            columns.append("n.api")
        elif column.name == "dir" and "direction" not in table.names:
            words = " ".join(f"WHEN {int(one)} THEN {_text(direction_words(one))}" for one in Direction)
            columns.append(f"CASE {value} {words} END AS direction")
    nulls = ", ".join(f"CAST(NULL AS {type_of(column.type)}) AS {quote}{column.name}{quote}" for column in table.columns)
    rows = f"SELECT {nulls} LIMIT 0"
    if engine == "duckdb" and paths:
        files = ", ".join(map(_text, paths))
        rows = f"({rows}) UNION ALL BY NAME SELECT * FROM read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    elif paths:
        rows = f"SELECT * FROM {table.name}_files"
    has_key_only = "api_key" in table.names and "api" not in table.names
    joined = " LEFT JOIN api_names n ON n.api_key = t.api_key" if has_key_only else ""
    return f"SELECT {', '.join(columns)} FROM ({rows}) t{joined}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
