"""Apache Kafka's own ProducerPerformance and a consumer of librdkafka: three brokers of klamm against three of Apache Kafka, in one run.

    python -m klamm.benchmarks.perf_tools --kafka-jars DIR [--megabytes 200] [--rounds 1] [--sizes 100 1024] [--disk] [--processes]
        [--json FILE] [--other KLAMM]

Records of 100 bytes and of 1 KiB, acks 1 and all, a topic of six partitions with three replicas each; then librdkafka reads such a topic
from its beginning, without a group. `--other` names a second klamm command, which takes the place of Apache Kafka. Both clusters run all
the time, on the same CPUs as the tool. Each case is run on one and then on the other, after a run of a twentieth of its length, round
after round, the order turned every round. The table shows medians, and the median of the ratios of neighbouring runs. `cpu s` is that of
the brokers during the case. ConsumerPerformance needs consumer groups, which klamm does not have yet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from klamm.benchmarks import data_clusters
from klamm.benchmarks.data_clusters import DataCluster
from klamm.benchmarks.processes import Failed, note

BROKERS = 3
PARTITIONS = 6
SIZES = (100, 1024)
ACKS = ("1", "all")
SETTINGS = ("--config", "log.retention.check.interval.ms=5000", "--config", f"klamm.log.memory.bytes={8 << 30}")
"""Retention as in the Apache Kafka of a benchmark, so that memory does not grow with the rounds; and memory for all that it leaves."""
_RATE = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency")


def run(jars: str, name: str, *arguments: str) -> str:
    """One run of a tool of Apache Kafka; its output."""
    command = ["java", "-Xmx512m", "-XX:+UseG1GC", "-cp", f"{jars}/*", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise Failed(f"{name}: {done.stderr[-600:]}{done.stdout[-600:]}")
    return done.stdout


class Target(Protocol):
    """What a tool is run on."""

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of its brokers."""

    def cpu_s(self) -> float:
        """CPU seconds so far of what is measured."""


def produce(cluster: Target, jars: str, topic: str, count: int, size: int, acks: str) -> dict[str, Any]:
    """ProducerPerformance as fast as it can."""
    properties = [f"bootstrap.servers={cluster.bootstrap_servers}", f"acks={acks}"]
    before = cluster.cpu_s()
    arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1", "--producer-props"]
    output = run(jars, "org.apache.kafka.tools.ProducerPerformance", *arguments, *properties)
    found = _RATE.search(output.strip().splitlines()[-1])
    if found is None:
        raise Failed(f"ProducerPerformance said {output[-300:]}")
    return {"mb_per_s": float(found[2]), "latency_ms": float(found[3]), "cpu_s": cluster.cpu_s() - before}


def consume(cluster: DataCluster, topic: str, count: int, size: int) -> dict[str, Any]:
    """A consumer of librdkafka reads `count` records of a topic from its beginning."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "perf", "enable.auto.commit": False})
    try:
        before, begin = cluster.cpu_s(), time.monotonic()
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        left = count
        while left > 0:
            messages = consumer.consume(min(left, 10_000), 30)
            errors = [message.error() for message in messages if message.error() is not None]
            if errors or not messages:
                raise Failed(f"{cluster.name}: {left} records of {topic} were not read: {errors[:1]}")
            left -= len(messages)
        return {"mb_per_s": count * size / (1 << 20) / (time.monotonic() - begin), "cpu_s": cluster.cpu_s() - before}
    finally:
        consumer.close()


def measure(clusters: list[DataCluster], jars: str, megabytes: int, sizes: list[int], rounds: int) -> list[dict[str, Any]]:
    """All cases on all clusters, in turn."""
    results = []
    for size in sizes:
        count = megabytes * (1 << 20) // size
        for cluster in clusters:
            for acks in ACKS:
                data_clusters.create_topic(cluster.addresses, f"perf-{size}-{acks}", PARTITIONS, BROKERS, data_clusters.TOPIC_CONFIGS)
            data_clusters.create_topic(cluster.addresses, f"read-{size}", PARTITIONS, BROKERS, {"retention.ms": "-1"})
            produce(cluster, jars, f"read-{size}", count, size, "all")
        for number in range(rounds):
            turn = clusters if number % 2 == 0 else clusters[::-1]
            for case in (*[f"produce {size} B, acks={acks}" for acks in ACKS], f"consume {size} B"):
                for cluster in turn:
                    results.append({"target": cluster.name, "round": number, "case": case, **_run(cluster, jars, case, count, size)})
                    note(f"{results[-1]}")
    return results


def _run(cluster: DataCluster, jars: str, case: str, count: int, size: int) -> dict[str, Any]:
    """One run of a case, after a short one."""
    if case.startswith("consume"):
        consume(cluster, f"read-{size}", count // 20, size)
        got = consume(cluster, f"read-{size}", count, size)
    else:
        acks = case.rpartition("=")[2]
        topic = f"perf-{size}-{acks}"
        produce(cluster, jars, topic, count // 20, size, acks)
        got = produce(cluster, jars, topic, count, size, acks)
    return {"rss_mb": cluster.rss_mb(), **got}


def table(results: list[dict[str, Any]], targets: list[str]) -> list[str]:
    """Lines to print: a line for each case; the ratios of rate and of CPU are those of the first target to the second."""
    columns = "".join(f" {name + ' MB/s':>12s} {'ms':>8s} {'cpu s':>7s}" for name in targets)
    lines = [f"{'case':24s}{columns} {'ratio':>6s} {'cpu':>6s}"]
    for case in dict.fromkeys(result["case"] for result in results):
        runs = {name: [result for result in results if (result["target"], result["case"]) == (name, case)] for name in targets}
        line = f"{case:24s}"
        for name in targets:
            rate, cpu_s = (statistics.median(run[column] for run in runs[name]) for column in ("mb_per_s", "cpu_s"))
            latencies = [run["latency_ms"] for run in runs[name] if "latency_ms" in run]
            line += f" {rate:12.1f} {f'{statistics.median(latencies):.1f}' if latencies else '-':>8s} {cpu_s:7.2f}"
        pairs = list(zip(runs[targets[0]], runs[targets[1]], strict=True))
        for column in ("mb_per_s", "cpu_s"):
            line += f" {statistics.median(one[column] / max(other[column], 0.01) for one, other in pairs):6.2f}"
        lines.append(line)
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka-jars", required=True, help="a folder with all jars of Kafka 3.9")
    parser.add_argument("--megabytes", type=int, default=200, help="of values in each case")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a record's value")
    parser.add_argument("--other", help="run this klamm command too, instead of Apache Kafka")
    parser.add_argument("--disk", action="store_true", help="klamm keeps its records in files, as Apache Kafka does")
    parser.add_argument("--processes", action="store_true", help="each broker of klamm is a process of its own")
    parser.add_argument("--json", help="write all results here")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        more = SETTINGS + (("--processes",) if options.processes else ())

        def serve_arguments(name: str) -> tuple[str, ...]:
            return (*more, "--data-dir", str(folder / name)) if options.disk else more

        clusters = [data_clusters.start_klamm(stack, folder, BROKERS, arguments=serve_arguments("klamm"))]
        if options.other:
            clusters.append(data_clusters.start_klamm(stack, folder, BROKERS, options.other, serve_arguments("other")))
            clusters[-1].name = "other"
        else:
            clusters.append(data_clusters.start_kafka(stack, folder, BROKERS, options.kafka_jars))
        results = measure(clusters, options.kafka_jars, options.megabytes, options.sizes, options.rounds)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results, [cluster.name for cluster in clusters])))


if __name__ == "__main__":
    main()
