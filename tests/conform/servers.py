"""Five servers for the matrix: Klamm, two releases of Apache Kafka, kfake, and librdkafka's mock cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from klamm.protocol.addresses import Address, address_of
from klamm.tests.conform import adapters
from klamm.tests.harness.kafka import KafkaBroker
from klamm.tests.harness.tree import Tree
from klamm.tests.reference import jars as reference
from klamm.tests.reference import newest_kafka
from klamm.zk.embedded.server import EmbeddedZooKeeper

MOCK = """
import sys
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "none"})
print(",".join(f"{each.host}:{each.port}" for each in producer.list_topics(timeout=10).brokers.values()), flush=True)
sys.stdin.read()
"""
OWN = "Klamm"
"""The server that the suite steers: it has all cases."""


@contextmanager
def kafka_3(folder: Path) -> Iterator[Address]:
    """A broker of Apache Kafka 3.9.1 with a ZooKeeper."""
    zookeeper = EmbeddedZooKeeper()
    address = zookeeper.start()
    tree = Tree(address, "/kafka")
    broker = KafkaBroker(reference.jars(), tree, folder, 0)
    try:
        broker.start()
        yield "127.0.0.1", broker.port
    finally:
        broker.kill()
        tree.close()
        zookeeper.stop()


@contextmanager
def kafka_4(folder: Path) -> Iterator[Address]:
    """A broker of Apache Kafka 4.4.0."""
    with newest_kafka.running(newest_kafka.jars(), folder / "kafka") as bootstrap:
        yield address_of(bootstrap)


@contextmanager
def program(command: Callable[[Path], list[str]], folder: Path) -> Iterator[Address]:
    """A program that prints host:port of its brokers, and ends when its input does."""
    process = subprocess.Popen(command(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield address_of(process.stdout.readline().split(",")[0].strip())
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@contextmanager
def own(folder: Path) -> Iterator[None]:
    """The suite starts it."""
    yield None


SERVERS: dict[str, Callable[[Path], AbstractContextManager[Address | None]]] = {
    OWN: own,
    "Kafka 3.9.1": kafka_3,
    "Kafka 4.4.0": kafka_4,
    "kfake": partial(program, lambda folder: [adapters.go("kfake", folder)]),
    "librdkafka's mock": partial(program, lambda folder: [sys.executable, "-c", MOCK]),
}
