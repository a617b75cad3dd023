"""All fixtures of rules as one lake, judged in one pass."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from klamm.journal.reading import open_segment, segments
from klamm.pipeline.lake.tables import views
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.contents import Contents
from klamm.pipeline.rules.record import Need
from klamm.pipeline.rules.runner import Judgement
from klamm.pipeline.silver import build_silver
from klamm.tests.journal.writing import TinyJournal
from klamm.tests.pipeline.faults import Faulty
from klamm.tests.pipeline.rules.fixtures import FIXTURES

for _file in sorted(Path(__file__).parent.glob("fixtures_*.py")):
    importlib.import_module(f"klamm.tests.pipeline.rules.{_file.stem}")


@pytest.fixture(scope="session")
def flagged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, frozenset[tuple[int, int]]]]:
    """The lake of all fixtures, and run id → (node id, seq) that its rule must flag."""
    lake = tmp_path_factory.mktemp("rules")
    return lake, {fixture.run_id: fixture.into(lake) for fixture in FIXTURES.values()}


@pytest.fixture(scope="session")
def faulty(flagged: tuple[Path, dict[str, frozenset[tuple[int, int]]]]) -> Faulty:
    """A long journal with faults, the run `faults` of the lake of all fixtures."""
    journal = TinyJournal(flagged[0], "faults", 1)
    written = Faulty(journal, seed=13)
    written.write(exchanges=3_000, every=25)
    journal.close()
    return written


@pytest.fixture(scope="session")
def judgement(spark: Any, flagged: tuple[Path, dict[str, frozenset[tuple[int, int]]]], faulty: Faulty) -> Judgement:
    """The judgement of all fixtures, and of the faults, by all rules, none left out because it needs what is not there."""
    lake, _ = flagged
    runs = [*sorted(FIXTURES), "faults"]
    into_silver(spark, lake)
    return runner.judge(spark, runs, contents=Whatever(lake, runs, views(spark, lake, runs)), few=True)


class Whatever(Contents):
    """Contents that lack nothing."""

    def lacks(self, needs: Collection[Need]) -> bool:
        return False


def into_silver(spark: Any, lake: Path) -> None:
    """What the journals of a lake hold, as tables of silver, without the files of bronze between."""
    rows: dict[str, list[pa.RecordBatch]] = {"frames": [], "events": []}
    for segment in segments(lake):
        rows[segment.table] += list(open_segment(segment.path))
    frames, events = (spark.createDataFrame(pa.Table.from_batches(batches)) if batches else None for batches in rows.values())
    build_silver(spark, lake, frames, events, "0")
