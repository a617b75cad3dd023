from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import duckdb
import pandas
import pyarrow.parquet as pq
import pytest

from klamm.journal.columns import Direction, Flag
from klamm.pipeline import silver, stream
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import PipelineFailed, spark_failures
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.spark_views import read, views
from klamm.pipeline.lake.tables import DECISIONS, MESSAGES, SILVER
from klamm.pipeline.rules.traffic import RARE_FIELDS
from klamm.pipeline.silver import RowsLostError, Source, build_silver
from klamm.pipeline.silver_files import SilverTask, write_task
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import TinyJournal
from klamm.tests.pipeline.bronze_rows import bronze

pytestmark = pytest.mark.slow

TOPIC_ID = bytes(range(16))


def leader_and_isr(leader_epoch: int = 3) -> messages.LeaderAndIsrRequest:
    state = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=7, leader=2, leader_epoch=leader_epoch, isr=(2, 1), partition_epoch=5, replicas=(1, 2, 3),
        adding_replicas=(3,), removing_replicas=(1,), is_new=True, leader_recovery_state=1,
    )
    topic = messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
    return messages.LeaderAndIsrRequest(controller_id=1, controller_epoch=7, broker_epoch=70, topic_states=[topic])


def update_metadata() -> messages.UpdateMetadataRequest:
    Request = messages.UpdateMetadataRequest
    state = Request.UpdateMetadataPartitionState(
        topic_name="t", partition_index=4, controller_epoch=7, leader=-1, leader_epoch=2, isr=(2,), zk_version=9, replicas=(2, 3),
        offline_replicas=(2,),
    )
    endpoints = [Request.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT")]
    broker = Request.UpdateMetadataBroker(id=2, endpoints=endpoints, rack="r1")
    return Request(controller_id=1, controller_epoch=7, broker_epoch=70, ungrouped_partition_states=[state], live_brokers=[broker])


def metadata_response() -> messages.MetadataResponse:
    Response = messages.MetadataResponse
    partition = Response.MetadataResponsePartition(error_code=5, partition_index=0, leader_id=-1, replica_nodes=(1,), isr_nodes=(1,))
    topics = [Response.MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[partition, partition])]
    return Response(brokers=[Response.MetadataResponseBroker(node_id=1, host="h", port=1)], controller_id=1, topics=topics)


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    with TinyJournal(lake, "first", 1) as journal:
        journal.request(7, ApiKey.LEADER_AND_ISR, 7, leader_and_isr(), dir=Direction.REQUEST_OUT, cause=99)  # seq 1
        journal.request(7, ApiKey.UPDATE_METADATA, 4, update_metadata(), dir=Direction.REQUEST_OUT)  # 2
        asked = journal.request(8, ApiKey.METADATA, 12, messages.MetadataRequest())  # 3
        journal.response(8, asked, metadata_response())  # 4
        journal.raw(8, Direction.REQUEST_IN, b"GET / HTTP/1.1\r\n")  # 5
        journal.raw(8, Direction.REQUEST_IN, b"secret", flags=Flag.RAW_TOKEN)  # 6
        journal.request(8, ApiKey.METADATA, 12, messages.encode(messages.MetadataRequest(), 12) + b"abc")  # 7
        journal.request(8, ApiKey.METADATA, 12, messages.MetadataRequest(), api_version=99)  # 8
        stop = messages.StopReplicaRequest(topics=[messages.StopReplicaRequest.StopReplicaTopicV1(name="t", partition_indexes=(1, 2))])
        journal.request(7, ApiKey.STOP_REPLICA, 1, stop._replace(delete_partitions=True), dir=Direction.REQUEST_OUT)  # 9
        situation = {"rule": {"name": "Elect"}, "situation": {}, "partitions": [["t", 0], ["t", 1]]}
        journal.event("decision", input=situation, output={"write": {}}, cause=1, controller_epoch=7)  # 10
        journal.event("reassign_phase", topic="t", partition=0, output={"phase": "B3", "step": 4})  # 11
        journal.event("assignment", topic="t", partition=0, output={"replicas": [1, 2], "adding": [2], "removing": []})  # 12
    with TinyJournal(lake, "second: odd=name", 2) as journal:
        journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest())
    build_silver(SparkWorkers(spark), lake, bronze(lake), 0)
    views(spark, lake)
    return lake


def rows(spark: Any, sql: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in spark.sql(sql).collect()]


def frames(lake: Path) -> list[Source]:
    """The files of bronze with frames."""
    return [one for one in bronze(lake) if one.table == "frames"]


