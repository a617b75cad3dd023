"""What a batch wrote is valid only if no row is missing or there twice."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klamm.pipeline.lake import table_parts as parts
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.parquet_files import told
from klamm.pipeline.lake.row_groups import RowGroups
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import EVENT_TABLE, MESSAGES, PARTITION_STATE, QUARANTINE, Table
from klamm.pipeline.silver import RowsLostError, Source, refuse_loss

FRAMES, MORE, EVENTS = (Source(table, run, "x", rows) for table, run, rows in (("frames", "r", 5), ("frames", "s", 1), ("events", "r", 2)))


def file(table: Table, rows: int, run: str = "r") -> Entry:
    return Entry(table.path, run, "7", "x", rows)


def test_a_batch_is_whole_if_each_run_has_as_many_rows_as_came_in() -> None:
    files = [file(MESSAGES, 3), file(MESSAGES, 1, "s"), file(QUARANTINE, 2), file(PARTITION_STATE, 9), file(EVENT_TABLE, 2)]
    refuse_loss([FRAMES, MORE, EVENTS], files)
    with pytest.raises(RowsLostError, match=r"^run r: 2 rows in bronze, 0 in events$"):
        refuse_loss([FRAMES, MORE, EVENTS], files[:-1])


@pytest.mark.parametrize("rows", [(3, 1), (3, 3)])
def test_a_row_that_is_missing_or_there_twice_is_an_error(rows: tuple[int, int]) -> None:
    with pytest.raises(RowsLostError, match=rf"^run r: 5 rows in bronze, {sum(rows)} in messages and quarantine$"):
        refuse_loss([FRAMES], [file(MESSAGES, count) for count in rows])


def test_each_run_is_counted_for_itself() -> None:
    with pytest.raises(RowsLostError, match="run r: 5 rows in bronze, 6 in"):
        refuse_loss([FRAMES, MORE], [file(MESSAGES, 6)])


def test_each_try_writes_files_of_its_own_in_the_folder_of_its_part(tmp_path: Path) -> None:
    tries = [parts.put(tmp_path, MESSAGES, "a: b=c", "x/1", pa.table({"n": [1]})) for _ in range(2)]
    assert len({one.path for one in tries}) == 2
    assert {str(Path(one.path).parent) for one in tries} == {"silver/messages/run=a%3A%20b%3Dc/batch=x%2F1"}
    assert all((tmp_path / one.path).stat().st_size == one.bytes for one in tries)


def test_a_file_has_the_bounds_of_its_time_if_it_states_them(tmp_path: Path) -> None:
    groups = RowGroups(Store(tmp_path), "a.parquet", 2)
    for times in ([5, 3], [9, 4], [7]):
        groups.add(pa.RecordBatch.from_pydict({"seq": times, "ts_ns": times}))
    groups.close()
    assert groups.told[:4] == (5, 3, 9, (tmp_path / "a.parquet").stat().st_size)
    stated = json.loads(groups.told.statistics)
    assert stated == {"numRecords": 5, "minValues": {"seq": 3, "ts_ns": 3}, "maxValues": {"seq": 9, "ts_ns": 9}}
    pq.write_table(pa.table({"seq": [1], "ts_ns": [4]}), tmp_path / "b.parquet", write_statistics=False)
    assert told(pq.read_metadata(tmp_path / "b.parquet"), 7)[:4] == (1, None, None, 7)
    empty = parts.put(tmp_path, MESSAGES, "r", "0", pa.table({"ts_ns": pa.array([], pa.int64())}))
    assert (empty.rows, empty.first_ts_ns, empty.bytes > 0) == (0, None, True)
