"""Clusters that store records, for the benchmarks of Produce and Fetch: klamm, librdkafka's mock cluster, Apache Kafka.

All run on this machine and are owned by the benchmark. Apache Kafka is a ZooKeeper and one JVM for each broker, with the flags of its
own start script and a heap of its own; its logs are in the benchmark's temporary folder. `klamm` keeps records in memory unless it is
given a folder. Topics keep RETENTION_BYTES of each partition, so that a run may take as long as it likes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from klamm.benchmarks.controlled_cluster import Connection, broker_command
from klamm.benchmarks.processes import Failed, Process, free_port, klamm
from klamm.protocol import messages
from klamm.protocol.apis import APIS
from klamm.protocol.records.checksum import crc32c
from klamm.protocol.records.record import write_varint
from klamm.zk.embedded.server import EmbeddedZooKeeper

SEGMENT_BYTES = 16 << 20
RETENTION_BYTES = 64 << 20
TOPIC_CONFIGS = {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(RETENTION_BYTES)}
_KEYS = {api.name: api.key for api in APIS.values()}
Results: TypeAlias = "list[dict[str, Any]]"
"""A row for each run."""
Measure: TypeAlias = "Callable[[contextlib.ExitStack, list[DataCluster], argparse.Namespace], Results]"
Table: TypeAlias = "Callable[[Results, list[str]], list[str]]"
"""Results and names of clusters → lines to print."""


class DataCluster:
    """A cluster that runs: `processes` are those of its brokers, `addresses` host:port of each."""

    def __init__(self, name: str, processes: list[Process], addresses: list[str]) -> None:
        self.name = name
        self.processes = processes
        self.addresses = addresses

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses)

    def cpu_s(self) -> float:
        """CPU seconds of all brokers so far."""
        return sum(process.cpu_s(descendants=False) for process in self.processes)

    def rss_mb(self) -> float:
        """Resident memory of all brokers."""
        return sum(process.rss_mb(descendants=False) for process in self.processes)


def ask(address: str, request: Any, version: int, timeout_s: float = 30) -> Any:
    """One request on a connection of its own; the decoded response."""
    name = type(request).__name__.removesuffix("Request")
    with Connection(int(address.rpartition(":")[2]), timeout_s) as connection:
        connection.send(messages.encode_request(_KEYS[name], version, 1, "load", messages.encode(request, version))[4:])
        payload = connection.receive()
    _, offset = messages.decode_response_header(_KEYS[name], version, payload)
    return messages.decode(f"{name}Response", version, payload, offset)[0]


def leaders(address: str, topic: str) -> tuple[dict[int, str], dict[int, int]]:
    """(host:port by broker id, leader by partition) as Metadata of this broker has it."""
    asked = messages.MetadataRequest.MetadataRequestTopic(name=topic)
    found = ask(address, messages.MetadataRequest(topics=[asked], allow_auto_topic_creation=False), 4)
    brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in found.brokers}
    parts = [part for row in found.topics if row.error_code == 0 for part in row.partitions]
    return brokers, {part.partition_index: part.leader_id for part in parts if part.error_code == 0}


def create_topic(addresses: list[str], topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
    """Create a topic and wait until every broker names a leader for each of its partitions."""
    row = messages.CreateTopicsRequest.CreatableTopic
    rows = [messages.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    wanted = row(name=topic, num_partitions=partitions, replication_factor=replicas, configs=rows)
    codes = {ask(address, messages.CreateTopicsRequest(topics=[wanted], timeout_ms=30000), 4).topics[0].error_code for address in addresses}
    if not codes & {0, 36}:
        raise Failed(f"topic {topic} was not created: codes {codes}")
    end = time.monotonic() + 60
    while any(len(leaders(address, topic)[1]) < partitions for address in addresses):
        if time.monotonic() > end:
            raise Failed(f"topic {topic} has no leaders")
        time.sleep(0.05)


def start_klamm(
    stack: contextlib.ExitStack, folder: pathlib.Path, brokers: int, command: str | None = None, arguments: tuple[str, ...] = ()
) -> DataCluster:
    """`klamm serve`, of this installation or of the given command; all brokers are one process unless `arguments` say otherwise."""
    serve = ["serve", "--brokers", str(brokers), "--port", "0", "--json", "--log-level", "warning", *arguments]
    process = Process(klamm(*serve) if command is None else [command, *serve], folder / f"klamm-{id(stack)}.log")
    stack.callback(process.stop)
    return DataCluster("klamm", [process], process.answer()["bootstrap_servers"].split(","))


def start_mock(stack: contextlib.ExitStack, folder: pathlib.Path, brokers: int, topic: str) -> DataCluster:
    """librdkafka's mock cluster, which has the topic."""
    process = Process([sys.executable, "-m", "klamm.benchmarks.mock_cluster", str(brokers), topic], folder / "mock.log")
    stack.callback(process.stop)
    return DataCluster("mock", [process], process.answer()["bootstrap_servers"].split(","))


