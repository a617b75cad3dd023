from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm.pipeline.lake import row_groups
from klamm.pipeline.lake.row_groups import RowGroups


def batch(first: int, rows: int, size: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(first, first + rows)), "text": ["x" * size] * rows})


def groups(path: Path) -> list[int]:
    found = pq.read_metadata(path)
    return [found.row_group(number).num_rows for number in range(found.num_row_groups)]


def test_small_batches_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "ROWS", 10)
    path = tmp_path / "folder" / "a.parquet"
    file = RowGroups(path)
    for first in range(0, 27, 3):
        file.add(batch(first, 3))
    file.add(batch(0, 0))
    assert not path.exists()
    file.close()
    assert groups(path) == [12, 12, 3] and file.rows == 27
    assert pq.read_table(path).column("n").to_pylist() == list(range(27))
    assert list(path.parent.iterdir()) == [path]


def test_a_group_ends_when_it_has_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "BYTES", 1000)
    file = RowGroups(tmp_path / "a.parquet")
    for first in range(4):
        file.add(batch(first, 1, 600))
    file.close()
    assert groups(tmp_path / "a.parquet") == [2, 2]


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    file = RowGroups(tmp_path / "a.parquet")
    file.add(batch(0, 0))
    file.close()
    assert list(tmp_path.iterdir()) == [] and file.rows == 0