def test_every_frame_is_a_message_or_in_quarantine(spark: Any, lake: Path) -> None:
    assert [row["seq"] for row in rows(spark, "SELECT seq FROM messages WHERE run_id = 'first' ORDER BY seq")] == [1, 2, 3, 4, 7, 9]
    found = rows(spark, "SELECT seq, reason FROM quarantine ORDER BY seq")
    assert [tuple(row.values()) for row in found] == [(5, "unknown_key"), (6, "raw_token"), (8, "unknown_version")]
    assert rows(spark, "SELECT count(*) AS n, count(reason) AS bad FROM headers") == [{"n": 10, "bad": 3}]


def test_a_body_is_json_with_kafkas_names(spark: Any, lake: Path) -> None:
    (found,) = rows(spark, "SELECT body_json FROM messages WHERE api_key = 4")
    assert json.loads(found["body_json"])["topicStates"][0]["partitionStates"][0]["leaderEpoch"] == 3


def test_rows_have_times_and_words_for_people(spark: Any, lake: Path) -> None:
    found = rows(spark, "SELECT api, direction, ts_ns, ts FROM messages WHERE run_id = 'first' ORDER BY seq")
    assert [(row["api"], row["direction"]) for row in found] == [
        ("LeaderAndIsr", "request out"), ("UpdateMetadata", "request out"), ("Metadata", "request in"), ("Metadata", "response out"),
        ("Metadata", "request in"), ("StopReplica", "request out"),
    ]
    assert all(row["ts"].timestamp() == pytest.approx(row["ts_ns"] / 1e9, abs=2e-6) for row in found)
    assert rows(spark, "SELECT api, direction FROM quarantine ORDER BY seq") == [
        {"api": None, "direction": "request in"}, {"api": None, "direction": "request in"}, {"api": "Metadata", "direction": "request in"},
    ]
    assert rows(spark, "SELECT api, direction FROM api_errors") == [{"api": "Metadata", "direction": "response out"}]
    assert rows(spark, "SELECT count(ts) AS n, count_if(unix_micros(ts) = ts_ns div 1000) AS same FROM events") == [{"n": 3, "same": 3}]
    (file,) = delta_log.files(lake, MESSAGES.path, {"first"})
    schema = pq.read_schema(file)
    assert [str(schema.field(name).type) for name in ("ts", "api", "direction")] == ["timestamp[us, tz=UTC]", "string", "string"]


def test_surplus_bytes_of_a_client_are_counted(spark: Any, lake: Path) -> None:
    assert rows(spark, "SELECT seq, bytes_left FROM messages WHERE bytes_left > 0") == [{"seq": 7, "bytes_left": 3}]


def test_partition_states_are_flat(spark: Any, lake: Path) -> None:
    first, second, *rest = rows(spark, "SELECT * FROM partition_state ORDER BY seq, partition")
    assert first["seq"] == 1 and first["cause_seq"] == 99 and first["request_seq"] is None
    names = ["controller_id", "controller_epoch", "broker_epoch", "topic", "topic_id", "partition", "leader", "leader_epoch", "isr"]
    names += ["replicas", "adding", "removing"]
    assert [first[name] for name in names] == [1, 7, 70, "t", "AAECAwQFBgcICQoLDA0ODw", 0, 2, 3, [2, 1], [1, 2, 3], [3], [1]]
    assert (first["partition_epoch"], first["recovery"], first["is_new"], first["offline"]) == (5, 1, True, None)
    assert (second["seq"], second["topic_id"], second["partition"], second["leader"], second["offline"]) == (2, None, 4, -1, [2])
    assert second["partition_epoch"] == 9
    assert [(row["seq"], row["request_seq"], row["error_code"], row["partition"], row["deleting"]) for row in rest] == [
        (4, 3, 5, 0, None), (4, 3, 5, 0, None), (9, None, None, 1, True), (9, None, None, 2, True)
    ]


def test_brokers_and_error_codes_are_flat(spark: Any, lake: Path) -> None:
    update, metadata = rows(spark, "SELECT * FROM broker_state ORDER BY seq")
    assert (update["broker_id"], update["epoch"], update["host"], update["port"], update["rack"]) == (2, None, "h", 9092, "r1")
    assert json.loads(update["endpoints"]) == [{"port": 9092, "host": "h", "listener": "PLAINTEXT", "securityProtocol": 0}]
    assert (metadata["seq"], metadata["source"], metadata["broker_id"]) == (4, "Metadata", 1)
    (code,) = rows(spark, "SELECT seq, path, error_code, count FROM api_errors")
    assert code == {"seq": 4, "path": "topics[].partitions[].errorCode", "error_code": 5, "count": 2}
    assert rows(spark, "SELECT error_code, errors FROM messages WHERE seq = 4") == [{"error_code": None, "errors": 2}]


