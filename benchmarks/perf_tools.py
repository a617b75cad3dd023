"""Apache Kafka's own ProducerPerformance: three brokers of klamm against three of Apache Kafka, in one run.

    python -m klamm.benchmarks.perf_tools --kafka-jars DIR [--megabytes 200] [--disk] [--processes] [--json FILE]

Records of 100 bytes and of 1 KiB, acks 1 and all, a topic of six partitions with three replicas each. Both clusters run all the time, on
the same CPUs as the tool; each case is run on one and then on the other, after a run of a twentieth of its length. `cpu s` is that of the
brokers during the case. ConsumerPerformance needs consumer groups, which klamm does not have yet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import re
import subprocess
import tempfile
from typing import Any

from klamm.benchmarks import data_clusters
from klamm.benchmarks.data_clusters import DataCluster
from klamm.benchmarks.processes import Failed, note

BROKERS = 3
PARTITIONS = 6
SIZES = (100, 1024)
ACKS = ("1", "all")
_RATE = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency")


def run(jars: str, name: str, *arguments: str) -> str:
    """One run of a tool of Apache Kafka; its output."""
    command = ["java", "-Xmx512m", "-XX:+UseG1GC", "-cp", f"{jars}/*", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise Failed(f"{name}: {done.stderr[-600:]}{done.stdout[-600:]}")
    return done.stdout


def produce(cluster: DataCluster, jars: str, topic: str, count: int, size: int, acks: str) -> dict[str, Any]:
    """ProducerPerformance as fast as it can."""
    properties = [f"bootstrap.servers={cluster.bootstrap_servers}", f"acks={acks}"]
    before = cluster.cpu_s()
    arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1", "--producer-props"]
    output = run(jars, "org.apache.kafka.tools.ProducerPerformance", *arguments, *properties)
    found = _RATE.search(output.strip().splitlines()[-1])
    if found is None:
        raise Failed(f"ProducerPerformance said {output[-300:]}")
    return {"mb_per_s": float(found[2]), "latency_ms": float(found[3]), "cpu_s": cluster.cpu_s() - before}


def measure(clusters: list[DataCluster], jars: str, megabytes: int) -> list[dict[str, Any]]:
    """All cases on all clusters, in turn."""
    results = []
    for size in SIZES:
        count = megabytes * (1 << 20) // size
        for acks in ACKS:
            for cluster in clusters:
                topic = f"perf-{size}-{acks}"
                data_clusters.create_topic(cluster.addresses, topic, PARTITIONS, BROKERS, data_clusters.TOPIC_CONFIGS)
                produce(cluster, jars, topic, count // 20, size, acks)
                got = produce(cluster, jars, topic, count, size, acks)
                results.append({"target": cluster.name, "case": f"produce {size} B, acks={acks}", "rss_mb": cluster.rss_mb(), **got})
                note(f"{results[-1]}")
    return results


def table(results: list[dict[str, Any]], targets: list[str]) -> list[str]:
    """Lines to print: a line for each case; the ratio is klamm's rate divided by that of Apache Kafka."""
    lines = [f"{'case':24s}" + "".join(f" {name + ' MB/s':>12s} {'ms':>8s} {'cpu s':>7s}" for name in targets) + f" {'ratio':>6s}"]
    for case in dict.fromkeys(result["case"] for result in results):
        runs = {result["target"]: result for result in results if result["case"] == case}
        line = f"{case:24s}" + "".join(
            f" {runs[n]['mb_per_s']:12.1f} {runs[n]['latency_ms']:8.1f} {runs[n]['cpu_s']:7.1f}" for n in targets
        )
        lines.append(line + (f" {runs[targets[0]]['mb_per_s'] / runs[targets[1]]['mb_per_s']:6.2f}" if len(targets) > 1 else ""))
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka-jars", required=True, help="a folder with all jars of Kafka 3.9")
    parser.add_argument("--megabytes", type=int, default=200, help="of values in each case")
    parser.add_argument("--disk", action="store_true", help="klamm keeps its records in files, as Apache Kafka does")
    parser.add_argument("--processes", action="store_true", help="each broker of klamm is a process of its own")
    parser.add_argument("--json", help="write all results here")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        more: tuple[str, ...] = ("--data-dir", str(folder / "klamm")) if options.disk else ()
        if options.processes:
            more += ("--processes",)
        clusters = [
            data_clusters.start_klamm(stack, folder, BROKERS, arguments=more),
            data_clusters.start_kafka(stack, folder, BROKERS, options.kafka_jars),
        ]
        results = measure(clusters, options.kafka_jars, options.megabytes)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results, [cluster.name for cluster in clusters])))


if __name__ == "__main__":
    main()
