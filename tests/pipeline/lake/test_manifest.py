from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm.pipeline.lake import manifest
from klamm.pipeline.lake.manifest import NAME, Entry

TABLE = "silver/messages"


def parquet(lake: Path, name: str, rows: int) -> Path:
    path = lake / TABLE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": list(range(rows))}), path)
    return path


def part(batch: int | str, rows: int = 1, run: str = "r") -> Entry:
    return Entry(TABLE, run, str(batch), f"{TABLE}/run={run}/batch={batch}", rows)


def test_a_table_that_does_not_exist_has_no_files(tmp_path: Path) -> None:
    assert (manifest.entries(tmp_path, TABLE), manifest.files(tmp_path, TABLE), manifest.rows(tmp_path, TABLE)) == ([], [], 0)


def test_the_files_of_a_part_are_those_that_a_reader_of_parquet_sees(tmp_path: Path) -> None:
    seen = [parquet(tmp_path, "run=r/batch=0/part-0.parquet", 3), parquet(tmp_path, "run=r/batch=0/part-1.parquet", 4)]
    parquet(tmp_path, "run=r/batch=0/_temporary/part-9.parquet", 5)
    parquet(tmp_path, "run=r/batch=1/part-0.parquet", 5)
    alone = parquet(tmp_path, "run=s/alone.parquet", 1)
    manifest.append(tmp_path, [part(0, 7), Entry(TABLE, "s", "alone", f"{TABLE}/run=s/alone.parquet", 1)])
    assert manifest.files(tmp_path, TABLE) == [*seen, alone]
    assert manifest.files(tmp_path, TABLE, ["s"]) == [alone]
    assert (manifest.rows(tmp_path, TABLE), manifest.rows(tmp_path, TABLE, ["r"])) == (8, 7)


def test_a_batch_that_is_done_again_counts_once(tmp_path: Path) -> None:
    manifest.append(tmp_path, [part(0, 3), part(1, 1)])
    manifest.append(tmp_path, [part(0, 2)])
    assert manifest.entries(tmp_path, TABLE) == [part(1, 1), part(0, 2)]


def test_a_part_that_has_no_rows_any_more_has_no_files(tmp_path: Path) -> None:
    parquet(tmp_path, "run=r/batch=0/part-0.parquet", 3)
    manifest.append(tmp_path, [part(0, 3)])
    manifest.append(tmp_path, [part(0, 0)])
    assert manifest.files(tmp_path, TABLE) == []


def test_compaction_puts_one_part_in_the_place_of_many_at_once(tmp_path: Path) -> None:
    manifest.append(tmp_path, [part(batch) for batch in range(3)])
    manifest.replace(tmp_path, part("c", 2), [part(0), part(1)])
    assert manifest.entries(tmp_path, TABLE) == [part(2), part("c", 2)]


@pytest.mark.parametrize("torn", ['{"key":"batch=1","files":[["x.par', "{", "[]", "7"])
def test_a_torn_last_line_counts_for_nothing_and_the_next_line_is_whole(tmp_path: Path, torn: str) -> None:
    manifest.append(tmp_path, [part(0)])
    with (tmp_path / TABLE / NAME).open("a") as file:
        file.write(torn)
    assert manifest.entries(tmp_path, TABLE) == [part(0)]
    manifest.append(tmp_path, [part(2)])
    assert manifest.entries(tmp_path, TABLE) == [part(0), part(2)]


def test_remains_of_a_crash_are_not_valid_and_are_swept(tmp_path: Path) -> None:
    valid = parquet(tmp_path, "run=r/batch=0/a.parquet", 1)
    manifest.append(tmp_path, [part(0)])
    rest = parquet(tmp_path, "run=r/batch=1/a.parquet", 1)
    assert manifest.files(tmp_path, TABLE) == [valid]
    assert manifest.sweep(tmp_path, TABLE) == [rest]
    assert valid.exists()
    assert not rest.parent.exists()


def test_a_manifest_that_is_written_anew_says_the_same_in_fewer_lines(tmp_path: Path) -> None:
    for rows in (1, 2, 3):
        manifest.append(tmp_path, [part(0, rows)])
    manifest.replace(tmp_path, part("c", 3), [part(0)])
    before = manifest.entries(tmp_path, TABLE)
    manifest.rewrite(tmp_path, TABLE)
    assert manifest.entries(tmp_path, TABLE) == before
    assert len((tmp_path / TABLE / NAME).read_text().splitlines()) == 1
