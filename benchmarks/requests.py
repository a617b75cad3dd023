"""Requests a second: klamm beside librdkafka's mock cluster, in one run, by the same compiled load generator.

    python -m klamm.benchmarks.requests [--brokers 1] [--seconds 2] [--rounds 5] [--json FILE] [--other KLAMM]

With `--other` the second one is another installation of klamm (the path of its command): the same commit with and without a change.

Each case (API, connections, requests in flight on each) is run on both in turn, round after round, the order swapped every round, so that
whatever else the machine does hits both alike. CPUs are kept from sleeping, unless `--let-sleep` is given. The table shows medians
over the rounds, and the median of the ratios of neighbouring runs; `cpu us` is server CPU a request, which bears a busy machine best.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
from typing import Any

from klamm.benchmarks.processes import Awake, Failed, Process, compiled, klamm, note

TOPIC = "bench"
CASES = [(api, connections, depth) for api in ("ApiVersions", "Metadata") for connections in (1, 8) for depth in (1, 16)]
AIMS = {1: 0.9, 16: 4.0}
"""Least ratio to the mock by requests in flight."""


def frame(api: str) -> bytes:
    """A small request: ApiVersions v2 (the mock has no newer one and would answer with a short error), or Metadata v12 of one topic."""
    if api == "ApiVersions":
        return struct.pack(">hhih4s", 18, 2, 0, 4, b"load")
    name = bytes([len(TOPIC) + 1]) + TOPIC.encode()
    return struct.pack(">hhih4sx", 3, 12, 0, 4, b"load") + b"\x02" + bytes(16) + name + b"\0" + b"\0\0\0"


def load(target: str, api: str, connections: int, depth: int, seconds: float, warm_up: float) -> dict[str, float]:
    """One run of the load generator."""
    command = [compiled("load/load.c"), target, str(connections), str(depth), str(seconds), str(warm_up), frame(api).hex()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{api}, {connections} x {depth}: {done.stderr.strip()}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measure(targets: dict[str, tuple[Process, str]], rounds: int, seconds: float, warm_up: float) -> list[dict[str, Any]]:
    """All cases on all targets, `rounds` times, interleaved."""
    results = []
    for number in range(rounds):
        note(f"round {number + 1} of {rounds}")
        order = list(targets) if number % 2 == 0 else list(reversed(targets))
        for api, connections, depth in CASES:
            for name in order:
                process, address = targets[name]
                cpu = process.cpu_s(descendants=False)
                got = load(address, api, connections, depth, seconds, warm_up)
                got["cpu_us"] = (process.cpu_s(descendants=False) - cpu) / got["all_requests"] * 1e6
                results.append({"target": name, "round": number, "api": api, "connections": connections, "depth": depth, **got})
    return results


def table(results: list[dict[str, Any]], targets: list[str]) -> list[str]:
    """Lines to print: one for each case; the ratio is that of the first target to the second."""
    lines = [
        f"{'request':12s} {'conn':>4s} {'depth':>5s}"
        + "".join(f" {name + ' req/s':>14s} {'p50 us':>8s} {'p99 us':>8s} {'cpu us':>7s} {'bytes':>6s}" for name in targets)
        + f" {'ratio':>6s} {'aim':>5s}"
    ]
    for case in CASES:
        runs = {n: [r for r in results if (r["target"], r["api"], r["connections"], r["depth"]) == (n, *case)] for n in targets}
        line = f"{case[0]:12s} {case[1]:4d} {case[2]:5d}"
        for name in targets:
            columns = ("requests_per_s", "p50_us", "p99_us", "cpu_us", "answer_bytes")
            rate, p50, p99, cpu, size = (statistics.median(r[column] for r in runs[name]) for column in columns)
            line += f" {rate:14,.0f} {p50:8.1f} {p99:8.1f} {cpu:7.2f} {size:6.0f}"
        ratios = [a["requests_per_s"] / b["requests_per_s"] for a, b in zip(runs[targets[0]], runs[targets[1]], strict=True)]
        lines.append(f"{line} {statistics.median(ratios):6.2f} {AIMS[case[2]]:5.1f}")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1, help="brokers of each cluster; connections are dealt to them in turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one run, besides the warm-up")
    parser.add_argument("--warm-up", type=float, default=0.3)
    parser.add_argument("--other", help="compare with this klamm command instead of the mock cluster")
    parser.add_argument("--let-sleep", action="store_true", help="let idle CPUs fall asleep")
    parser.add_argument("--json", help="write all runs here")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        topic = f"{TOPIC}:4:{min(3, options.brokers)}"
        serve = ["serve", "--brokers", str(options.brokers), "--port", "0", "--json", "--topic", topic]
        commands = {"klamm": klamm(*serve)}
        if options.other:
            commands["other"] = [options.other, *serve]
        else:
            commands["mock"] = [sys.executable, "-m", "klamm.benchmarks.mock_cluster", str(options.brokers), TOPIC]
        targets = {}
        for name, command in commands.items():
            process = Process(command, folder / f"{name}.log")
            stack.callback(process.stop)
            targets[name] = process, process.answer()["bootstrap_servers"]
        if not options.let_sleep:
            stack.enter_context(Awake())
        results = measure(targets, options.rounds, options.seconds, options.warm_up)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    print("\n".join(table(results, list(targets))))


if __name__ == "__main__":
    main()
