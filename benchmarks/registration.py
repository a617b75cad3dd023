"""What brokers that register by request cost the controller: CPU while they only fetch, and while topics are created.

    python -m klamm.benchmarks.registration [--brokers 1000] [--interval-ms 2000] [--seconds 20] [--topics 10] [--json FILE]

One `klamm broker` is the controller, on a ZooKeeper of its own. Another process plays all brokers (`registered_brokers.py`): each
registers over a connection of its own and fetches the metadata log, which waits for `--interval-ms` when there is nothing new. CPU is
that of the controller's process alone, as a share of one core. Aim: 1,000 brokers that fetch every two seconds cost under 20 % of a core.
A broker that was fenced although it fetched ends the run with an error, and so does an answer with an error code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
import tempfile
import time
from typing import Any

from klamm.benchmarks.controlled_cluster import Session
from klamm.benchmarks.data_clusters import ask, create_topic
from klamm.benchmarks.processes import Failed, Process, free_port, klamm, note
from klamm.protocol import messages
from klamm.zk.embedded.server import EmbeddedZooKeeper

FIRST = 1001
ONLINE = "2"


class Registration:
    """One controller and the brokers that are registered with it."""

    def __init__(self, stack: contextlib.ExitStack, folder: pathlib.Path, options: argparse.Namespace) -> None:
        self.options = options
        self.results: list[dict[str, Any]] = []
        zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        self.zookeeper = zookeeper.start()
        stack.callback(zookeeper.stop)
        self.address = f"127.0.0.1:{free_port()}"
        file = folder / "server.properties"
        settings = {
            "broker.id": 0,
            "listeners": f"PLAINTEXT://{self.address}",
            "zookeeper.connect": self.zookeeper,
            "log.dirs": folder / "data",
            "registerbroker.enable": "true",
            "broker.heartbeat.interval.ms": options.interval_ms,
            "broker.session.timeout.ms": 9 * options.interval_ms // 2,
            "auto.leader.rebalance.enable": "false",
            "controlled.shutdown.enable": "false",
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.server = Process(klamm("broker", str(file)), folder / "broker.log")
        stack.callback(self.server.stop, gently=False)
        self._wait_for_controller()
        arguments = [self.address, str(FIRST), str(options.brokers), str(options.interval_ms)]
        self.brokers = Process([sys.executable, "-m", "klamm.benchmarks.registered_brokers", *arguments], folder / "brokers.log")
        stack.callback(self.brokers.stop, gently=False)

    def _wait_for_controller(self) -> None:
        session = Session(self.zookeeper, "")
        end = time.monotonic() + 60
        try:
            while session.client.exists("/controller") is None or not self._serves():
                if time.monotonic() > end or not self.server.alive():
                    raise Failed(f"the broker is no controller: {self.server.tail()}")
                time.sleep(0.05)
        finally:
            session.close()

    def _serves(self) -> bool:
        try:
            keys = {api.api_key for api in ask(self.address, messages.ApiVersionsRequest(), 0).api_keys}
        except (OSError, Failed):
            return False
        if not {100, 101} <= keys:
            raise Failed("the controller does not serve RegisterBroker")
        return True

    def stats(self) -> dict[str, Any]:
        """What the brokers have seen so far."""
        self.brokers.say("stats")
        answer: dict[str, Any] = self.brokers.answer()
        return answer

    def register_all(self) -> None:
        """Until all brokers are online."""
        began, cpu = time.monotonic(), self.server.running_s()
        while (states := self.stats())["states"].get(ONLINE, 0) < self.options.brokers:
            if time.monotonic() > began + 300 or not self.server.alive():
                raise Failed(f"not all brokers are online: {states}; {self.server.tail()}")
            time.sleep(0.2)
        self._keep("all online", time.monotonic() - began, self.server.running_s() - cpu, states, {})

    def idle(self) -> None:
        """Nothing happens but fetches."""
        self._measured("idle", lambda: time.sleep(self.options.seconds))

    def create(self) -> None:
        """Topics of one partition on three of the brokers, one each second."""

        def act() -> None:
            for number in range(self.options.topics):
                at = time.monotonic() + 1
                create_topic([self.address], f"topic-{number}", 1, min(3, self.options.brokers), {})
                time.sleep(max(0.0, at - time.monotonic()))

        self._measured("a topic each second", act)

    def _measured(self, scenario: str, act: Any) -> None:
        before, began, cpu = self.stats()["counts"], time.monotonic(), self.server.running_s()
        act()
        wall, cpu = time.monotonic() - began, self.server.running_s() - cpu
        after = self.stats()
        wrong = {name: count for name, count in after["counts"].items() if name.startswith(("error", "fenced", "connections"))}
        if wrong or after["states"] != {ONLINE: self.options.brokers}:
            raise Failed(f"{scenario}: {wrong}, states {after['states']}")
        self._keep(scenario, wall, cpu, after, before)

    def _keep(self, scenario: str, wall: float, cpu: float, stats: dict[str, Any], before: dict[str, int]) -> None:
        """`before` has the counts before it."""
        counted = {name: count - before.get(name, 0) for name, count in stats["counts"].items()}
        self.results.append({
            "scenario": scenario, "wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "cpu_percent": round(100 * cpu / wall, 1),
            "fetches_each_s": round(counted.get("fetches", 0) / wall), "longest_wait_s": stats["longest_wait_s"],
            "requests": {name: count for name, count in counted.items() if name.startswith("requests")},
        })
        note(str(self.results[-1]))


def main(arguments: list[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--interval-ms", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long nothing happens")
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--json", help="write all results here")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        run = Registration(stack, folder, options)
        run.register_all()
        run.idle()
        run.create()
        memory = run.server.rss_mb(descendants=False)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(run.results, indent=1))
    for result in run.results:
        print(f"{result['scenario']:22s} {result['wall_s']:8.2f} s {result['cpu_s']:8.2f} s CPU {result['cpu_percent']:6.1f} % of a core")
    print(f"memory of the controller {memory:.0f} MB")


if __name__ == "__main__":
    main()