def start_kafka(stack: contextlib.ExitStack, folder: pathlib.Path, brokers: int, jars: str) -> DataCluster:
    """Apache Kafka: a ZooKeeper, and a JVM for each broker."""
    zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
    address = zookeeper.start()
    stack.callback(zookeeper.stop)
    processes, addresses = [], []
    for broker in range(brokers):
        home = folder / f"kafka-{broker}"
        home.mkdir()
        port = free_port()
        settings = {
            "broker.id": broker,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": f"{address}/kafka",
            "log.dirs": home / "data",
            "log.retention.check.interval.ms": 5000,
            "log.segment.delete.delay.ms": 1000,
            "offsets.topic.replication.factor": min(3, brokers),
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": min(3, brokers),
            "transaction.state.log.min.isr": min(2, brokers),
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
        }
        file = home / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        process = Process([*broker_command("kafka", jars, 0, home), str(file)], home / "broker.log")
        stack.callback(process.stop)
        processes.append(process)
        addresses.append(f"127.0.0.1:{port}")
    wait_until_all_know_all(processes, addresses)
    return DataCluster("kafka", processes, addresses)


def compare(
    parser: argparse.ArgumentParser, arguments: list[str] | None, brokers: int, settings: tuple[str, ...], measure: Measure, table: Table
) -> None:
    """Run a benchmark on klamm, with these arguments of `klamm serve`, and on Apache Kafka or another klamm; print its table."""
    parser.add_argument("--kafka-jars", help="a folder with all jars of Kafka 3.9")
    parser.add_argument("--other", help="run this klamm command too, instead of Apache Kafka")
    parser.add_argument("--json", help="write all results here")
    options = parser.parse_args(arguments)
    if not options.kafka_jars and not options.other:
        parser.error("name --kafka-jars or --other")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        clusters = [start_klamm(stack, folder, brokers, arguments=settings)]
        if options.other:
            clusters.append(start_klamm(stack, folder, brokers, options.other, settings))
            clusters[-1].name = "other"
        else:
            clusters.append(start_kafka(stack, folder, brokers, options.kafka_jars))
        results = measure(stack, clusters, options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results, [cluster.name for cluster in clusters])))


def wait_until_all_know_all(processes: list[Process], addresses: list[str]) -> None:
    """Wait until each broker names all of them and a controller. Raises Failed."""
    end = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError, Failed):
            found = [ask(address, messages.MetadataRequest(topics=[]), 4, 5) for address in addresses]
            if all(len(one.brokers) == len(addresses) and one.controller_id >= 0 for one in found):
                return
        dead = [process for process in processes if not process.alive()]
        if dead or time.monotonic() > end:
            raise Failed(f"the brokers did not start: {(dead or processes)[0].tail()}")
        time.sleep(0.1)


def record_batch(value: bytes, count: int = 1) -> bytes:
    """A batch of magic 2 as a producer without idempotence sends it: `count` records with this value, uncompressed."""
    records = bytearray()
    for delta in range(count):
        body = b"\0\0" + write_varint(delta) + b"\x01" + write_varint(len(value)) + value + b"\0"
        records += write_varint(len(body)) + body
    now = time.time_ns() // 1_000_000
    tail = struct.pack(">hiqqqhii", 0, count - 1, now, now, -1, -1, -1, count) + bytes(records)
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail
