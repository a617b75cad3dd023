"""What a worker says of itself, and what becomes of failures on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from klamm.pipeline.lake.folder import PipelineFailed, spark_failures
from klamm.pipeline.lake.store import Store
from klamm.pipeline.spark import workers
from klamm.pipeline.spark.cluster import code_digest
from klamm.pipeline.spark.workers import ClusterFailed, Workers, answer, cluster_failures, seen_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = code_digest()


def said(lake: Path | None, token: str, code: str = CODE) -> str:
    (row,) = answer(None if lake is None else Store(lake), token, code, iter([pa.RecordBatch.from_pydict({"id": [0]})]))
    return str(row.column(0)[0].as_py())


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / seen_file("new")).parent.mkdir()
    (tmp_path / seen_file("new")).write_text("new")
    return tmp_path


def test_a_worker_with_the_drivers_lake_and_code_has_no_problem(lake: Path) -> None:
    assert said(lake, "new") == said(None, "") == ""


def test_a_worker_is_not_asked_for_what_a_driver_could_not_write(tmp_path: Path) -> None:
    assert said(tmp_path / "other", "") == ""


def test_commands_that_ask_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    store, spark = Store(tmp_path), cast("SparkSession", None)
    one, other = (Workers(spark, "sc://h", store)._token() for _ in range(2))
    with one as first:
        with other as second:
            assert said(tmp_path, first) == said(tmp_path, second) == ""
        assert said(tmp_path, first) == ""
    assert Store(tmp_path).names("") == []


@pytest.mark.parametrize("there", ["nothing", "an older copy", "an empty folder"])
def test_a_worker_that_sees_another_folder_says_so(there: str, lake: Path, tmp_path: Path) -> None:
    seen = lake if there == "an older copy" else tmp_path / "other"
    if there == "an empty folder":
        seen.mkdir()
    assert f"does not see the lake {seen} of the driver" in said(seen, "newer")


def test_a_worker_with_another_klamm_names_its_file() -> None:
    assert f"imports another version of Klamm than the driver has, {workers.__file__}" in said(None, "", "another digest")


def test_failures_of_a_session_without_workers_stay_as_they_are() -> None:
    with pytest.raises(KeyError), cluster_failures():
        raise KeyError("a bug")


class Py4JJavaError(Exception):
    """As py4j raises it."""

    __module__ = "py4j.protocol"


def test_a_task_that_fails_on_a_worker_is_reported_with_its_host() -> None:
    told = (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) "
        '(10.0.0.7 executor 1): java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory\n\tat a.b(c)'
    )
    with pytest.raises(PipelineFailed) as failed, spark_failures():
        raise Py4JJavaError(told)
    assert str(failed.value).startswith("Spark: worker 10.0.0.7: ") and "Cannot run program" in str(failed.value)
    with pytest.raises(PipelineFailed, match=r"^Spark: java"), spark_failures():
        raise Py4JJavaError(told.replace("executor 1", "executor driver"))


def test_failures_of_a_cluster_are_one_line() -> None:
    from klamm.cli.shell.failures import one_line

    assert one_line(ClusterFailed("no executor")) == "no executor"
