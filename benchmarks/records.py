"""Produce and Fetch requests a second: klamm beside librdkafka's mock cluster and Apache Kafka, in one run, by one load generator.

    python -m klamm.benchmarks.records [--kafka-jars DIR] [--seconds 2] [--rounds 5] [--json FILE] [--other KLAMM]

A Produce has one record of --bytes bytes in a batch of its own, acks=1; a Fetch reads one such batch. Frames are built once and are the
same for all. klamm and Apache Kafka check the CRC of each batch, the mock does not. As in `requests`, each case is run on all clusters in
turn, round after round, the order turned every round; the table shows medians, and medians of the ratios of neighbouring runs. Before and
after a run one request is sent whose response is decoded, and every Produce must have taken an offset of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import tempfile
from typing import Any

from klamm.benchmarks import data_clusters
from klamm.benchmarks.data_clusters import DataCluster
from klamm.benchmarks.processes import Awake, Failed, compiled, note
from klamm.protocol import messages

TOPIC = "bench"
PARTITIONS = 4
"""As many as the mock makes."""
PREFILLED = 1
"""The partition that is fetched from; the others get records."""
FETCHED_FROM = 50
"""A Fetch reads the first of the last so many batches."""
CASES = [(api, connections, depth) for api in ("Produce", "Fetch") for connections in (1, 8) for depth in (1, 16)]
PRODUCE_VERSION, FETCH_VERSION = 7, 11
AIMS = {1: 0.5, 16: 0.7}
"""Least ratio of Produce to the mock, by requests in flight."""


def produce(batch: bytes, partition: int = 0, acks: int = 1) -> Any:
    """A Produce request for one partition."""
    asked = messages.ProduceRequest
    data = asked.PartitionProduceData(index=partition, records=batch)
    return asked(acks=acks, timeout_ms=30000, topic_data=[asked.TopicProduceData(name=TOPIC, partition_data=[data])])


def fetch(offset: int, max_bytes: int) -> Any:
    """A Fetch request without a session for one partition, which does not wait."""
    asked = messages.FetchRequest
    part = asked.FetchPartition(partition=PREFILLED, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [asked.FetchTopic(topic=TOPIC, partitions=[part])]
    return asked(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, session_id=0, session_epoch=-1, topics=topics)


class Bench:
    """One cluster with its frames."""

    def __init__(self, cluster: DataCluster, size: int) -> None:
        self.cluster = cluster
        self.batch = data_clusters.record_batch(bytes(range(256)) * (size // 256) + bytes(size % 256))
        self.fetched = len(self.batch)

    def _request(self, api: str) -> bytes:
        """The frame that is sent again and again. What it fetches is new: a cluster in memory may have removed what is older."""
        if api == "Produce":
            return self._frame(0, PRODUCE_VERSION, produce(self.batch))
        first, *_ = [self.offset(PREFILLED) for _ in range(FETCHED_FROM)]
        request = fetch(first, self.fetched)
        row = data_clusters.ask(self.cluster.addresses[0], request, FETCH_VERSION).responses[0].partitions[0]
        if row.error_code or len(row.records) != self.fetched:
            raise Failed(f"{self.cluster.name}: Fetch got error {row.error_code} and {len(row.records)} bytes instead of {self.fetched}")
        return self._frame(1, FETCH_VERSION, request)

    def _frame(self, key: int, version: int, request: Any) -> bytes:
        return messages.encode_request(key, version, 0, "load", messages.encode(request, version))[4:]

    def offset(self, partition: int = 0) -> int:
        """Produce once; the offset it got."""
        response = data_clusters.ask(self.cluster.addresses[0], produce(self.batch, partition), PRODUCE_VERSION)
        row = response.responses[0].partition_responses[0]
        if row.error_code:
            raise Failed(f"{self.cluster.name}: Produce got error {row.error_code}")
        return int(row.base_offset)

    def run(self, api: str, connections: int, depth: int, seconds: float, warm_up: float) -> dict[str, float]:
        """One run of the load generator."""
        frame = self._request(api)
        before, cpu = self.offset(), self.cluster.cpu_s()
        command = [compiled("load/load.c"), self.cluster.addresses[0], str(connections), str(depth), str(seconds), str(warm_up)]
        done = subprocess.run([*command, frame.hex()], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{self.cluster.name}, {api}, {connections} x {depth}: {done.stderr.strip()}")
        result: dict[str, float] = json.loads(done.stdout)
        result["cpu_us"] = (self.cluster.cpu_s() - cpu) / result["all_requests"] * 1e6
        taken = self.offset() - before - 1
        if api == "Produce" and taken < result["all_requests"]:
            raise Failed(f"{self.cluster.name}: {taken} offsets for {result['all_requests']} responses")
        return result


def measure(benches: list[Bench], rounds: int, seconds: float, warm_up: float) -> list[dict[str, Any]]:
    """All cases on all clusters, `rounds` times, interleaved."""
    results = []
    for number in range(rounds):
        note(f"round {number + 1} of {rounds}")
        for case in CASES:
            for bench in benches if number % 2 == 0 else benches[::-1]:
                got = bench.run(*case, seconds, warm_up)
                results.append({"target": bench.cluster.name, "round": number, "case": case, "rss_mb": bench.cluster.rss_mb(), **got})
    return results


def table(results: list[dict[str, Any]], targets: list[str]) -> list[str]:
    """Lines to print: one for each case; the ratios are those of the first target to the others."""
    lines = [
        f"{'request':8s} {'conn':>4s} {'depth':>5s}"
        + "".join(f" {name + ' req/s':>13s} {'p50 us':>7s} {'p99 us':>7s} {'cpu us':>6s}" for name in targets)
        + "".join(f" {'/ ' + name:>8s}" for name in targets[1:])
        + f" {'aim':>5s}"
    ]
    for case in CASES:
        runs = {name: [r for r in results if (r["target"], r["case"]) == (name, case)] for name in targets}
        line = f"{case[0]:8s} {case[1]:4d} {case[2]:5d}"
        for name in targets:
            rate, p50, p99, cpu = (
                statistics.median(r[column] for r in runs[name]) for column in ("requests_per_s", "p50_us", "p99_us", "cpu_us")
            )
            line += f" {rate:13,.0f} {p50:7.1f} {p99:7.1f} {cpu:6.2f}"
        for name in targets[1:]:
            pairs = zip(runs[targets[0]], runs[name], strict=True)
            line += f" {statistics.median(a['requests_per_s'] / b['requests_per_s'] for a, b in pairs):8.2f}"
        lines.append(line + (f" {AIMS[case[2]]:5.1f}" if case[:2] == ("Produce", 8) else ""))
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1024, help="of a record's value")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one run, besides the warm-up")
    parser.add_argument("--warm-up", type=float, default=0.5)
    parser.add_argument("--kafka-jars", help="a folder with all jars of Kafka 3.9: run it too")
    parser.add_argument("--other", help="run this klamm command too, instead of the mock cluster")
    parser.add_argument("--disk", action="store_true", help="klamm keeps its records in files, as Apache Kafka does")
    parser.add_argument("--json", help="write all runs here")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        disk = ("--data-dir", str(folder / "klamm")) if options.disk else ()
        clusters = [data_clusters.start_klamm(stack, folder, 1, arguments=disk)]
        if options.other:
            clusters.append(data_clusters.start_klamm(stack, folder, 1, options.other))
            clusters[-1].name = "other"
        else:
            clusters.append(data_clusters.start_mock(stack, folder, 1, TOPIC))
        if options.kafka_jars:
            clusters.append(data_clusters.start_kafka(stack, folder, 1, options.kafka_jars))
        for cluster in clusters:
            if cluster.name != "mock":
                data_clusters.create_topic(cluster.addresses, TOPIC, PARTITIONS, 1, data_clusters.TOPIC_CONFIGS)
        stack.enter_context(Awake())
        benches = [Bench(cluster, options.bytes) for cluster in clusters]
        results = measure(benches, options.rounds, options.seconds, options.warm_up)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results, [cluster.name for cluster in clusters])))


if __name__ == "__main__":
    main()
