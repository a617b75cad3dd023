from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from klamm.journal.reading import seal_leftovers, segments
from klamm.journal.writer import JournalWriter
from klamm.pipeline import stream
from klamm.pipeline.compact import purge
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.access.driver import existing, written
from klamm.pipeline.lake.bronze import Converted, PendingSegments, convert, convert_all, foreign_files, own_segments, pending
from klamm.pipeline.lake.commits import COMMITS, Commits
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.table_parts import put
from klamm.pipeline.lake.tables import BRONZE, EVENT_TABLE, MESSAGES, SILVER
from klamm.pipeline.lake.unjudged_rows import torn_segments
from klamm.tests.harness.waits import wait_for
from klamm.tests.journal.writing import TinyJournal, simple_exchange


def journal(lake: Path, run: str = "r", node: int = 1, exchanges: int = 3) -> TinyJournal:
    """Two rows of frames for each exchange, and one event."""
    tiny = TinyJournal(lake, run, node)
    tiny.event("broker_started", output={"broker": node})
    for _ in range(exchanges):
        simple_exchange(tiny)
    return tiny


def to_bronze(lake: Path) -> list[Converted]:
    """All that is not bronze yet."""
    commits = Commits(lake)
    converted = convert_all(lake, pending(lake, commits), lambda _: None)
    commits.add(converted)
    return converted


def query(lake: Path, table: str, text: str) -> list[tuple[object, ...]]:
    return duckdb.sql(text.replace("FILES", repr([str(path) for path in delta_log.files(lake, f"bronze/{table}")]))).fetchall()


def test_each_segment_is_one_parquet_file_with_its_rows(tmp_path: Path) -> None:
    for node in (1, 2):
        journal(tmp_path, node=node).close()
    assert sorted((one.table, one.rows, one.torn) for one in to_bronze(tmp_path)) == [("events", 1, None)] * 2 + [("frames", 6, None)] * 2
    assert query(tmp_path, "frames", "SELECT node_id, count(*), min(seq), max(seq) FROM read_parquet(FILES) GROUP BY 1 ORDER BY 1") == [
        (1, 6, 2, 7),
        (2, 6, 2, 7),
    ]
    names = [column[0] for column in query(tmp_path, "frames", "SELECT name FROM parquet_schema(FILES) WHERE num_children IS NULL")]
    assert names[: len(BRONZE[0].columns)] == list(BRONZE[0].names)


def test_the_small_batches_of_a_journal_become_one_row_group(tmp_path: Path) -> None:
    with journal(tmp_path, exchanges=20) as tiny:
        for _ in range(5):
            tiny.batch()
            simple_exchange(tiny)
    to_bronze(tmp_path)
    assert query(tmp_path, "frames", "SELECT DISTINCT row_group_num_rows FROM parquet_metadata(FILES)") == [(50,)]


def test_pandas_reads_bronze(tmp_path: Path) -> None:
    journal(tmp_path).close()
    to_bronze(tmp_path)
    frame = pd.concat([pd.read_parquet(path, partitioning=None) for path in delta_log.files(tmp_path, "bronze/frames")])
    assert list(frame.seq) == [2, 3, 4, 5, 6, 7]
    assert set(frame.segment) == {"frames-00000000000000000002.arrows"}


def test_a_segment_becomes_bronze_once(tmp_path: Path) -> None:
    tiny = journal(tmp_path)
    tiny.roll()
    to_bronze(tmp_path)
    assert to_bronze(tmp_path) == []
    simple_exchange(tiny)
    tiny.close()
    assert [one.rows for one in to_bronze(tmp_path)] == [2]
    assert Commits(tmp_path).rows == {"frames": 8, "events": 1}


def test_a_segment_that_is_committed_is_not_committed_again(tmp_path: Path) -> None:
    journal(tmp_path).close()
    commits = Commits(tmp_path)
    converted = convert_all(tmp_path, pending(tmp_path, commits), lambda _: None)
    commits.add(converted)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    for again in (commits, Commits(tmp_path)):
        again.add(converted)
        assert again.rows == {"frames": 6, "events": 1}
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before


