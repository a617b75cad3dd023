from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.journal.columns import Direction, Flag
from klamm.pipeline.gold import build_gold
from klamm.pipeline.lake.local_workers import only_here
from klamm.pipeline.lake.spark_views import read, views
from klamm.pipeline.lake.tables import CLIENT_SCORECARD, GROUP_GENERATIONS, OFFSET_COMMITS, TRANSACTIONS
from klamm.pipeline.silver import build_silver
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import START_NS, TinyJournal
from klamm.tests.pipeline.both_engines import assert_same_tables
from klamm.tests.pipeline.bronze_rows import bronze
from klamm.tests.pipeline.leader_rows import leader
from klamm.tests.pipeline.rule_journals.group_journals import GroupJournal, assignment
from klamm.tests.pipeline.rule_journals.transaction_journals import TransactionJournal
from klamm.tests.pipeline.rules.fixtures import Run

pytestmark = pytest.mark.slow


def build(spark: Any, lake: Path, runs: list[str]) -> None:
    """By Spark's SQL."""
    build_gold(lake, runs, only_here, lambda: spark, most_rows=-1)


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    with TinyJournal(lake, "r", 1) as journal:
        journal.event("advertised", input={"listener": "PLAINTEXT"}, output={"apis": [[3, 0, 11], [0, 0, 9], [18, 0, 3]]})
        client = journal.connection(8, kind="accepted", client_id="app", client_sw="librdkafka/2")
        for latency in range(1, 101):
            asked = journal.request(client, ApiKey.METADATA, 11, messages.MetadataRequest())
            journal.response(client, asked, messages.MetadataResponse(), latency_ns=latency * 1000)
        asked = journal.request(client, ApiKey.METADATA, 12, messages.MetadataRequest())
        topic = messages.MetadataResponse.MetadataResponseTopic(error_code=3, name="t")
        journal.response(client, asked, messages.MetadataResponse(topics=[topic]), latency_ns=1)
        journal.request(client, ApiKey.PRODUCE, 9, messages.ProduceRequest(), flags=Flag.NO_RESPONSE)
        journal.request(client, ApiKey.PRODUCE, 9, b"\x01")
        for to, epoch in ((1, 0), (1, 0), (2, 1)):
            at_ns = START_NS + epoch
            journal.request(7, ApiKey.UPDATE_METADATA, 8, leader(to, epoch), dir=Direction.REQUEST_OUT, kind="channel", ts_ns=at_ns)
        cause = journal.event("controller_event", ts_ns=START_NS + 10)
        journal.event("throttle_set", topic="t", cause=cause, ts_ns=START_NS + 15)
        journal.event("reassign_phase", topic="t", partition=0, output={"phase": "U", "step": 1}, cause=cause, ts_ns=START_NS + 20)
        journal.event("throttle_removed", topic="t", cause=cause, ts_ns=START_NS + 25)
        journal.event("reassign_phase", topic="t", partition=0, output={"phase": "B1", "step": 1}, cause=cause, ts_ns=START_NS + 30)
    run = Run(lake, "groups")
    group = GroupJournal(run)
    assigned = assignment({"t": [0, 1]})
    group.join("a", 1, "a", ("a",))
    group.sync("a", 1, assigned, {"a": assigned})
    group.commit("a", 1, 7)
    transactions = TransactionJournal(run)
    transactions.init(0)
    transactions.add(0, 0, 1)
    transactions.end(0)
    run.close()
    build_silver(SparkWorkers(spark), lake, bronze(lake), 0)
    build(spark, lake, ["r"])
    build(spark, lake, ["r", "groups"])
    views(spark, lake, ["r"])
    return lake


def rows(spark: Any, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(sql).collect()]


def test_latencies_are_percentiles_of_an_api_at_a_broker(spark: Any, lake: Path) -> None:
    found = rows(spark, "SELECT node_id, dir, api, count, p50_ns, p99_ns, max_ns FROM latency")
    assert found == [(1, 1, "Metadata", 101, 50000, 99000, 100000)]


