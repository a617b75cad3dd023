"""From process start to ready, and memory: `klamm serve` with its own ZooKeeper, and on one that runs already.

    python -m klamm.benchmarks.startup [--brokers 3] [--rounds 5] [--json FILE]

Ready is the line that `klamm serve` prints when every broker is registered, a controller is elected and every broker's metadata shows all
of them. The class cache of the Java in use, which the first start of all builds in the background, is there before anything is counted.
Stopping is SIGTERM to exit. The last line is `klamm.Cluster` in a process that runs, on the ZooKeeper that runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

import klamm
from klamm.benchmarks.processes import Failed, Process, note
from klamm.benchmarks.processes import klamm as command
from klamm.zk.embedded.server import EmbeddedZooKeeper

AIM_S = 1.5
"""For three brokers with an embedded ZooKeeper, warm, on two cores."""
INSIDE_AIM_S = 0.06
"""For three brokers in a process that runs."""


def once(name: str, arguments: list[str], folder: pathlib.Path) -> dict[str, Any]:
    """Start, measure, stop."""
    process = Process(command("serve", "--port", "0", "--json", *arguments), folder / "serve.log")
    try:
        ready = process.answer()
        took = time.monotonic() - process.started
        cpu = process.cpu_s()
        own, all_of_it = process.rss_mb(descendants=False), process.rss_mb()
        if not ready["brokers"] or ready["controller_id"] == -1:
            raise Failed(f"not ready: {ready}")
    finally:
        began = time.monotonic()
        code = process.stop()
        stopped = time.monotonic() - began
    if code != 0:
        raise Failed(f"klamm serve ended with {code}: {process.tail()}")
    return {"case": name, "ready_s": took, "cpu_s": cpu, "klamm_mb": own, "with_zookeeper_mb": all_of_it, "stop_s": stopped}


def inside(address: str, brokers: int, rounds: int) -> list[float]:
    """Seconds from `with` to ready, once everything is imported."""
    took = []
    for number in range(rounds + 1):
        began = time.monotonic()
        with klamm.Cluster(brokers, zookeeper=f"{address}/inside-{number}"):
            took.append(time.monotonic() - began)
    return took[1:]


def bytecode() -> str:
    """Which case is measured: without cached bytecode each process compiles all of Klamm before it does anything."""
    return "compiled by each process: PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else "cached"


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write all rounds here")
    options = parser.parse_args(arguments)
    results: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        zookeeper = EmbeddedZooKeeper()
        address = zookeeper.start()
        stack.callback(zookeeper.stop)
        if not zookeeper.wait_class_archive(180):
            raise SystemExit("the class cache was not built in time")
        brokers = ["--brokers", str(options.brokers)]
        once("warm-up", brokers, folder)
        for number in range(options.rounds):
            results.append(once("embedded ZooKeeper", brokers, folder))
            results.append(once("ZooKeeper that runs", [*brokers, "--zookeeper", f"{address}/start-{number}"], folder))
            note(" | ".join(f"{r['case']}: ready {r['ready_s']:.2f} s" for r in results[-2:]))
        second = inside(address, options.brokers, 20)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    title = f"klamm serve --brokers {options.brokers}"
    print(f"{title:26s} {'ready s':>8s} {'best':>6s} {'cpu s':>6s} {'klamm MB':>9s} {'with ZK':>8s} {'stop s':>7s}")
    for case in ("embedded ZooKeeper", "ZooKeeper that runs"):
        runs = [r for r in results if r["case"] == case]
        ready, cpu, own, total, stop = (
            statistics.median(r[k] for r in runs) for k in ("ready_s", "cpu_s", "klamm_mb", "with_zookeeper_mb", "stop_s")
        )
        print(f"{case:26s} {ready:8.2f} {min(r['ready_s'] for r in runs):6.2f} {cpu:6.2f} {own:9.1f} {total:8.1f} {stop:7.2f}")
    print(f"{'klamm.Cluster':26s} {statistics.median(second):8.3f} {min(second):6.3f}")
    print(f"bytecode: {bytecode()}")
    print(f"aim: ready in under {AIM_S} s, klamm.Cluster in {INSIDE_AIM_S} s")


if __name__ == "__main__":
    main()