def test_a_segment_that_is_being_written_is_not_converted(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "r", 1)
    writer.event("timer")
    writer.wake()
    wait_for(lambda: segments(tmp_path), "the segment has a file")
    assert pending(tmp_path, set()) == []
    writer.close()
    (segment,) = pending(tmp_path, set())
    assert segment.sealed
    assert pending(tmp_path, {("r", "node=1/events-00000000000000000001.arrows")}) == []
    assert len(pending(tmp_path, {("s", "node=1/events-00000000000000000001.arrows")})) == 1


def test_a_later_look_finds_what_is_new_and_where_segments_are_written(tmp_path: Path) -> None:
    done = {("r", "node=1/frames-00000000000000000001.arrows")}
    look = PendingSegments(tmp_path, done).look
    assert look() == []
    with TinyJournal(tmp_path) as journal:
        for _ in range(3):
            simple_exchange(journal)
            journal.roll()
        assert [segment.first_seq for segment in look()] == [3, 5]
        done.add(("r", "node=1/frames-00000000000000000003.arrows"))
        assert [segment.first_seq for segment in look()] == [5]
        (journal.folder / "frames-00000000000000000001.arrows").unlink()
        (journal.folder / "frames-00000000000000000003.arrows").unlink()
        simple_exchange(journal)
    assert [segment.first_seq for segment in look()] == [5, 7]


def test_commits_have_so_many_rows_and_take_the_brokers_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.pipeline.lake.commits.COMMIT_ROWS", 8)
    for node in (2, 1):
        with journal(tmp_path, node=node) as tiny:
            tiny.roll()
            simple_exchange(tiny)
    to_bronze(tmp_path)
    commits = [list(map(json.loads, path.read_text().splitlines())) for path in sorted((tmp_path / COMMITS).iterdir())]
    assert [[(row["batch"].partition("/")[0], int(Path(row["path"]).stem[-2:])) for row in commit] for commit in commits] == [
        [("node=1", 1), ("node=2", 1), ("node=1", 2)],
        [("node=2", 2), ("node=1", 8)],
        [("node=2", 8)],
    ]
    assert [sum(row["rows"] for row in commit) for commit in commits] == [8, 8, 2]


def test_bronze_is_not_purged_before_all_its_rows_are_in_silver(tmp_path: Path) -> None:
    journal(tmp_path).close()
    to_bronze(tmp_path)
    parquet = sorted((tmp_path / "bronze").rglob("*.parquet"))
    of_messages, of_events = (MESSAGES, "r", "0"), (EVENT_TABLE, "r", "0")
    messages, events = (put(tmp_path, *of, pa.table({"seq": range(rows)})) for of, rows in ((of_messages, 6), (of_events, 1)))
    for there, told in (
        ([], "6 frames in bronze, but 0 messages and 0 frames in quarantine"),
        ([events], "6 frames in bronze, but 0 messages and 0 frames in quarantine"),
        ([events._replace(bytes=0), messages], "1 events in bronze, but 0 in silver"),
    ):
        delta_log.append(tmp_path, SILVER, there)
        with pytest.raises(PipelineFailed, match=told):
            purge(tmp_path)
        assert sorted((tmp_path / "bronze").rglob("*.parquet")) == parquet
    delta_log.append(tmp_path, SILVER, [events])
    assert purge(tmp_path) == 2
    assert list((tmp_path / "bronze").rglob("*.parquet")) == []
    assert (purge(tmp_path), to_bronze(tmp_path)) == (0, [])
    with pytest.raises(PipelineFailed, match="bronze was purged: they cannot be made again from bronze"):
        stream.prepare(tmp_path)
    assert delta_log.rows(tmp_path, "silver/messages") == 6


