"""The lowest PySpark that pyproject.toml allows judges as the highest does, with which all other tests run.

It is installed once, into a folder of the user's cache that stands before the environment's own packages on the path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from klamm.machine.cache_folder import cache_folder
from klamm.pipeline.quick.check import check_quickly
from klamm.tests.pipeline.rules.fixtures import all_fixtures

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
RULES = ("W-01", "W-07", "C-02", "C-16", "D-01", "E-01", "R-01", "G-05", "T-05", "X-03")
"""Their broken fixtures are the lake: queries of all families, and the Python of rules."""


def lowest() -> str:
    """The lowest version that the extra `pipeline` allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bounds,) = (each for each in project["optional-dependencies"]["pipeline"] if each.startswith("pyspark"))
    found = re.match(r"pyspark>=([\d.]+),<", bounds)
    assert found is not None, bounds
    return found[1] + ".0" * (2 - found[1].count("."))


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The variables of a process that imports the lowest PySpark."""
    folder = cache_folder(f"pyspark-{lowest()}")
    complete = folder / "complete"
    if not complete.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target", str(folder)]
        subprocess.run([*pip, f"pyspark=={lowest()}"], check=True)
        complete.touch()
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *([before] if before else [])])}


def klamm(environment: dict[str, str], *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "klamm", "pipeline", *map(str, words)], env=environment, capture_output=True, text=True, check=False
    )


def test_the_lowest_pyspark_says_of_a_lake_with_violations_what_the_highest_says(environment: dict[str, str], tmp_path: Path) -> None:
    script = "import pyspark; print(pyspark.__version__)"
    version = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert version.stdout == f"{lowest()}\n"
    for fixture in all_fixtures().values():
        if fixture.kind == "bad" and fixture.rule in RULES:
            fixture.into(tmp_path)
    run = klamm(environment, "run", tmp_path)
    assert run.returncode == 0, run.stderr
    checked = klamm(environment, "check", tmp_path, "--json")
    assert checked.returncode == 3, checked.stderr
    told: dict[str, Any] = json.loads(checked.stdout)
    judgement = check_quickly(tmp_path).judgement
    assert told["stats"] == [stat._asdict() for stat in judgement.stats]
    assert [{key: value for key, value in one.items() if key != "lines"} for one in told["violations"]] == [
        verdict._asdict() | {"evidence": [row._asdict() for row in verdict.evidence]} for verdict in judgement.verdicts
    ]
    assert {one["rule"] for one in told["violations"]} >= set(RULES)
