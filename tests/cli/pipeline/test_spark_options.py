"""The options of commands that start Spark."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from klamm.cli.pipeline.options import MASTER, Spark, session_options, settings_options
from klamm.pipeline.run import LOCAL_ROWS
from klamm.pipeline.spark.jvm import GATEWAY_PORT

MODULE_COMMANDS = ("check", "run", "serve", "simulate", "submit", "watch")


def opened(*words: str) -> Spark:
    """What the options of a command say."""
    seen: list[Spark] = []

    @click.command()
    @session_options
    def command(spark: Spark) -> None:
        seen.append(spark)

    result = CliRunner().invoke(command, list(words), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return seen[0]


def test_an_option_of_the_command_line_has_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("spark.master = spark://h:1\nspark.a.b  1  \nspark.a.c 1\n")
    assert opened("--properties-file", str(file), "--conf", "spark.a.c=2=3", "--jars", "a.jar,b.jar") == Spark(
        "spark://h:1", None, "2g", {"spark.a.b": "1", "spark.a.c": "2=3", "spark.jars": "a.jar,b.jar"}, is_chosen=True
    )
    assert opened("--properties-file", str(file), "--master", "local[1]").master == "local[1]"
    assert opened() == Spark("local[*]", None, "2g", {})


def test_commands_without_a_session_take_the_master_of_the_settings_too() -> None:
    """As `serve` and `submit`, which pass a master to spark-submit."""
    seen: list[tuple[str, dict[str, str]]] = []

    @click.command()
    @MASTER
    @settings_options
    def command(master: str, settings: dict[str, str]) -> None:
        seen.append((master, settings))

    for words in ([], ["--master", "yarn"]):
        CliRunner().invoke(command, ["--conf", "spark.master=spark://h:1", *words], standalone_mode=False, catch_exceptions=False)
    assert seen == [("spark://h:1", {}), ("yarn", {})]


@pytest.mark.parametrize("word", ["sparks.a=1", "a=1", "spark=1", "spark.=1", "spark.a b=1"])
def test_a_key_that_is_none_of_spark_is_refused(word: str) -> None:
    with pytest.raises(click.UsageError, match=r"a setting of Spark begins with spark\."):
        opened("--conf", word)


@pytest.mark.parametrize("name", MODULE_COMMANDS)
def test_each_command_that_starts_spark_has_the_options(name: str) -> None:
    module = __import__(f"klamm.cli.pipeline.{name}", fromlist=["command"])
    assert {"--conf", "--properties-file", "--jars", "--master"} <= {option for each in module.command.params for option in each.opts}


def test_small_work_is_sparks_only_if_an_option_names_a_spark_or_spark_submit_began_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened().local_rows == opened("--memory", "1g").local_rows == LOCAL_ROWS
    for words in (("--master", "local[2]"), ("--remote", "sc://localhost"), ("--conf", "spark.executor.cores=2")):
        assert opened(*words).local_rows == 0
    file = tmp_path / "p"
    file.write_text("spark.master = spark://h:1\n")
    assert opened("--properties-file", str(file)).local_rows == 0
    monkeypatch.setenv(GATEWAY_PORT, "1")
    assert opened().local_rows == 0
