"""Releases of ZooKeeper: their jars, fetched by Maven once into the user's cache folder, and a server of each."""

from __future__ import annotations

import fcntl
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klamm.machine.cache_folder import cache_folder
from klamm.machine.java import find_java
from klamm.tests.harness.waits import wait_for
from klamm.zk.embedded.owned_process import OwnedProcess

RELEASES = ("3.5.10", "3.6.4", "3.7.2", "3.8.4", "3.9.3")
"""One release of each line that runs with Kafka 3.9's client of ZooKeeper. The embedded ZooKeeper is a later 3.9."""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_ALSO = {"3.5.10": "", "3.6.4": "org.xerial.snappy:snappy-java:1.1.10.8 io.dropwizard.metrics:metrics-core:3.2.6"}
_FLAGS = (
    "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
)
_USUALLY = "org.xerial.snappy:snappy-java:1.1.10.8 io.dropwizard.metrics:metrics-core:4.1.12.1"


def jars(release: str) -> Path:
    """The folder with the jars of a release, fetched when it is missing. Raises subprocess.CalledProcessError."""
    target = cache_folder() / "reference" / f"zookeeper-{release}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            artefacts = [f"org.apache.zookeeper:zookeeper:{release}", *_ALSO.get(release, _USUALLY).split()]
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                project = Path(folder, "pom.xml")
                project.write_text(_project(artefacts), encoding="utf-8")
                command = ["mvn", "--batch-mode", "--quiet", "-f", str(project), _COPY, f"-DoutputDirectory={folder}/jars"]
                subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=300)
                shutil.move(f"{folder}/jars", target)
    return target


def _project(artefacts: list[str]) -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(*name.split(":"))
        for name in artefacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>reference</groupId><artifactId>zookeeper</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


@contextmanager
def zookeeper(release: str, folder: Path) -> Iterator[str]:
    """A standalone server of this release. Yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "zoo.cfg"
    config.write_text(
        f"dataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\nmaxSessionTimeout=60000\n"
        "admin.enableServer=false\n4lw.commands.whitelist=srvr\n"
    )
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    quiet = [str(jar) for jar in sorted(jars(release).iterdir()) if "logback" not in jar.name]
    command = [str(find_java().launcher), *_FLAGS, "-cp", ":".join(quiet), main, str(config)]
    server = OwnedProcess(command, folder / "zookeeper.out")
    try:
        wait_for(lambda: server.poll() is not None or version_at(port).startswith("Zookeeper version"), f"ZooKeeper {release}", 60)
        assert version_at(port).startswith(f"Zookeeper version: {release}"), (folder / "zookeeper.out").read_text()
        yield f"127.0.0.1:{port}"
    finally:
        server.stop()


def version_at(port: int) -> str:
    """What a server says of its version; empty if none is there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"srvr")
            return connection.makefile(encoding="utf-8").readline()
    except OSError:
        return ""
