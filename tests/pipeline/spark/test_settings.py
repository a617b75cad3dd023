"""The table of Spark's settings is all that Klamm sets, and each row has a reason that holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline.spark import settings
from klamm.pipeline.spark.settings import SETTINGS, Kind, Setting, When, chosen, jvm_flags

ROOT = Path(settings.__file__).resolve().parents[2]
ELSEWHERE = {
    "spark.master": "an argument of open_session",
    "spark.app.name": "an argument of open_session",
    "spark.submit.pyFiles": "`submit` sends the code also to a local master",
    "spark.hadoop.fs.s3a": "`s3a.py` makes settings of an object store from variables",
}
"""Keys that other files may name, and why."""


@pytest.mark.parametrize("path", sorted({*ROOT.glob("pipeline/**/*.py"), *ROOT.glob("cli/pipeline/*.py")}), ids=lambda path: path.stem)
def test_no_other_file_names_a_setting_of_spark_or_a_flag_of_its_jvm(path: Path) -> None:
    if path == Path(settings.__file__).resolve():
        return
    named = set(re.findall(r"""["'](spark\.[a-z][\w.]+)["']|["'](-XX:[^"']+)["']""", path.read_text(encoding="utf-8")))
    assert {one or other for one, other in named} <= ELSEWHERE.keys()


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: f"{row.when.name}-{row.key}")
def test_a_row_has_a_reason_and_gains_enough_if_it_is_there_for_speed(row: Setting) -> None:
    assert row.reason.endswith(".")
    assert row.gain_s is None or row.gain_s >= settings.LEAST_GAIN_S
    assert "test" not in row.key, "a setting that Spark keeps for its own tests may go without a word"


HADOOP = "spark.hadoop."
"""Keys that begin so are passed on to Hadoop and what reads its files, and are in no table of Spark's."""


def test_a_key_is_set_once_in_each_case() -> None:
    cases = [(row.kind, row.when, row.key) for row in SETTINGS]
    assert len(cases) == len(set(cases))


def test_a_row_whose_value_is_not_known_is_left_out() -> None:
    assert "-Dlog4j2.configurationFile" not in jvm_flags({When.ALWAYS}, {"log_settings": None})
    assert "-Dlog4j2.configurationFile=/l" in jvm_flags({When.ALWAYS}, {"log_settings": "/l"}).split()
    assert "spark.driver.memory" not in chosen(Kind.SPARK, {When.ALWAYS}, {})
    assert chosen(Kind.SPARK, {When.ALWAYS}, {"memory": "1g"})["spark.driver.memory"] == "1g"


@pytest.mark.slow
def test_this_spark_knows_each_setting(spark: Any) -> None:
    """A key that Spark has renamed is taken without a word, and does nothing."""
    find = spark._jvm.org.apache.spark.internal.config.ConfigEntry.findEntry
    keys = {row.key for row in SETTINGS if row.kind is Kind.SPARK and row.when is not When.SERVER}
    of_hadoop = {key.removeprefix(HADOOP) for key in keys if key.startswith(HADOOP)}
    assert [key for key in keys if not key.startswith(HADOOP) and find(key) is None] == []
    assert of_hadoop == {spark._jvm.org.apache.parquet.hadoop.ParquetInputFormat.PAGE_VERIFY_CHECKSUM_ENABLED}
