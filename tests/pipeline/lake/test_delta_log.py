"""The log of a lake: which files are valid, with several writers at the same time and after a writer was killed."""

from __future__ import annotations

import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake import table_parts as parts
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES

TABLE = MESSAGES.path
ODD = "a b%c=d'é"
"""A name of a run with all that is escaped somewhere: in folders, in Delta's log, in URLs."""


def file(lake: Path, batch: int | str, rows: int = 1, run: str = "r") -> Entry:
    return parts.put(lake, MESSAGES, run, str(batch), pa.table({"n": list(range(rows)), "ts_ns": range(5, 5 + rows)}))


def counted(lake: Path) -> list[tuple[str, int]]:
    return [(entry.batch, entry.rows) for entry in delta_log.entries(lake, TABLE)]


def test_a_table_that_does_not_exist_has_no_files(tmp_path: Path) -> None:
    assert (delta_log.entries(tmp_path, TABLE), delta_log.files(tmp_path, TABLE), delta_log.rows(tmp_path, TABLE)) == ([], [], 0)
    assert (delta_log.tables(tmp_path), delta_log.committed(tmp_path, TABLE)) == ([], -1)


def test_the_log_says_of_a_file_what_its_writer_said(tmp_path: Path) -> None:
    files = [file(tmp_path, "x/1", 3, ODD), file(tmp_path, 0, 2), file(tmp_path, 0, 1)]
    delta_log.append(tmp_path, [MESSAGES], files)
    assert sorted(delta_log.entries(tmp_path, TABLE)) == sorted(one._replace(statistics="") for one in files)
    assert {(one.first_ts_ns, one.last_ts_ns) for one in delta_log.entries(tmp_path, TABLE, [ODD])} == {(5, 7)}
    assert delta_log.files(tmp_path, TABLE, [ODD]) == [tmp_path / files[0].path]
    assert delta_log.rows_by_run(tmp_path, TABLE) == {ODD: 3, "r": 3} and delta_log.rows(tmp_path, TABLE, ["r"]) == 3
    assert delta_log.tables(tmp_path) == [TABLE]


def test_files_are_in_the_order_in_which_they_were_added(tmp_path: Path) -> None:
    for batch in ("b", "a", "c"):
        delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, batch)])
    assert [batch for batch, _ in counted(tmp_path)] == ["b", "a", "c"]


def test_a_batch_that_is_done_again_counts_once(tmp_path: Path) -> None:
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 0, 3), file(tmp_path, 0, 2), file(tmp_path, 1)])
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 0, 4)])
    assert counted(tmp_path) == [("1", 1), ("0", 4)]


def test_a_part_without_rows_any_more_has_no_file_and_one_without_rows_may_have_one(tmp_path: Path) -> None:
    before = file(tmp_path, 0, 3)
    delta_log.append(tmp_path, [MESSAGES], [before])
    delta_log.append(tmp_path, [MESSAGES], [before._replace(rows=0, bytes=0), file(tmp_path, 1, 0)])
    assert counted(tmp_path) == [("1", 0)] and delta_log.files(tmp_path, TABLE) == []


def test_a_batch_of_silver_with_the_number_of_one_that_a_table_has_changes_nothing(tmp_path: Path) -> None:
    """Also if its files were merged meanwhile."""
    for number in (0, 7):
        delta_log.append(tmp_path, [EVENT_TABLE, MESSAGES], [file(tmp_path, number)], number)
    delta_log.replace(tmp_path, file(tmp_path, "compact-0", 2), delta_log.entries(tmp_path, TABLE))
    for number in (0, 3, 7):
        delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, number)], number)
    assert counted(tmp_path) == [("compact-0", 2)]
    assert [delta_log.committed(tmp_path, table.path) for table in (EVENT_TABLE, MESSAGES)] == [7, 7]
    assert delta_log.entries(tmp_path, EVENT_TABLE.path) == []


def test_compaction_puts_one_file_in_the_place_of_many_at_once_or_not_at_all(tmp_path: Path) -> None:
    old = [file(tmp_path, batch) for batch in range(3)]
    delta_log.append(tmp_path, [MESSAGES], old)
    assert delta_log.replace(tmp_path, file(tmp_path, "c", 2), old[:2])
    assert counted(tmp_path) == [("2", 1), ("c", 2)]
    assert not delta_log.replace(tmp_path, file(tmp_path, "d", 2), old[1:])
    delta_log.drop(tmp_path, TABLE, old)
    assert counted(tmp_path) == [("c", 2)]
    version = delta_log.version(tmp_path, TABLE)
    delta_log.drop(tmp_path, TABLE, old)
    assert delta_log.version(tmp_path, TABLE) == version


def test_what_no_commit_names_is_not_valid_and_is_swept(tmp_path: Path) -> None:
    valid = file(tmp_path, 0)
    delta_log.append(tmp_path, [MESSAGES], [valid])
    rest = file(tmp_path, 1)
    unfinished = tmp_path / f"{TABLE}/run=r/batch=1/.part.tmp"
    unfinished.touch()
    assert delta_log.files(tmp_path, TABLE) == [tmp_path / valid.path]
    assert sorted(delta_log.sweep(tmp_path, TABLE)) == sorted([rest.path, f"{TABLE}/run=r/batch=1/.part.tmp"])
    assert (tmp_path / valid.path).exists() and not (tmp_path / rest.path).parent.exists()
    assert counted(tmp_path) == [("0", 1)]


def test_a_log_with_many_commits_is_as_short_as_one_with_few(tmp_path: Path) -> None:
    one = file(tmp_path, 0)
    for _ in range(201):
        delta_log.append(tmp_path, [MESSAGES], [one])
    assert counted(tmp_path) == [("0", 1)]
    assert any((tmp_path / TABLE / "_delta_log").glob("*199.checkpoint.parquet"))


def test_a_log_that_is_damaged_is_one_line(tmp_path: Path) -> None:
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 0)])
    (tmp_path / TABLE / "_delta_log" / f"{0:020d}.json").write_text("{")
    with pytest.raises(PipelineFailed, match=r"silver/messages/_delta_log cannot be read \("):
        delta_log.entries(tmp_path, TABLE)


def test_a_file_that_another_program_put_into_a_table_is_named(tmp_path: Path) -> None:
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 0)])
    write_deltalake(str(tmp_path / TABLE), pa.table({"run_id": ["r"]}), mode="append", schema_mode="merge")
    with pytest.raises(PipelineFailed, match=r"^silver/messages/part-.*\.parquet was not written by Klamm"):
        delta_log.entries(tmp_path, TABLE)


def append_all(lake: Path) -> None:
    for number in range(6):
        delta_log.append(lake, [MESSAGES], [file(lake, f"{number}-{multiprocessing.current_process().pid}")], number)


@pytest.mark.slow
def test_of_four_processes_with_the_same_batches_each_batch_counts_once(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(append_all, tmp_path) for _ in range(4)]:
            future.result()
    assert sorted(batch.partition("-")[0] for batch, _ in counted(tmp_path)) == [str(number) for number in range(6)]


def test_of_four_threads_that_write_a_table_none_loses_a_file(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        for number in range(5):
            delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, f"{writer}-{number}")])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(counted(tmp_path)) == 20


def test_readers_see_the_versions_that_were_named_together_until_others_are(tmp_path: Path) -> None:
    def seen() -> tuple[list[tuple[str, int]], int]:
        with delta_log.one_version(tmp_path):
            return counted(tmp_path), delta_log.rows(tmp_path, EVENT_TABLE.path)

    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 0)])
    assert seen() == ([("0", 1)], 0), "no version was named: the newest of each table"
    delta_log.name_version(tmp_path)
    event = parts.put(tmp_path, EVENT_TABLE, "r", "e", pa.table({"n": [1]}))
    delta_log.append(tmp_path, [EVENT_TABLE, MESSAGES], [event, file(tmp_path, 1, 2)])
    delta_log.drop(tmp_path, TABLE, [entry for entry in delta_log.entries(tmp_path, TABLE) if entry.batch == "0"])
    assert seen() == ([("0", 1)], 0)
    assert delta_log.sweep(tmp_path, TABLE) == [], "a file of the version of the lake stays"
    with delta_log.one_version(tmp_path):
        delta_log.name_version(tmp_path, [TABLE])
        assert counted(tmp_path) == [("0", 1)]
    assert seen() == ([("1", 2)], 0)
    delta_log.name_version(tmp_path)
    assert seen() == ([("1", 2)], 1)
    assert len(delta_log.sweep(tmp_path, TABLE)) == 1


def test_a_named_version_that_is_gone_is_the_newest(tmp_path: Path) -> None:
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 0)])
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 1)])
    delta_log.name_version(tmp_path)
    shutil.rmtree(tmp_path / TABLE)
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 2)])
    with delta_log.one_version(tmp_path):
        assert counted(tmp_path) == [("2", 1)]


def test_readers_that_overlap_see_their_version_until_the_last_one_ends(tmp_path: Path) -> None:
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 0)])
    delta_log.name_version(tmp_path)
    first, second = ExitStack(), ExitStack()
    for reader in (first, second):
        reader.enter_context(delta_log.one_version(tmp_path))
    delta_log.append(tmp_path, [MESSAGES], [file(tmp_path, 1)])
    first.close()
    assert counted(tmp_path) == [("0", 1)]
    second.close()
    assert len(counted(tmp_path)) == 2
