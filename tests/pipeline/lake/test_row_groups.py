from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm.pipeline.lake import row_groups
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.store import Store


def batch(first: int, rows: int, size: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(first, first + rows)), "text": ["x" * size] * rows})


def groups(path: Path) -> list[int]:
    found = pq.read_metadata(path)
    return [found.row_group(number).num_rows for number in range(found.num_row_groups)]


def test_small_batches_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "ROWS", 10)
    path = tmp_path / "folder" / "a.parquet"
    file = RowGroups(Store(tmp_path), "folder/a.parquet")
    for first in range(0, 27, 3):
        file.add(batch(first, 3))
    file.add(batch(0, 0))
    assert not path.exists()
    file.close()
    assert groups(path) == [12, 12, 3] and file.rows == file.told.rows == 27 and file.told.bytes == path.stat().st_size
    assert pq.read_table(path).column("n").to_pylist() == list(range(27))
    assert list(path.parent.iterdir()) == [path]


def test_a_group_ends_when_it_has_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "BYTES", 1000)
    file = RowGroups(Store(tmp_path), "a.parquet")
    for first in range(4):
        file.add(batch(first, 1, 600))
    file.close()
    assert groups(tmp_path / "a.parquet") == [2, 2]


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    file = RowGroups(Store(tmp_path), "a.parquet")
    file.add(batch(0, 0))
    file.close()
    assert list(tmp_path.iterdir()) == [] and file.rows == 0


@pytest.mark.parametrize("run", [1, 100])
def test_rows_of_frequent_apis_have_row_groups_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: int) -> None:
    monkeypatch.setattr(row_groups, "RUN_ROWS", 10)
    path = tmp_path / "a.parquet"
    file = RowGroups(Store(tmp_path), "a.parquet", 600, frequent=(0, 1))
    keys = [key for _ in range(100 // run) for key in (0, 3, 1, None, 0, 18) for _ in range(run)]
    for first in (0, 600):
        numbers = pa.array(range(first, first + 600))
        file.add(pa.RecordBatch.from_arrays([numbers, pa.array(keys, pa.int16())], names=["n", "api_key"]))
    file.close()
    assert groups(path) == [600, 600] and file.rows == 1200
    apart, others = (pq.ParquetFile(path).read_row_group(number) for number in (0, 1))
    assert set(apart.column("api_key").to_pylist()) == {0, 1} and set(others.column("api_key").to_pylist()) == {3, 18, None}
    wanted = [number for number in range(1200) if keys[number % 600] in (0, 1)]
    assert apart.column("n").to_pylist() == wanted
    assert others.column("n").to_pylist() == sorted({*range(1200)} - {*wanted})
