"""TLS 1.3 of one broker of klamm beside one of Apache Kafka: handshakes, and records end to end.

    python -m klamm.benchmarks.tls --kafka-jars DIR [--handshakes 500] [--records 100000] [--rounds 3] [--json FILE]

A client makes one handshake after the other, each with a request, without resumption; the brokers have the same key (P-256). Then a
producer of librdkafka sends records of 1 KiB with acks=1, and a consumer reads them, both over TLS. Handshakes per core are those of one
CPU second of the broker, so they hold on a busy machine too. The table shows medians; the first round warms up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from klamm.benchmarks import data_clusters
from klamm.benchmarks.controlled_cluster import broker_command
from klamm.benchmarks.data_clusters import DataCluster
from klamm.benchmarks.processes import Failed, Process, free_port, note
from klamm.protocol import messages
from klamm.server.local.made_security import make_security
from klamm.zk.embedded.server import EmbeddedZooKeeper

VALUE = b"v" * 1024
_REQUEST = messages.encode_request(18, 0, 1, "load", b"")


def start(stack: contextlib.ExitStack, target: str, folder: pathlib.Path, jars: str, zookeeper: str) -> tuple[DataCluster, int, str]:
    """One broker, the port of its TLS listener, and the file of the authority."""
    home = folder / target
    home.mkdir()
    made = make_security(home / "security", "127.0.0.1", tls=True, mechanism=None, now_ms=time.time_ns() // 1_000_000)
    plain, secured = free_port(), free_port()
    settings = {name: value for name, value in made.config.items() if name.startswith("ssl.")} | {
        "broker.id": "0", "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secured}", "log.dirs": str(home / "data"),
        "zookeeper.connect": f"{zookeeper}/{target}", "ssl.enabled.protocols": "TLSv1.3",
    }
    file = home / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process = Process([*broker_command(target, jars, 0, home), str(file)], home / "broker.log")
    stack.callback(process.stop)
    cluster = DataCluster(target, [process], [f"127.0.0.1:{plain}"])
    data_clusters.wait_until_all_know_all(cluster.processes, cluster.addresses)
    return cluster, secured, made.client["ssl.ca.location"]


def shake(port: int, authority: str, count: int) -> None:
    """Make this number of handshakes, each with a request and its response."""
    for _ in range(count):
        context = ssl.create_default_context(cafile=authority)
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port), 30), server_hostname="127.0.0.1") as connection:
            connection.sendall(_REQUEST)
            connection.recv(4)


def produce(port: int, authority: str, count: int) -> None:
    """Send so many records, and wait for their responses."""
    producer = Producer(_client(port, authority) | {"acks": 1, "linger.ms": 5, "queue.buffering.max.messages": count})
    for _ in range(count):
        producer.produce("t", VALUE, partition=0)
        producer.poll(0)
    if producer.flush(120):
        raise Failed("records were not acknowledged")


def consume(port: int, authority: str, count: int) -> None:
    """Read so many records."""
    consumer = Consumer(_client(port, authority) | {"group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    end = time.monotonic() + 120
    while count > 0:
        count -= len(consumer.consume(min(count, 1000), 5))
        if time.monotonic() > end:
            raise Failed("records were not read")
    consumer.close()


def _client(port: int, authority: str) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL", "ssl.ca.location": authority}


Case = Callable[[int, str, int], None]


def measure(brokers: list[tuple[DataCluster, int, str]], counts: dict[str, int], rounds: int) -> list[dict[str, Any]]:
    """All cases on both brokers, in turn. The first round warms up."""
    cases: dict[str, Case] = {"handshakes": shake, "produce": produce, "consume": consume}
    for cluster, _, _ in brokers:
        data_clusters.create_topic(cluster.addresses, "t", 1, 1, {})
    results = []
    for number in range(rounds + 1):
        for cluster, port, authority in brokers if number % 2 == 0 else brokers[::-1]:
            for name, case in cases.items():
                cpu_s, begun = cluster.processes[0].running_s(), time.monotonic()
                case(port, authority, counts[name])
                took, used = time.monotonic() - begun, cluster.processes[0].running_s() - cpu_s
                run = {"target": cluster.name, "case": name, "per_s": counts[name] / took, "per_cpu_s": counts[name] / used}
                if number:
                    results.append(run)
                    note(f"{run}")
    return results


def table(results: list[dict[str, Any]]) -> list[str]:
    """Lines to print: medians for each broker."""
    lines = [f"{'case':12s} {'klamm/s':>10s} {'/cpu s':>10s} {'kafka/s':>10s} {'/cpu s':>10s}"]
    for case in dict.fromkeys(result["case"] for result in results):
        line = f"{case:12s}"
        for target in ("klamm", "kafka"):
            runs = [result for result in results if (result["target"], result["case"]) == (target, case)]
            line += "".join(f" {statistics.median(run[of] for run in runs):10.0f}" for of in ("per_s", "per_cpu_s"))
        lines.append(line)
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka-jars", required=True, help="a folder with all jars of Kafka 3.9")
    parser.add_argument("--handshakes", type=int, default=500)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write all results here")
    options = parser.parse_args(arguments)
    counts = {"handshakes": options.handshakes, "produce": options.records, "consume": options.records}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        address = zookeeper.start()
        stack.callback(zookeeper.stop)
        brokers = [start(stack, target, folder, options.kafka_jars, address) for target in ("klamm", "kafka")]
        results = measure(brokers, counts, options.rounds)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
