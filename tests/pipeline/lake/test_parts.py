"""Parts take their places when they are whole, and only if no row is missing or there twice."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm.pipeline.lake import manifest
from klamm.pipeline.lake import table_parts as parts
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.table_parts import WrittenFile
from klamm.pipeline.lake.tables import MESSAGES, PARTITION_STATE, QUARANTINE, Table
from klamm.pipeline.silver import RowsLostError, _adopted

TABLES = (MESSAGES, PARTITION_STATE, QUARANTINE)


def staged(lake: Path, table: Table, rows: int, name: str = "part-0.parquet", run: str = "r") -> WrittenFile:
    """A file of so many rows where a part grows, and what its task reports."""
    folder = parts.stage(lake, table, "7") / parts.folder_of_run(run)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": list(range(rows))}), folder / name)
    return WrittenFile(table.path, run, name, (folder / name).stat().st_size, manifest.Footers(rows))


def test_a_batch_is_adopted_when_each_run_has_as_many_rows_as_came_in(tmp_path: Path) -> None:
    files = [
        staged(tmp_path, MESSAGES, 3), staged(tmp_path, QUARANTINE, 2), staged(tmp_path, PARTITION_STATE, 9),
        staged(tmp_path, MESSAGES, 1, run="s"),
    ]
    entries = _adopted(tmp_path, TABLES, (MESSAGES, QUARANTINE), "7", {"r": 5, "s": 1}, files)
    assert [(entry.table, entry.run, entry.rows) for entry in entries] == [
        ("silver/messages", "r", 3), ("silver/messages", "s", 1), ("silver/partition_state", "r", 9), ("silver/quarantine", "r", 2),
    ]
    assert all(manifest.told(tmp_path, entry).rows == entry.rows for entry in entries)


@pytest.mark.parametrize(("rows", "said"), [((3, 1), "5 rows in bronze, 4 in"), ((3, 3), "5 rows in bronze, 6 in")])
def test_a_row_that_is_missing_or_there_twice_is_an_error_and_nothing_is_adopted(tmp_path: Path, rows: tuple[int, int], said: str) -> None:
    files = [staged(tmp_path, MESSAGES, rows[0]), staged(tmp_path, MESSAGES, rows[1], "part-1.parquet")]
    with pytest.raises(RowsLostError, match=rf"run r: {said} messages and quarantine"):
        _adopted(tmp_path, TABLES, (MESSAGES, QUARANTINE), "7", {"r": 5}, files)
    assert not (tmp_path / MESSAGES.path).exists()


def test_each_run_is_counted_for_itself(tmp_path: Path) -> None:
    files = [staged(tmp_path, MESSAGES, 3), staged(tmp_path, MESSAGES, 1, run="s")]
    with pytest.raises(RowsLostError, match="run r: 2 rows in bronze, 3 in"):
        _adopted(tmp_path, TABLES, (MESSAGES, QUARANTINE), "7", {"r": 2, "s": 2}, files)


@pytest.mark.parametrize("change", ["gone", "shorter", "one more"])
def test_a_part_whose_files_are_not_those_that_were_reported_is_an_error_and_not_adopted(tmp_path: Path, change: str) -> None:
    files = [staged(tmp_path, MESSAGES, 3), staged(tmp_path, MESSAGES, 1, "part-1.parquet")]
    file = parts.stage(tmp_path, MESSAGES, "7") / parts.folder_of_run("r") / "part-1.parquet"
    if change == "gone":
        file.unlink()
    elif change == "shorter":
        os.truncate(file, 10)
    else:
        staged(tmp_path, MESSAGES, 1, "part-2.parquet")
    with pytest.raises(PipelineFailed, match=r"run=r: \d files are there, which are not the 2 that were written"):
        _adopted(tmp_path, TABLES, (MESSAGES, QUARANTINE), "7", {"r": 4}, files)
    assert not (tmp_path / MESSAGES.path).exists()


def test_a_part_that_is_written_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    staged(tmp_path, MESSAGES, 3)
    staged(tmp_path, MESSAGES, 3, "part-1.parquet")
    (before,) = parts.adopt(tmp_path, MESSAGES, "7", ["r"])
    staged(tmp_path, MESSAGES, 4)
    (after,) = parts.adopt(tmp_path, MESSAGES, "7", ["r"])
    assert (before.rows, after.rows) == (6, 4)
    assert [path.name for path in (tmp_path / after.path).iterdir()] == ["part-0.parquet"]
    assert not parts.stage(tmp_path, MESSAGES, "7").exists()


def test_what_a_killed_run_left_is_gone_before_a_part_grows_again(tmp_path: Path) -> None:
    staged(tmp_path, MESSAGES, 3)
    staged(tmp_path, QUARANTINE, 1)
    parts.clear(tmp_path, TABLES, "7")
    assert _adopted(tmp_path, TABLES, (MESSAGES, QUARANTINE), "7", {"r": 0}, []) == []


def test_a_run_without_rows_in_a_table_gets_no_part(tmp_path: Path) -> None:
    staged(tmp_path, MESSAGES, 0)
    assert parts.adopt(tmp_path, MESSAGES, "7", ["r", "s"]) == []
    assert not (tmp_path / MESSAGES.path).exists()


def test_names_of_runs_are_escaped_as_spark_does() -> None:
    assert parts.part_path(MESSAGES, "a: b=c", "x/1") == "silver/messages/run=a%3A b%3Dc/batch=x%2F1"


def test_a_part_has_the_bounds_of_its_time_if_all_its_files_state_them(tmp_path: Path) -> None:
    folder = parts.stage(tmp_path, MESSAGES, "7") / parts.folder_of_run("r")
    staged(tmp_path, PARTITION_STATE, 3)
    folder.mkdir(parents=True)
    for name, times in (("a", [5, 3]), ("b", [9]), ("c", [])):
        pq.write_table(pa.table({"seq": pa.array(times, pa.int64()), "ts_ns": pa.array(times, pa.int64())}), folder / f"{name}.parquet")
    (entry,) = parts.adopt(tmp_path, MESSAGES, "7", ["r"])
    assert (entry.rows, entry.first_ts_ns, entry.last_ts_ns) == (3, 3, 9)
    manifest.append(tmp_path, [entry])
    assert manifest.entries(tmp_path, MESSAGES.path) == [entry]
    (without,) = parts.adopt(tmp_path, PARTITION_STATE, "7", ["r"])
    assert (without.first_ts_ns, without.last_ts_ns) == (None, None)
    pq.write_table(pa.table({"seq": [1], "ts_ns": [4]}), tmp_path / entry.path / "d.parquet", write_statistics=False)
    assert manifest.footers(tmp_path / entry.path) == (4, None, None)
