"""What `klamm proxy` costs: a small request, Apache Kafka's ProducerPerformance, and memory, straight to a broker and through the proxy.

    python -m klamm.benchmarks.proxy [--kafka-jars DIR] [--megabytes 200] [--rounds 3] [--frames 1000000] [--json FILE]

One broker of klamm, one proxy without and one with a journal, each in a process of its own, on the same CPUs. Small requests (ApiVersions)
are sent one after the other by one client; then `--frames` requests and responses pass each proxy, many at a time. The table shows medians
of the rounds; `cpu s` is that of the proxy. ProducerPerformance runs only with jars.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import re
import socket
import statistics
import subprocess
import tempfile
import time
from typing import Any

from klamm.benchmarks.processes import Failed, Process, klamm
from klamm.protocol import messages

REQUEST = messages.encode_request(18, 0, 1, "load", b"")
SMALL = 5_000
DEPTH = 200
"""Requests that are under way at once while frames are counted."""
_RATE = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency")


class Way:
    """A way to the broker: straight, or through a proxy."""

    def __init__(self, name: str, bootstrap: str, proxy: Process | None) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.proxy = proxy

    def connect(self) -> socket.socket:
        """A connection this way."""
        host, _, port = self.bootstrap.rpartition(":")
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cpu_s(self) -> float:
        """CPU seconds of the proxy so far."""
        return 0.0 if self.proxy is None else self.proxy.cpu_s()

    def rss_mb(self) -> float:
        """Resident memory of the proxy."""
        return 0.0 if self.proxy is None else self.proxy.rss_mb()


def small_request(way: Way) -> float:
    """The median time of a small request, in microseconds."""
    times = []
    with way.connect() as connection:
        size = _size(connection)
        for _ in range(SMALL):
            begun = time.perf_counter()
            connection.sendall(REQUEST)
            _read(connection, size)
            times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e6


def pass_frames(way: Way, frames: int) -> float:
    """Send so many frames this way, requests and responses; returns frames per second."""
    with way.connect() as connection:
        size = _size(connection)
        begun = time.perf_counter()
        for _ in range(frames // 2 // DEPTH):
            connection.sendall(REQUEST * DEPTH)
            _read(connection, size * DEPTH)
        return frames / (time.perf_counter() - begun)


def _size(connection: socket.socket) -> int:
    """The size of a response."""
    connection.sendall(REQUEST)
    size = 4 + int.from_bytes(_read(connection, 4), "big")
    _read(connection, size - 4)
    return size


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise Failed("the connection was closed")
        data += piece
    return bytes(data)


def produce(way: Way, jars: str, megabytes: int) -> tuple[float, float]:
    """MB/s and average latency in ms of ProducerPerformance with records of 1 KiB."""
    count = megabytes * 1024
    arguments = ["--topic", "perf", "--num-records", str(count), "--record-size", "1024", "--throughput", "-1", "--producer-props"]
    command = ["java", "-Xmx512m", "-cp", f"{jars}/*", "org.apache.kafka.tools.ProducerPerformance", *arguments]
    done = subprocess.run([*command, f"bootstrap.servers={way.bootstrap}"], capture_output=True, text=True, check=True, timeout=600)
    found = _RATE.search(done.stdout.strip().splitlines()[-1])
    if found is None:
        raise Failed(f"ProducerPerformance said {done.stdout[-300:]}")
    return float(found[2]), float(found[3])


def measure(ways: list[Way], jars: str | None, megabytes: int, rounds: int, frames: int) -> list[dict[str, Any]]:
    """All cases, each way in turn."""
    results = []
    for number in range(rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            results.append({"way": way.name, "small request us": small_request(way)})
            if jars is not None:
                before = way.cpu_s()
                rate, latency_ms = produce(way, jars, megabytes)
                results.append({"way": way.name, "produce MB/s": rate, "produce ms": latency_ms, "produce cpu s": way.cpu_s() - before})
    for way in ways[1:]:
        pass_frames(way, frames // 10)
        before_mb, before_s = way.rss_mb(), way.cpu_s()
        rate = pass_frames(way, frames)
        grown = {"frames/s": rate, "rss MB before": before_mb, "rss MB after": way.rss_mb(), "frames cpu s": way.cpu_s() - before_s}
        results.append({"way": way.name, **grown})
    return results


def table(results: list[dict[str, Any]], ways: list[str]) -> list[str]:
    """Lines to print."""
    lines = [f"{'':20s}" + "".join(f"{name:>20s}" for name in ways)]
    for case in dict.fromkeys(case for result in results for case in result if case != "way"):
        values = [[result[case] for result in results if result["way"] == name and case in result] for name in ways]
        lines.append(f"{case:20s}" + "".join(f"{statistics.median(found) if found else float('nan'):20.1f}" for found in values))
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka-jars", help="a folder with all jars of Kafka 3.9, for ProducerPerformance")
    parser.add_argument("--megabytes", type=int, default=200, help="of values in each run of ProducerPerformance")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=1_000_000, help="that pass each proxy while its memory is measured")
    parser.add_argument("--json", help="write all results here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        served = Process(klamm("serve", "--brokers", "1", "--port", "0", "--json", "--topic", "perf:3:1"), folder / "serve.log")
        stack.callback(served.stop)
        bootstrap = served.answer()["bootstrap_servers"]
        ways = [Way("straight", bootstrap, None)]
        for title, more in (("proxy", []), ("proxy and journal", ["--journal", str(folder / "lake")])):
            proxy = Process(klamm("proxy", "--upstream", bootstrap, "--json", *more), folder / f"{title}.log")
            stack.callback(proxy.stop)
            ways.append(Way(title, proxy.answer()["bootstrap_servers"], proxy))
        results = measure(ways, options.kafka_jars, options.megabytes, options.rounds, options.frames)
        print(*table(results, [way.name for way in ways]), sep="\n")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
