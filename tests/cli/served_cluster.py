"""What a test sees of a cluster of `klamm serve`."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka import KafkaConsumer
from kazoo.client import KazooClient

from klamm.tests.cli.running import WITHIN_S


def topics_at(bootstrap: str) -> dict[str, int]:
    """Topics and their numbers of partitions, as a client sees them."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        return {topic: len(consumer.partitions_for_topic(topic) or ()) for topic in consumer.topics()}
    finally:
        consumer.close()


def zookeeper_is_gone(address: str) -> bool:
    host, port = address.split("/")[0].rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return False
    except OSError:
        return True


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.005)


@contextmanager
def connected(zookeeper: str) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def wait_until_gone(address: str) -> None:
    wait_until(lambda: zookeeper_is_gone(address), f"the ZooKeeper at {address} is gone")