def test_what_was_converted_but_not_committed_is_committed_by_the_next_run(tmp_path: Path) -> None:
    journal(tmp_path).close()
    (events, frames) = pending(tmp_path, set())
    (tmp_path / "bronze/frames/run=r/node=1").mkdir(parents=True)
    (tmp_path / "bronze/frames/run=r/node=1/.frames-00000000000000000002.parquet.7").write_bytes(b"torn")
    delta_log.append(tmp_path, BRONZE, [convert(tmp_path, frames).entry])
    assert Commits(tmp_path).rows == {"frames": 0, "events": 0}
    to_bronze(tmp_path)
    assert Commits(tmp_path).rows == {"frames": 6, "events": 1}
    assert delta_log.rows(tmp_path, "bronze/frames") == 6
    assert events.table == "events"


def test_commits_are_read_again_as_they_were_written(tmp_path: Path) -> None:
    journal(tmp_path).close()
    commits = Commits(tmp_path)
    commits.add(convert_all(tmp_path, pending(tmp_path, commits), lambda _: None))
    again = Commits(tmp_path)
    assert (again.journals, again.rows, again.runs, again.last) == (commits.journals, commits.rows, {"r"}, 0)
    assert [path.name for path in (tmp_path / COMMITS).iterdir()] == ["0000000000.json"]


def test_a_torn_segment_gives_its_whole_batches(tmp_path: Path) -> None:
    tiny = journal(tmp_path)
    tiny.batch()
    simple_exchange(tiny)
    tiny.event("broker_stopped")
    tiny.kill(torn=9)
    seal_leftovers(tmp_path)
    converted = {one.table: one for one in to_bronze(tmp_path)}
    assert (converted["frames"].rows, converted["events"].rows) == (6, 1)
    assert converted["frames"].torn not in (None, "no end mark")
    assert Commits(tmp_path).torn == {("r", one.batch): one.torn for one in converted.values()}
    assert [(one.run, one.why) for one in torn_segments(tmp_path, {"r"})] == [("r", converted[name].torn) for name in ("events", "frames")]
    assert torn_segments(tmp_path, {"other"}) == []


def test_what_cannot_be_renamed_is_read_as_it_is(tmp_path: Path) -> None:
    tiny = journal(tmp_path)
    tiny.kill()
    assert sorted((one.table, one.rows) for one in to_bronze(tmp_path)) == [("events", 1), ("frames", 6)]


def test_bytes_that_are_no_segment_become_no_rows_and_a_reason(tmp_path: Path) -> None:
    tiny = journal(tmp_path)
    tiny.close()
    tiny.last("frames").write_bytes(os.urandom(500))
    (tiny.folder / "notes.txt").write_text("?")
    converted = {one.table: one for one in to_bronze(tmp_path)}
    assert (converted["frames"].rows, bool(converted["frames"].torn)) == (0, True)
    assert not (tmp_path / converted["frames"].path).exists()
    assert foreign_files(tmp_path) == [tiny.folder / "notes.txt"]


def test_a_folder_that_is_no_lake_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match=r"no-such: no such folder; "):
        existing(tmp_path / "no-such")
    with pytest.raises(PipelineFailed, match=r"not a lake, because it has no folder `journal`"):
        existing(tmp_path)


def test_one_process_writes_the_tables_of_a_lake(tmp_path: Path) -> None:
    journal(tmp_path).close()
    with written(tmp_path), pytest.raises(PipelineFailed, match=r"another process of the pipeline writes its tables"), written(tmp_path):
        pass
    with written(tmp_path) as lake:
        assert lake == tmp_path.resolve()


@pytest.mark.parametrize("old, new", [("run=r", "run=other"), ("run=r/node=1", "run=r/node=2")])
def test_a_folder_with_the_name_of_another_journal_is_one_line(tmp_path: Path, old: str, new: str) -> None:
    journal(tmp_path).close()
    (tmp_path / "journal" / old).rename(tmp_path / "journal" / new)
    with pytest.raises(PipelineFailed, match="its folder says"):
        to_bronze(tmp_path)
    with TinyJournal(tmp_path, "whole") as whole:
        simple_exchange(whole)
    own, lines = own_segments(segments(tmp_path))
    assert {segment.run for segment in own} == {"whole"}
    assert lines == [f"{new} is a copy of {old.rpartition('/')[2]} or was renamed: 2 segments are left out; "
                     "a folder keeps the name that its rows have"]
