"""All fixtures of rules as one lake, judged in one pass."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from klamm.pipeline.rules import runner
from klamm.pipeline.rules.runner import Judgement
from klamm.tests.pipeline.rules.fixtures import FIXTURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

for _file in sorted(Path(__file__).parent.glob("fixtures_*.py")):
    importlib.import_module(f"klamm.tests.pipeline.rules.{_file.stem}")


@pytest.fixture(scope="session")
def flagged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, frozenset[tuple[int, int]]]]:
    """The lake of all fixtures, and run id → (node id, seq) that its rule must flag."""
    lake = tmp_path_factory.mktemp("rules")
    return lake, {fixture.run_id: fixture.into(lake) for fixture in FIXTURES.values()}


@pytest.fixture(scope="session")
def judgement(spark: SparkSession, flagged: tuple[Path, dict[str, frozenset[tuple[int, int]]]]) -> Judgement:
    """The judgement of all fixtures by all rules."""
    lake, _ = flagged
    importlib.import_module("klamm.pipeline.stream").run(spark, lake)
    importlib.import_module("klamm.pipeline.tables").views(spark, lake, sorted(FIXTURES))
    return runner.judge(spark, sorted(FIXTURES))
