"""The tables as readers of Delta Lake see them, in a lake and in a copy of it: which files a reader opens, and which ones go."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.bronze import convert_all, pending
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.parquet_files import LONGEST_STATED
from klamm.pipeline.lake.tables import MESSAGES
from klamm.pipeline.publish import HOUR_NS, Removed, publish, remove_old
from klamm.pipeline.silver_files import Piece, SilverTask, write_task
from klamm.tests.cli.running import run as call
from klamm.tests.journal.writing import START_NS, TinyJournal, simple_exchange
from klamm.tests.pipeline.lakes_by_hand import delta_statistics

DAY_NS = 24 * HOUR_NS
ODD = "a b%c=d'é"
"""A name of a run with all that is escaped somewhere: in folders, in Delta's log, in URLs."""


def days(lake: Path, count: int, run: str = "r", step_ns: int = 1_000_000) -> None:
    """A request and its response each day, each day a file of messages as the pipeline makes it."""
    for number in range(count):
        with TinyJournal(lake, run, process=number + 1, seq=2 * number + 1, ts_ns=START_NS + number * DAY_NS) as tiny:
            tiny.step_ns = step_ns
            simple_exchange(tiny)
        commits = Commits(lake)
        converted = convert_all(lake, pending(lake, commits), lambda _: None)
        commits.add(converted)
        task = SilverTask(0, [Piece(one.table, one.run, one.path, None) for one in converted if one.rows])
        delta_log.append(lake, [MESSAGES], write_task(lake, str(number), task))


def opened(table: DeltaTable, wanted: Any) -> int:
    return len(list(table.to_pyarrow_dataset().get_fragments(wanted)))


def test_a_reader_that_asks_for_a_day_a_run_or_rows_opens_only_the_files_that_have_them(tmp_path: Path) -> None:
    days(tmp_path, 3)
    days(tmp_path, 1, ODD)
    table = DeltaTable(str(tmp_path / MESSAGES.path))
    second = START_NS + DAY_NS
    begin = datetime.fromtimestamp(second // 10**9, UTC)
    assert opened(table, None) == 4
    assert opened(table, (ds.field("ts_ns") >= second) & (ds.field("ts_ns") < second + DAY_NS)) == 1
    assert opened(table, ds.field("ts") >= begin) == 2
    assert opened(table, ds.field("run_id") == ODD) == 1
    assert opened(table, ds.field("seq") == 5) == 1
    assert opened(table, ds.field("node_id") == 7) == 0


def test_the_least_and_the_greatest_value_of_each_file_include_all_of_its_rows(tmp_path: Path) -> None:
    """A time of microseconds lies between two of milliseconds; a long text has none."""
    days(tmp_path, 1, "r" * (LONGEST_STATED + 1), step_ns=1_001_000)
    table = DeltaTable(str(tmp_path / MESSAGES.path))
    (stated,) = delta_statistics(tmp_path / MESSAGES.path)
    low, high = stated["minValues"], stated["maxValues"]
    rows = table.to_pyarrow_table(columns=["ts", "ts_ns"])
    times = [row["ts"] for row in rows.to_pylist()]
    assert datetime.fromisoformat(low["ts"]) <= min(times) < max(times) <= datetime.fromisoformat(high["ts"])
    assert "run_id" not in low and len({row["ts_ns"] for row in rows.to_pylist()}) == 2
    for one in times:
        assert opened(table, ds.field("ts") == one) == 1


def test_old_files_go_from_a_target_and_all_rows_of_the_last_version_stay(tmp_path: Path) -> None:
    lake, target = tmp_path / "lake", tmp_path / "target"
    days(lake, 2, ODD)
    list(publish(lake, str(target)))
    first = [one._replace(statistics='{"numRecords":2}') for one in delta_log.entries(lake, MESSAGES.path)[:1]]
    delta_log.drop(lake, MESSAGES.path, first)
    list(publish(lake, str(target)))
    folder = target / MESSAGES.path
    assert list(remove_old(str(target), HOUR_NS)) == []
    assert [DeltaTable(str(folder), version=version).to_pyarrow_table().num_rows for version in (0, 1)] == [4, 2]
    assert list(remove_old(str(target), 0)) == [Removed(MESSAGES.path, 1)]
    assert list(remove_old(str(target), 0)) == []
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 2
    assert len(list(folder.rglob("*.parquet"))) == 1
    delta_log.change(lake, MESSAGES, first, [])  # the same file again, under the same name
    list(publish(lake, str(target)))
    assert list(remove_old(str(target), 0)) == []
    assert DeltaTable(str(folder)).to_pyarrow_table().num_rows == 4


def test_the_command_deletes_from_a_target(tmp_path: Path) -> None:
    lake, target = tmp_path / "lake", tmp_path / "target"
    days(lake, 2)
    call("pipeline", "publish", lake, target)
    delta_log.drop(lake, MESSAGES.path, delta_log.entries(lake, MESSAGES.path)[:1])
    done = call("pipeline", "publish", lake, target, "--keep", "0m")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{MESSAGES.path}: 1 old file deleted")


def test_a_log_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    lake, target = tmp_path / "lake", tmp_path / "target"
    days(lake, 1)
    list(publish(lake, str(target)))
    (target / MESSAGES.path / "_delta_log" / "00000000000000000000.json").write_text("{")
    with pytest.raises(PipelineFailed, match=r"^files of silver/messages cannot be removed: .+"):
        list(remove_old(str(target), 0))


def test_a_file_that_went_less_than_the_time_to_keep_ago_stays_also_with_a_part_of_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, target = tmp_path / "lake", tmp_path / "target"
    days(lake, 2)
    list(publish(lake, str(target)))
    delta_log.drop(lake, MESSAGES.path, delta_log.entries(lake, MESSAGES.path)[:1])
    went_s = time.time() - 80 * 60
    monkeypatch.setattr(delta_log, "time", SimpleNamespace(time_ns=lambda: round(went_s * 1e9)))
    list(publish(lake, str(target)))
    assert list(remove_old(str(target), HOUR_NS * 3 // 2)) == []
    assert list(remove_old(str(target), HOUR_NS)) == [Removed(MESSAGES.path, 1)]


def test_what_a_killed_run_has_committed_is_not_published_before_the_next_run_names_it(tmp_path: Path) -> None:
    lake, target = tmp_path / "lake", tmp_path / "copy"
    days(lake, 1)
    delta_log.name_version(lake)
    days(lake, 1, "killed")
    list(publish(lake, str(target)))
    assert {entry.run for entry in delta_log.entries(target, MESSAGES.path)} == {"r"}
    delta_log.name_version(lake)
    list(publish(lake, str(target)))
    assert {entry.run for entry in delta_log.entries(target, MESSAGES.path)} == {"r", "killed"}
