"""Transactions end to end: producers of librdkafka at klamm and at Apache Kafka, three brokers each, in one run.

    python -m klamm.benchmarks.transactions --kafka-jars DIR [--producers 1 8] [--seconds 5] [--rounds 3] [--other KLAMM] [--json FILE]

Each producer begins a transaction, writes a record to each of three partitions, commits, and begins the next. The figure is transactions a
second of all producers together; `cpu ms` is that of the brokers for each transaction. Records, offsets and transactions have three
replicas. The clusters run side by side and take turns, and the order turns every round. `--other` names a second klamm command, which
takes the place of Apache Kafka.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import threading
import time
from typing import Any

from confluent_kafka import Producer

from klamm.benchmarks import data_clusters
from klamm.benchmarks.data_clusters import DataCluster
from klamm.benchmarks.processes import note

BROKERS = 3
PARTITIONS = 3
TIMEOUT_S = 60
SETTINGS = ("--config", "transaction.state.log.num.partitions=4")


class Transacting(threading.Thread):
    """One producer; `count` are the transactions that it committed."""

    def __init__(self, cluster: DataCluster, name: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "linger.ms": 0})
        self._producer.init_transactions(TIMEOUT_S)
        self.over = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self.over.is_set():
            self._producer.begin_transaction()
            for partition in range(PARTITIONS):
                self._producer.produce("t", b"x" * 100, partition=partition)
            self._producer.commit_transaction(TIMEOUT_S)
            self.count += 1


def transact(cluster: DataCluster, producers: int, seconds: float) -> dict[str, float]:
    """One run."""
    threads = [Transacting(cluster, f"bench-{number}") for number in range(producers)]
    before, begin = cluster.cpu_s(), time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    for thread in threads:
        thread.over.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    took, count = time.perf_counter() - begin, sum(thread.count for thread in threads)
    return {"per_s": count / took, "cpu_ms": (cluster.cpu_s() - before) / max(count, 1) * 1000}


def measure(clusters: list[DataCluster], producers: list[int], seconds: float, rounds: int) -> list[dict[str, Any]]:
    """All cases on all clusters, in turn. The first round warms up."""
    for cluster in clusters:
        data_clusters.create_topic(cluster.addresses, "t", PARTITIONS, BROKERS, {})
    results: list[dict[str, Any]] = []
    for number in range(rounds + 1):
        for cluster in clusters if number % 2 == 0 else clusters[::-1]:
            for count in producers:
                run = {"target": cluster.name, "case": f"{count} producers", **transact(cluster, count, seconds)}
                if number:
                    results.append(run)
                    note(f"{run}")
    return results


def table(results: list[dict[str, Any]], targets: list[str]) -> list[str]:
    """Lines to print: medians, and the ratio of the first target to the second."""
    columns = "".join(f" {name + ' tx/s':>12s} {'cpu ms':>8s}" for name in targets)
    lines = [f"{'case':16s}{columns} {'ratio':>6s}"]
    for case in dict.fromkeys(result["case"] for result in results):
        line, rates = f"{case:16s}", []
        for name in targets:
            runs = [result for result in results if (result["target"], result["case"]) == (name, case)]
            rates.append(statistics.median(run["per_s"] for run in runs))
            line += f" {rates[-1]:12.1f} {statistics.median(run['cpu_ms'] for run in runs):8.2f}"
        lines.append(f"{line} {rates[0] / rates[1]:6.2f}")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=5, help="length of a run")
    parser.add_argument("--rounds", type=int, default=3)

    def run(_: contextlib.ExitStack, clusters: list[DataCluster], options: argparse.Namespace) -> data_clusters.Results:
        return measure(clusters, options.producers, options.seconds, options.rounds)

    data_clusters.compare(parser, arguments, BROKERS, SETTINGS, run, table)


if __name__ == "__main__":
    main()
