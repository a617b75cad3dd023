"""How files of bronze become tasks: similar in size, every row once, the same for the same files."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm.journal.columns import EVENTS, FRAMES
from klamm.pipeline import silver
from klamm.pipeline.decode.batches import joined
from klamm.pipeline.decode.silver_rows import events_into
from klamm.pipeline.lake.parquet_files import told
from klamm.pipeline.silver import Source, tasks
from klamm.pipeline.silver_files import Files, Piece, SilverTask, read_bronze, write_task
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import TinyJournal
from klamm.tests.pipeline.bronze_rows import bronze


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silver, "TASK_ROWS", 100)
    monkeypatch.setattr(silver, "LEAST_ROWS", 10)


def source(lake: Path, run: str, name: str, *groups: int, table: str = "frames") -> Source:
    """A file of bronze with row groups of these sizes."""
    with pq.ParquetWriter(lake / name, pa.schema([("seq", pa.int64())])) as file:
        for rows in groups:
            file.write_table(pa.table({"seq": list(range(rows))}))
    return Source(table, run, name, sum(groups))


def test_few_rows_are_one_task_whatever_their_files_and_tables_are(tmp_path: Path) -> None:
    files = [source(tmp_path, run, f"{run}-{table}", 1, table=table) for run in "abc" for table in ("frames", "events")]
    (task,) = tasks(tmp_path, files)
    assert [(piece.run, piece.table, piece.group) for piece in task.pieces] == [
        (run, table, None) for run in "abc" for table in ("events", "frames")
    ]


def test_many_rows_are_several_tasks_of_similar_size_and_a_large_file_is_several_tasks(tmp_path: Path) -> None:
    files = [source(tmp_path, "b", "large", 60, 60, 60, 20), *(source(tmp_path, "a", f"small-{number:02}", 7) for number in range(30))]
    found = tasks(tmp_path, files)
    sizes = [sum(7 if piece.group is None else (60, 60, 60, 20)[piece.group] for piece in task.pieces) for task in found]
    assert sum(sizes) == 410 and max(sizes) <= 100 and len(sizes) == 5
    assert sizes == sorted(sizes, reverse=True)
    pieces = [piece for task in found for piece in task.pieces]
    assert len(set(pieces)) == len(pieces) == 34
    assert tasks(tmp_path, files[::-1]) == found


def test_a_few_hundred_rows_keep_more_than_one_core_busy(tmp_path: Path) -> None:
    assert len(tasks(tmp_path, [source(tmp_path, "a", str(number), 10) for number in range(8)])) == 4


def test_a_column_that_an_older_klamm_did_not_write_is_null(tmp_path: Path) -> None:
    pq.write_table(pa.table({"run_id": ["r"], "seq": pa.array([5], pa.int64())}), tmp_path / "old.parquet")
    for table, columns in (("frames", FRAMES), ("events", EVENTS)):
        (rows,) = read_bronze(tmp_path, [Piece(table, "r", "old.parquet", None)])
        assert rows.schema.names == [column.name for column in columns]
        assert rows.to_pylist() == [dict.fromkeys(rows.schema.names) | {"run_id": "r", "seq": 5}]


def test_fields_of_produce_and_fetch_have_row_groups_of_their_own(tmp_path: Path) -> None:
    fetch = messages.FetchRequest(isolation_level=1)
    with TinyJournal(tmp_path, "r", 1) as journal:
        for _ in range(2):
            journal.request(1, ApiKey.FETCH, 11, fetch)
            journal.request(1, ApiKey.DELETE_TOPICS, 1, messages.DeleteTopicsRequest(topic_names=("t",)))
    write_task(tmp_path, "0", SilverTask(0, [Piece(one.table, one.run, one.path, None) for one in bronze(tmp_path)]))
    (file,) = (tmp_path / "silver/fields").rglob("*.parquet")
    parquet = pq.ParquetFile(file)
    keys = [parquet.read_row_group(number, ["api_key"]).column(0).to_pylist() for number in range(parquet.num_row_groups)]
    assert keys == [[1, 1], [20, 20]]


def test_small_batches_are_joined() -> None:
    def batch(rows: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"n": [1] * rows})

    assert [rows.num_rows for rows in joined(map(batch, (5000, 3000, 200, 9000, 1, 2)))] == [8200, 9000, 3]
    assert list(joined([])) == []


def test_a_task_needs_no_spark_and_writes_the_same_rows_again_to_files_of_its_own(tmp_path: Path) -> None:
    for run in ("one", "two: odd=name"):
        with TinyJournal(tmp_path, run, 1) as journal:
            journal.request(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest())
            journal.event("timer")
    task = SilverTask(3, [Piece(one.table, one.run, one.path, None) for one in sorted(bronze(tmp_path), key=lambda one: one.run)])
    written = []
    for _ in range(2):
        files = write_task(tmp_path, "7", task)
        assert pickle.loads(pickle.dumps(files)) == files
        for file in files:
            assert file[4:] == told(pq.read_metadata(tmp_path / file.path), (tmp_path / file.path).stat().st_size)
        written.append({(file.table, file.run): (tmp_path / file.path).read_bytes() for file in files})
    assert written[0] == written[1]
    assert sorted(written[0]) == [(f"silver/{table}", run) for table in ("events", "messages") for run in ("one", "two: odd=name")]
    assert len({file.path for file in files}) == 4 and len(list((tmp_path / "silver").rglob("part-00003-*.parquet"))) == 8


def test_two_tries_of_a_task_at_once_write_a_file_each(tmp_path: Path) -> None:
    """As with `spark.speculation`: neither takes the unfinished file of the other."""
    with TinyJournal(tmp_path, "r", 1) as journal:
        journal.event("timer")
    pieces = [Piece(one.table, one.run, one.path, None) for one in bronze(tmp_path) if one.table == "events"]
    tries = [Files(tmp_path, "7", "r", 3) for _ in range(2)]
    for one in tries:
        for rows in read_bronze(tmp_path, pieces):
            events_into(one.add, rows)
            ((_, file),) = one._files.values()
            file._write(file._waiting)  # a full row group, so that each has an unfinished file
    (first,), (second,) = (one.close() for one in tries)
    assert first.path != second.path and first[4:] == second[4:]
