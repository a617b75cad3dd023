"""All fixtures of rules as one lake, judged in one pass."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from klamm.pipeline.lake.spark_views import views
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.runner import Judgement
from klamm.pipeline.silver import build_silver
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.tests.journal.writing import TinyJournal
from klamm.tests.pipeline.bronze_rows import bronze
from klamm.tests.pipeline.faults import Faulty
from klamm.tests.pipeline.rules.fixtures import FIXTURES, all_fixtures

all_fixtures()


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
def silver_lake(spark: Any, flagged: tuple[Path, dict[str, frozenset[tuple[int, int]]]], faulty: Faulty) -> Path:
    """The lake of all fixtures and of the faults, with the tables of silver."""
    into_silver(spark, flagged[0])
    return flagged[0]


@pytest.fixture(scope="session")
def judgement(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    flagged: tuple[Path, dict[str, frozenset[tuple[int, int]]]],
    faulty: Faulty,
) -> Judgement:
    """The judgement of all fixtures, and of the faults, by all rules.

    Of several processes with the same lakes the first one judges.
    """

    def judged() -> Judgement:
        spark, lake = request.getfixturevalue("spark"), request.getfixturevalue("silver_lake")
        runs = [*sorted(FIXTURES), "faults"]
        return runner.judge(spark, runs, empty=views(spark, lake, runs))

    if not hasattr(request.config, "workerinput"):
        return judged()
    return of_the_first(tmp_path_factory.getbasetemp().parent / "judgement", judged)


def of_the_first(file: Path, judged: Callable[[], Judgement]) -> Judgement:
    """What the first of several processes judged, which is kept in this file; the others wait for it."""
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            file.write_bytes(pickle.dumps(judged()))
        return cast("Judgement", pickle.loads(file.read_bytes()))


def into_silver(spark: Any, lake: Path) -> None:
    """What the journals of a lake hold, as tables of silver."""
    build_silver(SparkWorkers(spark), lake, bronze(lake), 0)
