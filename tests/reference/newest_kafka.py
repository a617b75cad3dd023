"""A broker of Apache Kafka 4.4.0, which is its own controller."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klamm.protocol import messages
from klamm.tests.harness.kafka import JVM, java_command, request, wait_for
from klamm.tests.harness.ports import free_port
from klamm.tests.reference import jars as reference
from klamm.zk.embedded.owned_process import OwnedProcess

VERSION = "4.4.0"


def jars() -> Path:
    """The jars of this release, fetched once."""
    needed = tuple(f"org.apache.kafka:{name}:{VERSION}" for name in ("kafka_2.13", "kafka-tools", "kafka-clients"))
    reference.ARTIFACTS.setdefault(VERSION, (*needed, "org.slf4j:slf4j-nop:1.7.36"))
    return reference.jars(VERSION)


@contextmanager
def running(jars: Path, folder: Path) -> Iterator[str]:
    """A broker of Kafka 4.4.0 that is its own controller; where it listens."""
    port, controllers = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller", "node.id": 0, "controller.quorum.voters": f"0@127.0.0.1:{controllers}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers}", "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", "log.dirs": folder / "logs",
        "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1, "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2,
    }
    folder.mkdir()
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    tool = java_command(jars, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(file))
    subprocess.run(tool, check=True, capture_output=True, timeout=120)
    process = OwnedProcess(java_command(jars, "kafka.Kafka", str(file), flags=JVM), folder / "log")

    def answers() -> bool:
        try:
            return bool(request(port, messages.MetadataRequest(topics=[]), 9).brokers)
        except OSError:
            return False

    try:
        wait_for(answers, "Kafka 4.4.0 responds", 90)
        yield f"127.0.0.1:{port}"
    finally:
        process.stop()


