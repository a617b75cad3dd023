"""What a test sees of a cluster of `klamm serve`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaConsumer
from kazoo.client import KazooClient

from klamm.tests.harness.waits import wait_for


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
    wait_for(lambda: zookeeper_is_gone(address), f"the ZooKeeper at {address} is gone")
