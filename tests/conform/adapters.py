"""The commands of the adapters of seven clients, compiled where they have to be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from klamm.tests.reference import newest_kafka

FOLDER = Path(__file__).with_name("clients")
JARS = ("kafka-clients", "lz4-java", "snappy-java", "zstd-jni", "slf4j-api")


def python(name: str, folder: Path) -> str:
    """The command of an adapter in Python. `folder` is for what is compiled."""
    return f"{sys.executable} {FOLDER / name}.py"


def java(jars: Callable[[], Path], folder: Path) -> str:
    """The command of the Java adapter with the clients of these jars. An archive of its classes lets it start in half the time."""
    path = os.pathsep.join(str(each) for name in JARS for each in jars().glob(f"{name}-*.jar"))
    classes = folder / "adapter.jar"
    subprocess.run(["javac", "-d", folder / "classes", "-cp", path, *(FOLDER / "java").glob("*.java")], check=True)
    subprocess.run(["jar", "--create", "--file", classes, "-C", folder / "classes", "."], check=True)
    command = f"java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {{}} -Xlog:disable -cp {classes}{os.pathsep}{path} Adapter"
    archive = folder / "adapter.jsa"
    nowhere = {"TESTCASE": "produce", "TOPIC": "t", "PARTITION": "0", "BOOTSTRAP": "127.0.0.1:1", "RECORDS": "1", "SIZE": "0"}
    environment = os.environ | nowhere | {"CONFIG": "max.block.ms=100", "GROUP": "g"}
    subprocess.run(command.format(f"-XX:ArchiveClassesAtExit={archive}"), shell=True, env=environment, capture_output=True, check=False)
    return command.format(f"-XX:SharedArchiveFile={archive}")


def go(name: str, folder: Path) -> str:
    """The command of a program in Go."""
    program = folder / name
    subprocess.run(["go", "-C", str(FOLDER / "go"), "build", "-buildvcs=false", "-o", str(program), f"./{name}"], check=True)
    return str(program)


def kafkajs(folder: Path) -> str:
    """The command of the adapter of kafkajs, which `make setup` installs for the tests."""
    return f"node {FOLDER / 'with_kafkajs.mjs'} {Path(sys.executable).parents[1] / 'node'}"


CLIENTS: dict[str, Callable[[Path], str]] = {
    "Java 4.4.0": partial(java, newest_kafka.jars),
    "librdkafka": partial(python, "confluent"),
    "kafka-python": partial(python, "with_kafka_python"),
    "aiokafka": partial(python, "with_aiokafka"),
    "kafkajs": kafkajs,
    "franz-go": partial(go, "franz"),
    "sarama": partial(go, "sarama"),
}
"""Name of the client → what makes its command, with a folder for what is compiled."""
