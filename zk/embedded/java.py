"""The Java runtime and the jars of the embedded ZooKeeper, as they are found on this machine.

Nothing is downloaded. Any Java runtime will do (`machine/java.py`). The jars come from a folder that the caller or
KLAMM_ZOOKEEPER_JARS names, then from an installed Kafka (KAFKA_HOME) or ZooKeeper (ZOOKEEPER_HOME), then from PySpark, which ships
ZooKeeper and is located without being imported. Only the few jars that a standalone server loads go on the class path: a JVM opens
every jar it is given, and a whole folder of them costs more than half a second.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from klamm.machine.extras import install_command
from klamm.machine.java import Java, NoJava, find_java, package_folder

JARS_VARIABLE = "KLAMM_ZOOKEEPER_JARS"

_NEEDED = ("zookeeper", "zookeeper-jute", "slf4j-api")
_USEFUL = ("metrics-core", "audience-annotations", "snappy-java")


class EmbeddedZooKeeperError(Exception):
    """The embedded ZooKeeper cannot run; the text is one line that says why and what to do."""


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
    """Jars for ZooKeeper's class path, from `folder` or the first place that has them."""
    named = folder if folder is not None else environ.get(JARS_VARIABLE)
    if named:
        jars = _pick(Path(named))
        if jars is None:
            raise EmbeddedZooKeeperError(
                f"no ZooKeeper in {named}: it must hold the jars {', '.join(_NEEDED)} ({JARS_VARIABLE} names the folder)"
            )
        return jars
    places = [Path(environ[home], below) for home, below in (("KAFKA_HOME", "libs"), ("ZOOKEEPER_HOME", "lib")) if environ.get(home)]
    spark = package_folder("pyspark")
    if spark is not None:
        places.append(spark / "jars")
    for place in places:
        jars = _pick(place)
        if jars is not None:
            return jars
    raise EmbeddedZooKeeperError(
        f"no ZooKeeper jars for the embedded ZooKeeper: set {JARS_VARIABLE}, KAFKA_HOME or ZOOKEEPER_HOME, "
        f"`{install_command('embedded')}`, or use a running ZooKeeper with --zookeeper HOST:PORT"
    )


def _pick(folder: Path) -> list[Path] | None:
    found: list[Path] = []
    for name in _NEEDED + _USEFUL:
        matching = sorted(folder.glob(f"{name}-[0-9]*.jar"))
        if not matching and name in _NEEDED:
            return None
        found.extend(matching)
    return found
