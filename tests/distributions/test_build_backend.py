"""The build of klamm-zookeeper uses the pinned jars and no others, and says in one line why it cannot have them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.distributions.zookeeper.build_backend import HERE, file_name, pinned
from klamm.machine.java import package_folder

PINNED = {file_name(artefact): digest for artefact, digest in pinned().items()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the distribution with small jars: their names are their contents. None of them is there."""
    folder = tmp_path / "zookeeper"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("jars", "build", "*.egg-info", "__pycache__"))
    text = (folder / "pyproject.toml").read_text()
    for name, digest in PINNED.items():
        text = text.replace(digest, hashlib.sha512(name.encode()).hexdigest())
    (folder / "pyproject.toml").write_text(text)
    return folder


MAVEN = """#!/bin/sh
for word; do case $word in -DoutputDirectory=*) to=${word#*=};; esac; done
"""


def fetched(project: Path, maven: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the fetcher with an empty cache folder and this shell script as Maven; without it there is no Maven."""
    home = project.parent
    (home / "bin").mkdir(exist_ok=True)
    if maven is not None:
        (home / "bin" / "mvn").write_text(f"{MAVEN}{maven}\n")
        (home / "bin" / "mvn").chmod(0o755)
    path = f"{home / 'bin'}:/bin:/usr/bin" if maven is not None else str(home / "bin")
    environ = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(home / "cache")}
    return subprocess.run([sys.executable, project / "build_backend.py"], env=environ, capture_output=True, text=True, check=False)


def held(project: Path) -> dict[str, str]:
    """The jars that a wheel would hold, with their contents."""
    return {file.name: file.read_text() for file in (project / "klamm_zookeeper" / "jars").iterdir()}


COPIES = "mkdir -p $to; for name in {names}; do printf %s $name > $to/$name; done"
COPIES_ALL = COPIES.format(names=" ".join(PINNED))


def test_pins_are_whole_and_the_distribution_has_the_version_of_its_zookeeper() -> None:
    assert {"zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java"} <= {artefact.split(":")[1] for artefact in pinned()}
    assert all(re.fullmatch(r"[0-9a-f]{128}", digest) for digest in PINNED.values())
    (version,) = {artefact.split(":")[2] for artefact in pinned() if artefact.startswith("org.apache.zookeeper:")}
    assert f'\nversion = "{version}.' in (HERE / "pyproject.toml").read_text()


def test_pyspark_has_the_same_bytes_where_it_has_the_same_versions() -> None:
    spark = package_folder("pyspark")
    assert spark is not None
    same = [spark / "jars" / name for name in PINNED if (spark / "jars" / name).exists()]
    for jar in same:
        assert hashlib.sha512(jar.read_bytes()).hexdigest() == PINNED[jar.name], jar.name


def test_jars_come_from_maven_and_then_from_the_cache_folder(project: Path) -> None:
    first = fetched(project, COPIES_ALL)
    assert (first.returncode, first.stdout) == (0, f"{project / 'klamm_zookeeper' / 'jars'}\n"), first.stderr
    assert held(project) == {name: name for name in PINNED}
    shutil.rmtree(project / "klamm_zookeeper" / "jars")
    assert fetched(project, "exit 1").returncode == 0
    assert held(project) == {name: name for name in PINNED}


def test_an_sdist_has_its_jars_and_needs_no_maven(project: Path) -> None:
    assert fetched(project, COPIES_ALL).returncode == 0
    shutil.rmtree(project.parent / "cache")
    assert fetched(project).returncode == 0


def test_other_jars_in_the_folder_are_removed(project: Path) -> None:
    folder = project / "klamm_zookeeper" / "jars"
    folder.mkdir()
    (folder / "zookeeper-3.4.14.jar").write_text("old")
    (folder / next(iter(PINNED))).write_text("damaged")
    assert fetched(project, COPIES_ALL).returncode == 0
    assert held(project) == {name: name for name in PINNED}


@pytest.mark.parametrize(
    ("maven", "line"),
    [
        (None, "the jars of ZooKeeper are fetched with Maven, and there is no mvn on PATH"),
        ("echo; echo '[ERROR] No host'; echo '[ERROR] more'; exit 1", "Maven cannot fetch the jars of ZooKeeper: [ERROR] No host"),
    ],
    ids=["no Maven", "Maven fails"],
)
def test_what_cannot_be_fetched_is_one_line(project: Path, maven: str | None, line: str) -> None:
    failed = fetched(project, maven)
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", f"klamm-zookeeper: {line}\n")


def test_a_jar_with_another_sha_512_is_not_used(project: Path) -> None:
    name = next(iter(PINNED))
    failed = fetched(project, f"{COPIES_ALL}; printf other > $to/{name}")
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"klamm-zookeeper: Maven has another {name} than the one that pyproject.toml lists: its SHA-512 is ")
    assert failed.stderr.count("\n") == 1
    assert held(project) == {}