def test_the_matrix_counts_errors_versions_outside_the_range_and_quarantine(spark: Any, lake: Path) -> None:
    sql = "SELECT client_sw, client_id, api, api_version, requests, responses, errors, outside, quarantined FROM api_matrix ORDER BY 3, 4"
    client = ("librdkafka/2", "app")
    assert rows(spark, sql) == [
        (*client, "Metadata", 11, 100, 100, 0, 0, 0),
        (*client, "Metadata", 12, 1, 1, 1, 1, 0),
        (*client, "Produce", 9, 2, 0, 0, 0, 1),
    ]


def test_a_leader_lasts_until_the_next_leader_epoch(spark: Any, lake: Path) -> None:
    names = "topic, partition, leader, leader_epoch, controller_epoch, from_ts_ns - {0}, to_ts_ns - {0}"
    sql = f"SELECT {names} FROM leader_timeline ORDER BY leader_epoch"
    assert rows(spark, sql.format(START_NS)) == [("t", 0, 1, 0, 3, 0, 1), ("t", 0, 2, 1, 3, 1, None)]


def test_a_phase_lasts_from_the_phase_before_it_and_knows_the_throttle(spark: Any, lake: Path) -> None:
    sql = "SELECT topic, partition, phase, from_ts_ns - {0}, to_ts_ns - {0}, throttle FROM reassign_spans ORDER BY seq"
    assert rows(spark, sql.format(START_NS)) == [("t", 0, "U", 10, 20, True), ("t", 0, "B1", 20, 30, False)]


def test_a_client_has_one_line_of_counts(spark: Any, lake: Path) -> None:
    sql = "SELECT client_id, connections, requests, responses, no_response, errors, quarantined, apis, p50_ns FROM client_scorecard"
    assert rows(spark, sql) == [("app", 1, 103, 101, 1, 1, 1, 2, 50000)]


def test_connections_are_counted_in_a_lake_of_many_clients(spark: Any, tmp_path: Path) -> None:
    for run in ("r", "s"):
        with TinyJournal(tmp_path, run) as journal:
            for client in range(90):
                for conn in range(1, 24):
                    journal.request(100 * client + conn % 20, ApiKey.METADATA, 11, messages.MetadataRequest(), client_id=f"c{client}")
    build_silver(SparkWorkers(spark), tmp_path, bronze(tmp_path), 0)
    build(spark, tmp_path, ["r", "s"])
    found = read(spark, tmp_path, CLIENT_SCORECARD).toArrow().to_pylist()
    assert {(row["connections"], row["requests"]) for row in found} == {(20, 23)}
    assert len(found) == 180


def test_a_generation_of_a_group_and_its_commits_have_a_line_each(spark: Any, lake: Path) -> None:
    generations, commits = (read(spark, lake, table).toArrow().to_pylist() for table in (GROUP_GENERATIONS, OFFSET_COMMITS))
    names = "run_id", "group_id", "generation", "leader", "members", "synced", "partitions"
    assert [tuple(row[name] for name in names) for row in generations] == [("groups", "g", 1, "a", 1, 1, 2)]
    columns = "member_id", "generation", "topic", "partition", "committed_offset", "error_code"
    assert [tuple(row[name] for name in columns) for row in commits] == [("a", 1, "t", 0, 7, 0)]


def test_a_transaction_has_a_line(spark: Any, lake: Path) -> None:
    names = "run_id", "transactional_id", "producer_id", "producer_epoch", "partitions", "groups", "outcome"
    found = read(spark, lake, TRANSACTIONS).toArrow().to_pylist()
    assert [tuple(row[name] for name in names) for row in found] == [("groups", "tx", 7, 0, "t-0, t-1", 0, "commit")]


@pytest.mark.parametrize("run", ["r", "groups"])
def test_duckdb_makes_the_same_tables_of_the_journal(lake: Path, run: str) -> None:
    assert_same_tables(lake, run)
