"""What `klamm proxy` costs: a small request, Apache Kafka's perf tools, and memory, straight to a broker and through the proxy.

    python -m klamm.benchmarks.proxy [--kafka-jars DIR] [--megabytes 200] [--rounds 3] [--frames 1000000] [--upstream HOST:PORT]
        [--json FILE]

One broker of klamm (or the cluster of `--upstream`), one proxy without and one with a journal, each in a process of its own, on the same
CPUs. Small requests (ApiVersions) are sent one after the other by one client; then `--frames` requests and responses pass each proxy, many
at a time. The table shows medians of the rounds; `cpu s` is that of the proxy. The perf tools run only with jars.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import socket
import statistics
import tempfile
import time
from typing import Any

from klamm.benchmarks import perf_tools
from klamm.benchmarks.processes import Failed, Process, klamm, note
from klamm.protocol import messages

REQUEST = messages.encode_request(18, 0, 1, "load", b"")
SMALL = 5_000
DEPTH = 200
"""Requests that are under way at once while frames are counted."""
RECORD = 1024
_FETCH_MB_PER_S = 8
"""The column of ConsumerPerformance."""


class Way:
    """A way to the broker: straight, or through a proxy."""

    def __init__(self, name: str, bootstrap_servers: str, proxy: Process | None) -> None:
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.proxy = proxy

    def connect(self) -> socket.socket:
        """A connection this way."""
        host, _, port = self.bootstrap_servers.rpartition(":")
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


def consume(way: Way, jars: str, count: int) -> dict[str, Any]:
    """ConsumerPerformance reads so many records, in a group of its own; the time of the rebalance does not count."""
    before = way.cpu_s()
    arguments = ["--bootstrap-server", way.bootstrap_servers, "--topic", "read", "--messages", str(count), "--hide-header"]
    output = perf_tools.run(jars, "org.apache.kafka.tools.ConsumerPerformance", *arguments)
    return {"mb_per_s": float(output.strip().splitlines()[-1].split(", ")[_FETCH_MB_PER_S]), "cpu_s": way.cpu_s() - before}


def run_tools(way: Way, jars: str, count: int) -> dict[str, Any]:
    """Kafka's tools this way, with so many records."""
    cases = {f"acks={acks}": perf_tools.produce(way, jars, "perf", count, RECORD, acks) for acks in perf_tools.ACKS}
    cases["consume"] = consume(way, jars, count)
    return {f"{case} {column}": found[column] for case, found in cases.items() for column in ("mb_per_s", "cpu_s")}


def measure(ways: list[Way], jars: str | None, megabytes: int, rounds: int, frames: int) -> list[dict[str, Any]]:
    """All cases, each way in turn."""
    results = []
    if jars is not None:
        perf_tools.produce(ways[0], jars, "read", megabytes * 1024, RECORD, "1")
    for number in range(rounds):
        for way in ways if number % 2 == 0 else ways[::-1]:
            results.append({"way": way.name, "small request us": small_request(way)})
            if jars is not None:
                results.append({"way": way.name, **run_tools(way, jars, megabytes * 1024)})
                note(f"{results[-1]}")
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
    parser.add_argument("--kafka-jars", help="a folder with all jars of Kafka 3.9, for its perf tools")
    parser.add_argument("--megabytes", type=int, default=200, help="of values in each run of a perf tool")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=1_000_000, help="that pass each proxy while its memory is measured")
    parser.add_argument("--upstream", help="a cluster that runs already")
    parser.add_argument("--json", help="write all results here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        bootstrap = options.upstream
        if bootstrap is None:
            topics = ("--topic", "perf:3:1", "--topic", "read:3:1")
            served = Process(klamm("serve", "--brokers", "1", "--port", "0", "--json", *topics, *perf_tools.SETTINGS), folder / "serve.log")
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
