"""Other engines read the tables of a lake without Klamm: DuckDB and Spark by views, readers of Delta Lake by what is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.sql_views import TABLES, statements
from klamm.pipeline.lake.tables import MESSAGES
from klamm.pipeline.publish import Published, publish
from klamm.tests.cli.running import call
from klamm.tests.journal.writing import simple_exchange
from klamm.tests.pipeline.journals import run_with, write
from klamm.tests.pipeline.lakes_by_hand import add, delta_statistics

SHAPED = ("requests", "connections", "bytes_by_api", "latency_by_minute", "generations")
QUESTIONS = (
    "SELECT seq, direction, api, bytes_left, CAST(date_trunc('second', ts) AS STRING) AS at FROM messages ORDER BY seq",
    "SELECT seq, response_seq, api, latency_ns, response_bytes, error_code FROM requests ORDER BY seq",
    "SELECT conn_id, requests, responses, bytes_in, bytes_out FROM connections ORDER BY conn_id",
    "SELECT api, direction, frames, bytes FROM bytes_by_api ORDER BY api, direction",
    "SELECT api, requests, max_ns FROM latency_by_minute ORDER BY api",
    "SELECT count(*) FROM reassign",
)


@pytest.mark.slow
@pytest.mark.timeout(240)  # it starts Spark
def test_views_say_the_same_in_duckdb_and_in_spark(spark: Any, tmp_path: Path) -> None:
    tiny = write(tmp_path, exchanges=3, raw=2)
    tiny.roll()
    run_with(spark, tmp_path)
    simple_exchange(tiny)
    tiny.close()
    run_with(spark, tmp_path)
    with duckdb.connect() as database:
        for each in statements(tmp_path, "duckdb"):
            database.execute(each)
        found = [database.execute(question.replace("STRING", "VARCHAR")).fetchall() for question in QUESTIONS]
        bodies = database.execute("SELECT CAST(response AS JSON)->>'clusterId', typeof(response) FROM requests").fetchall()
        assert all(database.execute(f"SELECT count(*) FROM {name}").fetchone() for name in (*(t.name for t in TABLES), *SHAPED))
    for each in statements(tmp_path, "spark"):
        spark.sql(each)
    assert [[tuple(row) for row in spark.sql(question).collect()] for question in QUESTIONS] == found
    assert len(found[0]) == 8 and {row[1:3] for row in found[0]} == {("request in", "Metadata"), ("response out", "Metadata")}
    assert [row.id for row in spark.sql("SELECT response:clusterId::string AS id FROM requests").collect()] == ["c"] * 4
    assert bodies == [("c", "VARIANT")] * 4


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_is_published_is_read_as_delta_lake_by_version_and_only_changes_are_published(spark: Any, tmp_path: Path) -> None:
    lake, target = tmp_path / "lake", tmp_path / "target"
    tiny = write(lake, exchanges=3, raw=2)
    tiny.roll()
    run_with(spark, lake)
    simple_exchange(tiny)
    tiny.close()
    run_with(spark, lake)
    for table in TABLES:
        stated = {name for each in delta_statistics(lake / table.path) for name in each["minValues"]}
        assert stated <= {column.name for column in table.columns if column.type not in ("bool", "double") and "<" not in column.type}
    folder = lake / MESSAGES.path
    assert [rows(folder, version) for version in (0, 1)] == [6, 8]
    done = call("pipeline", "publish", lake, target, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert {"table": "silver/messages", "version": 0, "added": 2, "removed": 0} in json.loads(done.stdout)["published"]
    assert rows(target / MESSAGES.path) == 8
    assert call("pipeline", "publish", lake, target).stdout == "nothing has changed\n"
    before = delta_log.entries(lake, MESSAGES.path)
    delta_log.drop(lake, MESSAGES.path, before[:1])
    assert all("_delta_log" not in name for name in delta_log.sweep(lake, MESSAGES.path))
    assert rows(folder) == 2
    assert Published("silver/messages", 1, 0, 1) in list(publish(lake, str(target)))
    assert [rows(target / MESSAGES.path, version) for version in (0, 1)] == [8, 2]


def rows(table: Path, version: int | None = None) -> int:
    count: int = DeltaTable(str(table), version=version).to_pyarrow_dataset().count_rows()
    return count


def test_a_target_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "lake").close()
    add(tmp_path / "lake", MESSAGES, "r", "0", pa.table({"seq": [1]}))
    with pytest.raises(PipelineFailed, match=r"^nonsense://x: "):
        list(publish(tmp_path / "lake", "nonsense://x"))
