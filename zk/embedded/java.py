"""Finds the Java runtime and the jars for the embedded ZooKeeper on this machine.

Nothing is downloaded. Any Java runtime works (`machine/java.py`). The jars come from the folder of the caller or of KLAMM_ZOOKEEPER_JARS,
then from an installed Kafka (KAFKA_HOME) or ZooKeeper (ZOOKEEPER_HOME), then from the packages klamm-zookeeper and PySpark, which contain
ZooKeeper and are located without an import. Only the few jars that a standalone server loads are on the class path: a JVM opens every jar
on it, and a whole folder of jars takes more than half a second.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from klamm.machine.extras import install_command
from klamm.machine.java import Java, NoJava, find_java, package_folder

JARS_VARIABLE = "KLAMM_ZOOKEEPER_JARS"

_PACKAGES = ("klamm_zookeeper", "pyspark")
"""Packages with a folder `jars`, the preferred one first."""
_NEEDED = ("zookeeper", "zookeeper-jute", "slf4j-api")
_USEFUL = ("metrics-core", "audience-annotations", "snappy-java")


class EmbeddedZooKeeperError(Exception):
    """The embedded ZooKeeper cannot run. The message is one line with the reason and what to do."""


def find_runtime(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java runtime of this machine. Raises EmbeddedZooKeeperError."""
    try:
        return find_java(environ)
    except NoJava as problem:
        raise EmbeddedZooKeeperError(
            f"no Java runtime for the embedded ZooKeeper: set JAVA_HOME, put java on PATH, `{install_command('embedded')}`, "
            "or use a running ZooKeeper with --zookeeper HOST:PORT"
        ) from problem


def find_jars(folder: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The jars of ZooKeeper's class path, from `folder` or from the first place that has them. Raises EmbeddedZooKeeperError."""
    named = folder if folder is not None else environ.get(JARS_VARIABLE)
    if named:
        jars = _pick(Path(named))
        if jars is None:
            raise EmbeddedZooKeeperError(
                f"no ZooKeeper in {named}: the folder ({JARS_VARIABLE}) must have the jars {', '.join(_NEEDED)}"
            )
        return jars
    places = [Path(environ[home], below) for home, below in (("KAFKA_HOME", "libs"), ("ZOOKEEPER_HOME", "lib")) if environ.get(home)]
    for place in places:
        jars = _pick(place)
        if jars is not None:
            return jars
    for package in _PACKAGES:
        folder = package_folder(package)
        jars = _pick(folder / "jars") if folder is not None else None
        if jars is not None:
            return jars
    raise EmbeddedZooKeeperError(
        "no ZooKeeper jars for the embedded ZooKeeper: install klamm-zookeeper from where Klamm was installed from, "
        f"or `{install_command('embedded-pyspark')}`, or set {JARS_VARIABLE}, KAFKA_HOME or ZOOKEEPER_HOME, "
        "or use a running ZooKeeper with --zookeeper HOST:PORT"
    )


def _pick(folder: Path) -> list[Path] | None:
    found: list[Path] = []
    for name in _NEEDED + _USEFUL:
        matching = sorted(folder.glob(f"{name}-[0-9]*.jar"))
        if not matching and name in _NEEDED:
            return None
        found.extend(matching)
    return found