def test_decisions_and_reassignments_are_tables(spark: Any, lake: Path) -> None:
    (decision,) = rows(spark, "SELECT * FROM decisions")
    assert (decision["rule"], decision["partition_count"], decision["cause_seq"]) == ("Elect", 2, 1)
    assert json.loads(decision["partitions"]) == [["t", 0], ["t", 1]]
    phase, assignment = rows(spark, "SELECT * FROM reassign ORDER BY seq")
    assert (phase["phase"], phase["step"], phase["replicas"]) == ("B3", 4, None)
    assert (assignment["replicas"], assignment["adding"], assignment["removing"]) == ([1, 2], [2], [])


def test_the_views_can_be_limited_to_runs(spark: Any, lake: Path) -> None:
    assert read(spark, lake, MESSAGES, ["second: odd=name"]).count() == 1
    assert read(spark, lake, DECISIONS, ["second: odd=name"]).count() == 0


def test_the_view_of_rare_apis_names_a_range_by_which_row_groups_are_skipped(spark: Any, lake: Path) -> None:
    plan = spark.sql(f"EXPLAIN {RARE_FIELDS.sql}").collect()[0][0]
    assert "Or(LessThan(api_key,0),GreaterThan(api_key,1))" in plan


def test_a_batch_that_comes_again_counts_once(spark: Any, lake: Path) -> None:
    before = {table.path: delta_log.rows(lake, table.path) for table in SILVER}
    build_silver(SparkWorkers(spark), lake, frames(lake), 0)
    assert {table.path: delta_log.rows(lake, table.path) for table in SILVER} == before
    assert read(spark, lake, MESSAGES).count() == 7


def test_frames_that_bronze_has_and_silver_has_not_are_an_error_in_one_line_and_nothing_is_added(spark: Any, lake: Path) -> None:
    before = {table.path: delta_log.rows(lake, table.path) for table in SILVER}
    more = [one._replace(rows=10) if one.run == "first" else one for one in frames(lake)]
    with pytest.raises(RowsLostError, match=r"^run first: 10 rows in bronze, 9 in messages and quarantine$") as lost:
        build_silver(SparkWorkers(spark), lake, more, 1)
    assert isinstance(lost.value, PipelineFailed)
    assert {table.path: delta_log.rows(lake, table.path) for table in SILVER} == before


def test_duckdb_and_pandas_read_what_the_log_names(spark: Any, lake: Path) -> None:
    files = [str(path) for path in delta_log.files(lake, "silver/partition_state")]
    assert duckdb.sql(f"SELECT count(*), max(leader_epoch) FROM read_parquet({files})").fetchall() == [(6, 3)]
    assert pandas.concat([pandas.read_parquet(file) for file in files])["topic"].tolist() == ["t"] * 6


def test_a_task_whose_worker_is_killed_is_done_again_and_leaves_only_whole_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"

    def killed_once(lake: Path, batch: str, task: SilverTask) -> list[Entry]:
        if not killed.exists():
            killed.touch()
            add = RowGroups.add

            def add_and_end(self: RowGroups, batch: Any) -> None:
                add(self, batch)
                self._write(self._waiting)
                os.kill(os.getpid(), signal.SIGKILL)

            RowGroups.add = add_and_end  # type: ignore[method-assign]
        return write_task(lake, batch, task)

    for run in ("one", "two"):
        with TinyJournal(tmp_path, run, 1) as journal:
            for _ in range(5):
                journal.request(1, ApiKey.METADATA, 12, messages.MetadataRequest())
            journal.event("timer")
    monkeypatch.setattr(silver, "write_task", killed_once)
    entries = build_silver(SparkWorkers(spark), tmp_path, bronze(tmp_path), 0)
    assert killed.exists()
    assert {(entry.table, entry.run): entry.rows for entry in entries if entry.table != "silver/fields"} == {
        ("silver/messages", "one"): 5, ("silver/messages", "two"): 5, ("silver/events", "one"): 1, ("silver/events", "two"): 1,
    }
    stream.remove_remains(tmp_path)
    assert sorted((tmp_path / "silver").rglob("part-*")) == sorted(tmp_path / entry.path for entry in entries)


def test_a_damaged_file_of_bronze_fails_the_batch_and_adds_nothing(spark: Any, tmp_path: Path) -> None:
    with TinyJournal(tmp_path, "r", 1) as journal:
        journal.request(1, ApiKey.METADATA, 12, messages.MetadataRequest())
    (source,) = bronze(tmp_path)
    (tmp_path / source.path).write_bytes(b"no Parquet")
    with pytest.raises(PipelineFailed, match=r"frames-.*\.parquet cannot be read: .*magic bytes"), spark_failures():
        build_silver(SparkWorkers(spark), tmp_path, [source], 0)
    assert delta_log.entries(tmp_path, MESSAGES.path) == []
