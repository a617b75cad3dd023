"""Several processes decode the frames of long journals, and the tables are those that one process makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from klamm.journal.reading import segments
from klamm.pipeline.lake import local_workers
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.tables import SILVER
from klamm.pipeline.quick import decoders, tables
from klamm.tests.journal.writing import simple_exchange
from klamm.tests.pipeline.broken_runs import write_runs
from klamm.tests.pipeline.journals import write


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that break rules, one with frames that do not decode, one that is torn, and one with many batches."""
    lake = tmp_path_factory.mktemp("lake")
    write_runs(lake)
    write(lake, "raw", raw=2).close()
    torn = write(lake, "torn")
    torn.batch()
    simple_exchange(torn)
    torn.kill(torn=9)
    long = write(lake, "long")
    for _ in range(5 * decoders.STRIDE):
        simple_exchange(long)
        long.batch()
    long.close()
    return lake


@pytest.fixture
def are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each journal is long enough for two processes."""
    monkeypatch.setattr(decoders, "LEAST_BYTES", 1)
    monkeypatch.setattr(local_workers, "MOST_PROCESSES", 2)
    monkeypatch.setattr(local_workers, "cores", lambda: 2)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with tables.opened("1g", str(tmp_path)) as database:
        yield database


def contents(database: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, database.execute(f"SELECT * FROM {table.name}").fetchall())) for table in SILVER}


@pytest.mark.usefixtures("are_many")
def test_processes_make_the_tables_that_one_makes(lake: Path, database: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    found = segments(lake)
    loaded = tables.load(database, found)
    assert list(tmp_path.iterdir()) == []
    with pytest.MonkeyPatch.context() as patch, tables.opened("1g", str(tmp_path)) as alone:
        patch.setattr(local_workers, "MOST_PROCESSES", 1)
        expected = tables.load(alone, found)
        assert contents(alone) == contents(database)
    assert loaded.rows == expected.rows and sorted(loaded.torn) == sorted(expected.torn)
    assert {one.run for one in loaded.torn} == {"torn"}


def test_the_parts_of_a_segment_have_each_batch_once(lake: Path) -> None:
    (one,) = [segment for segment in segments(lake) if (segment.run, segment.table) == ("long", "frames")]
    work = decoders.tasks([one], 2)
    assert len(work) == 4
    parts = [sum(batch.num_rows for batch in decoders.batches_of(task)) for task in work]
    (whole,) = decoders.tasks([one] * 9, 2)[:1]
    assert sum(parts) == sum(batch.num_rows for batch in decoders.batches_of(whole))
    assert all(parts)


@pytest.mark.usefixtures("are_many")
def test_a_segment_that_goes_meanwhile_is_one_line(lake: Path, tmp_path: Path) -> None:
    task = decoders.Task(str(lake / "journal" / "run=long" / "node=1" / "frames-00000000000000000009.arrows"), 0, 1)
    with pytest.raises(PipelineFailed, match=r"frames cannot be decoded: .*No such file"):
        list(decoders.decoded_elsewhere([task], 2, tmp_path))
