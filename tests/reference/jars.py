"""Real Kafka's jars: fetched by Maven once, kept in the user's cache folder, never in the repository.

`jars(version)` returns the folder of one version's jars and fetches them when it is not there: Maven resolves a small generated project
that names the artifacts and copies all they need into a folder beside the final one, which is renamed when it is whole. Two fetchers
wait for each other on a lock. KLAMM_REFERENCE_JARS names a folder that takes the place of the 3.9.1 one. As a program (`make
reference`) it fetches and prints the folder. What cannot be had is a NoJars with one line that says why.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from klamm.machine.cache_folder import cache_folder

VARIABLE = "KLAMM_REFERENCE_JARS"
VERSION = "3.9.1"
TOOL_OF_KIP_183 = "2.2.2"
"""The last line of versions whose `kafka-preferred-replica-election` is the one that KIP-183 shipped."""

CLIENTS_OF_4 = "4.0.0"
"""Clients alone: this line of versions has no ZooKeeper mode any more, but its AdminClient still speaks to brokers of 3.9."""

CLIENTS_OF_2016 = "0.10.2.2"
"""Console producer and consumer that speak message format 1."""

ARTIFACTS = {
    VERSION: (
        f"org.apache.kafka:kafka_2.13:{VERSION}",
        f"org.apache.kafka:kafka-tools:{VERSION}",
        f"org.apache.kafka:kafka-clients:{VERSION}",
        "org.slf4j:slf4j-reload4j:1.7.36",
    ),
    TOOL_OF_KIP_183: (f"org.apache.kafka:kafka_2.12:{TOOL_OF_KIP_183}", "org.slf4j:slf4j-nop:1.7.26"),
    CLIENTS_OF_2016: (f"org.apache.kafka:kafka_2.12:{CLIENTS_OF_2016}", "org.slf4j:slf4j-nop:1.7.26"),
    CLIENTS_OF_4: (f"org.apache.kafka:kafka-clients:{CLIENTS_OF_4}", "org.slf4j:slf4j-nop:1.7.36"),
}
_RELEASES = "1.0.2 1.1.1 2.0.1 2.1.1 2.2.1 2.3.1 2.4.1 2.5.1 2.6.3 2.7.2 2.8.2 3.0.2 3.1.2 3.2.3 3.3.2 3.4.1 3.5.2 3.6.2 3.7.2 3.8.1 3.9.1"
RELEASES = tuple(_RELEASES.split())
"""A release of each version that `--as-version` names. The jars of any of them can be fetched, to compare with its broker."""

_SCALA_2_12 = frozenset(RELEASES[:6])
_ZOOKEEPER_3_4_13 = frozenset(RELEASES[2:6])
"""Their client of ZooKeeper cannot connect with Java 14 or later; they get that of Kafka 1.0."""


_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_WITHIN_S = 900


class NoJars(Exception):
    """Kafka's jars cannot be had; the text is one line for people."""


def jars(version: str = VERSION, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the jars of `version`, fetched when missing. Raises NoJars."""
    named = environ.get(VARIABLE) if version == VERSION else None
    if named:
        if not list(Path(named).glob(f"kafka_*-{version}.jar")):
            raise NoJars(f"no Kafka {version} in {named}, which {VARIABLE} names")
        return Path(named).absolute()
    base = cache_folder() / "reference"
    target = base / version
    if not target.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with (base / f"{version}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                _fetch(version, base, target)
    return target


def _fetch(version: str, base: Path, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars(f"Kafka {version}'s jars are fetched with Maven: install mvn, or let {VARIABLE} name a folder that holds them")
    print(f"Fetching Kafka {version} into {target}; this happens once.", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix=f"{version}-", dir=base))
    try:
        (folder / "pom.xml").write_text(_project(version), encoding="utf-8")
        command = [maven, "--batch-mode", "--quiet", "-f", str(folder / "pom.xml"), _COPY, f"-DoutputDirectory={folder / 'jars'}"]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoJars(f"Maven did not fetch Kafka {version} within {_WITHIN_S} s") from None
        if done.returncode != 0:
            reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stdout.strip()[-300:])
            raise NoJars(f"Maven cannot fetch Kafka {version}: {reason}")
        shutil.copy(folder / "pom.xml", folder / "jars" / "pom.xml")
        (folder / "jars").rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _broker(version: str) -> tuple[str, ...]:
    """The artifacts of a broker of `version`. Kafka 2.4 is the first that was built for Scala 2.13."""
    scala = "2.12" if version in _SCALA_2_12 else "2.13"
    zookeeper = ("org.apache.zookeeper:zookeeper:3.4.10",) if version in _ZOOKEEPER_3_4_13 else ()
    return f"org.apache.kafka:kafka_{scala}:{version}", "org.slf4j:slf4j-nop:1.7.36", *zookeeper


def _project(version: str) -> str:
    """A Maven project that depends on the artifacts of `version`."""
    dependencies = "".join(
        "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>\n".format(*name.split(":"))
        for name in ARTIFACTS.get(version) or _broker(version)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        "  <groupId>reference</groupId>\n  <artifactId>reference</artifactId>\n  <version>1</version>\n"
        f"  <dependencies>\n{dependencies}  </dependencies>\n"
        "</project>\n"
    )


def main() -> int:
    try:
        print(jars())
    except NoJars as problem:
        print(f"reference: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
