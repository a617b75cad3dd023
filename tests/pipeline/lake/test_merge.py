"""Many small parts become few sorted ones, and no row is lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm.pipeline.lake import delta_log, merge
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.merge import WEEK_NS, Merged, merge_small
from klamm.pipeline.lake.table_parts import put
from klamm.pipeline.lake.tables import EVENT_TABLE, FIELD_TABLE
from klamm.tests.pipeline.lakes_by_hand import add

TABLE = EVENT_TABLE


def part(lake: Path, batch: int, *, run: str = "r", ts_ns: int | None = None, rows: int = 2, named: bool = True) -> None:
    """A part with rows of brokers 2 and 1 by turns; their numbers go on from batch to batch."""
    numbers = range(batch * rows, (batch + 1) * rows)
    table = pa.table({
        "run_id": [run] * rows, "node_id": [2 - number % 2 for number in numbers], "conn_id": pa.array([None] * rows, pa.int64()),
        "seq": list(numbers), "ts_ns": [(batch if ts_ns is None else ts_ns)] * rows,
    })
    if batch % 3 == 2:
        table = table.append_column("added_later", pa.array(["x"] * rows))
    file = put(lake, TABLE, run, str(batch), table)
    if named:
        delta_log.append(lake, [TABLE], [file])


def read(lake: Path) -> list[tuple[int, int, str | None]]:
    rows = [row for file in delta_log.files(lake, TABLE.path) for row in pq.ParquetFile(file).read().to_pylist()]
    return [(row["node_id"], row["seq"], row.get("added_later")) for row in rows]


def files(lake: Path) -> int:
    return len(list((lake / TABLE.path).rglob("*.parquet")))


def test_a_run_with_more_small_parts_than_allowed_gets_one_sorted_part(tmp_path: Path) -> None:
    for batch in range(4):
        part(tmp_path, batch)
        part(tmp_path, batch, run="s") if batch < 3 else None
    before = read(tmp_path)
    assert merge_small(tmp_path, 3) == [Merged(TABLE.path, "r", 4, 8)]
    assert merge_small(tmp_path, 3) == []
    assert sorted(read(tmp_path)) == sorted(before)
    (entry,) = delta_log.entries(tmp_path, TABLE.path, {"r"})
    assert (entry.batch, entry.rows, entry.first_ts_ns, entry.last_ts_ns) == ("compact-0", 8, 0, 3)
    ordered = read(tmp_path)[-8:]
    assert [row[:2] for row in ordered] == sorted(row[:2] for row in ordered)
    assert [row[2] for row in ordered if row[1] in (4, 5)] == ["x", "x"]
    assert files(tmp_path) == 3 + 1


def test_the_next_merge_takes_the_merged_part_with_it_under_a_new_name(tmp_path: Path) -> None:
    for batch in range(8):
        part(tmp_path, batch)
        merge_small(tmp_path, 3)
    assert [entry.batch for entry in delta_log.entries(tmp_path, TABLE.path)] == ["compact-1", "7"]
    assert len(set(read(tmp_path))) == 16


def test_a_merged_part_covers_a_week_at_most_so_that_retention_can_remove_it(tmp_path: Path) -> None:
    for batch in range(6):
        part(tmp_path, batch, ts_ns=batch * (WEEK_NS // 2))
    merge_small(tmp_path, 3)
    bounds = [(entry.first_ts_ns, entry.last_ts_ns) for entry in delta_log.entries(tmp_path, TABLE.path)]
    assert bounds == [(0, WEEK_NS // 2 * 2), (WEEK_NS // 2 * 3, WEEK_NS // 2 * 5)]


def test_rows_of_frequent_apis_have_row_groups_of_their_own_in_a_merged_part(tmp_path: Path) -> None:
    for batch in range(3):
        rows = {"node_id": [1] * 4, "conn_id": [batch] * 4, "seq": range(4), "ts_ns": [batch] * 4}
        add(tmp_path, FIELD_TABLE, "r", str(batch), pa.table({**rows, "api_key": pa.array([1, 4, 0, 3], pa.int16())}))
    assert merge_small(tmp_path, 2) == [Merged(FIELD_TABLE.path, "r", 3, 12)]
    (merged,) = map(pq.ParquetFile, delta_log.files(tmp_path, FIELD_TABLE.path))
    apart, others = (merged.read_row_group(number).to_pydict() for number in range(merged.num_row_groups))
    assert (apart["api_key"], others["api_key"]) == ([1, 0] * 3, [4, 3] * 3)
    assert apart["conn_id"] == others["conn_id"] == [0, 0, 1, 1, 2, 2]


def test_large_parts_are_not_merged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "ROWS", 9)
    for batch in range(5):
        part(tmp_path, batch, rows=3)
    assert [one.parts for one in merge_small(tmp_path, 1)] == [3, 2]
    assert merge_small(tmp_path, 1) == []


def test_a_merge_that_was_killed_before_its_commit_is_repeated_and_one_killed_after_it_is_swept(tmp_path: Path) -> None:
    for batch in range(4):
        part(tmp_path, batch)
    before = sorted(read(tmp_path))
    old = {tmp_path / entry.path: (tmp_path / entry.path).read_bytes() for entry in delta_log.entries(tmp_path, TABLE.path)}
    put(tmp_path, TABLE, "r", "compact-0", pa.table({"seq": [1]}))
    merge_small(tmp_path, 3)
    assert sorted(read(tmp_path)) == before
    for file, text in old.items():
        file.parent.mkdir(parents=True)
        file.write_bytes(text)
    assert sorted(read(tmp_path)) == before
    assert len(delta_log.sweep(tmp_path, TABLE.path)) == 5 and files(tmp_path) == 1


def test_rows_that_got_lost_replace_nothing(tmp_path: Path) -> None:
    for batch in range(4):
        part(tmp_path, batch)
    (first, *_) = delta_log.entries(tmp_path, TABLE.path)
    delta_log.append(tmp_path, [TABLE], [first._replace(statistics='{"numRecords":3}')])
    before = files(tmp_path)
    with pytest.raises(PipelineFailed, match="4 parts have 9 rows, their compaction 8"):
        merge_small(tmp_path, 3)
    assert len(delta_log.entries(tmp_path, TABLE.path)) == 4
    assert files(tmp_path) == before + 1
