"""A real broker of any release from 1.0 to 3.9, started with its default configs, and what it says of itself."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.harness.kafka import JVM, KafkaBroker, java_command, request
from klamm.tests.harness.tree import Tree
from klamm.tests.reference.jars import jars

_KEPT = frozenset({"broker.id", "listeners", "zookeeper.connect", "log.dirs", "zookeeper.connection.timeout.ms"})
_BROKER, _DEFAULT = 4, 5
Ranges = dict[int, tuple[int, int]]


class ReleaseBroker(KafkaBroker):
    """A broker with default configs. The client of ZooKeeper of old releases does not know the addresses of Java 14 with SASL."""

    def __init__(self, version: str, tree: Tree, folder: Path) -> None:
        super().__init__(jars(version), tree, folder, 1)
        self.settings = {name: value for name, value in self.settings.items() if name in _KEPT}

    def command(self, file: Path) -> list[str]:
        flags = (*JVM, "-Dzookeeper.sasl.client=false", f"-Dlog4j.configuration=file:{self.log4j}")
        return java_command(self.jars, "kafka.Kafka", str(file), flags=flags)


class Described(NamedTuple):
    """What a broker says of itself."""

    ranges: Ranges
    """API key → (oldest, newest) version in ApiVersions."""
    unsupported: dict[int, bytes]
    """Version of ApiVersions that it does not have → the whole response without its length."""
    defaults: dict[str, str | None]
    """Config → value, of those that are at their default."""


@contextmanager
def release_broker(version: str, tree: Tree, folder: Path) -> Iterator[ReleaseBroker]:
    """A running broker of this version, alone in its cluster."""
    broker = ReleaseBroker(version, tree, folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def described(port: int) -> Described:
    """Ask the broker at this port of 127.0.0.1."""
    ranges = listed(port)
    unsupported = {version: exchange(port, ApiKey.API_VERSIONS, version) or b"" for version in (2, 3, 4, 9)}
    newest = ranges[ApiKey.API_VERSIONS][1]
    asked = messages.DescribeConfigsRequest.DescribeConfigsResource(resource_type=_BROKER, resource_name="1", configuration_keys=None)
    version = min(1, ranges[ApiKey.DESCRIBE_CONFIGS][1])
    rows = request(port, messages.DescribeConfigsRequest(resources=[asked]), version).results[0].configs
    defaults = {row.name: row.value for row in rows if (row.config_source == _DEFAULT if version else row.is_default)}
    return Described(ranges, {version: frame for version, frame in unsupported.items() if version > newest}, defaults)


def listed(port: int) -> Ranges:
    """API key → (oldest, newest) version in the ApiVersions response of this port."""
    response = request(port, messages.ApiVersionsRequest(), 0)
    return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


def exchange(port: int, api_key: int, version: int, body: bytes = b"\0") -> bytes | None:
    """Send these bytes as a request; returns the response without its length, None if the connection is closed instead."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as stream:
        connection.sendall(messages.encode_request(api_key, version, 7, "test", body))
        try:
            head = stream.read(4)
            return stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None
        except ConnectionResetError:
            return None
