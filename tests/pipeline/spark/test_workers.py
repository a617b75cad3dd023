"""Processes of Python that are quick to start: Spark's workers, and commands that use pyarrow without pandas."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline.spark import workers

PRELOADED = """
import os, sys
from klamm.pipeline.spark.workers import preload
preload()
print(len(os.listdir("/proc/self/task")), "pandas" in sys.modules, "klamm.pipeline.decode.batches" in sys.modules)
"""

PANDAS_IS_THERE = """
import sys
from klamm.pipeline.spark.lean_arrow import leave_out_pandas
leave_out_pandas()
import pyarrow as pa
table = pa.table({"a": [1, None]})
before = "pandas" in sys.modules
print(before, list(table.to_pandas()["a"].isna()), list(pa.Table.from_pandas(table.to_pandas()).column("a").is_null().to_pylist()))
"""


def said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_what_workers_are_forked_from_has_their_modules_and_no_second_thread() -> None:
    assert said(PRELOADED) == "1 False True"


def test_pyarrow_does_not_import_pandas_but_still_knows_it() -> None:
    assert said(PANDAS_IS_THERE) == "False [False, True] [False, True]"


@pytest.mark.slow
def test_workers_are_forked_from_it(spark: Any) -> None:
    rows = spark.range(0, 2, 1, 2).mapInArrow(_parents, "parent string").collect()
    assert {row.parent for row in rows} == {f"-m {workers.MODULE} pyspark.worker"}


def _parents(batches: Iterator[Any]) -> Iterator[Any]:
    import os

    import pyarrow as pa

    for _ in batches:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
        yield pa.RecordBatch.from_pydict({"parent": [" ".join(words[1:4])]})


@pytest.mark.slow
def test_a_failure_of_the_work_meanwhile_is_not_hidden(spark: Any) -> None:
    with pytest.raises(ZeroDivisionError), workers.started(spark):
        raise ZeroDivisionError
