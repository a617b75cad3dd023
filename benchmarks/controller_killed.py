"""How long brokers acknowledge nothing after their controller was killed: those that register with it beside those of ZooKeeper's kind.

    python -m klamm.benchmarks.controller_killed [--brokers 100] [--registration controller|zookeeper] [--seconds 40]

All brokers run in this process, with a ZooKeeper of their own and the default time-outs. The topic has one partition with one replica on
each broker, and one idempotent producer with acks=all writes to all partitions but that of the controller. The controller is killed as by
kill -9: its ZooKeeper session lasts until it expires. The line says, in seconds: the longest time between two acknowledgements of one
partition, before the kill and after it; and how long the dead broker was in the metadata of another one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import threading
import time
from typing import Any

from confluent_kafka import Producer

from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.run import run

TOPIC = "t"
PAUSE_S = 0.25
"""Each partition gets a record this often."""
QUIET_S = 5.0
"""The producer writes for so long before the kill."""


class Writer:
    """Writes to partitions in turn until it is stopped, and keeps when each was acknowledged."""

    def __init__(self, bootstrap: str, partitions: list[int]) -> None:
        self.acknowledged: dict[int, list[float]] = {partition: [] for partition in partitions}
        self.failed = 0
        self.has_begun = threading.Event()
        """Each partition has acknowledged something."""
        config = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 120_000}
        self._producer = Producer(config | {"log_level": 0})
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            for partition in self.acknowledged:
                self._producer.produce(TOPIC, b"x", partition=partition, on_delivery=self._delivered)
            until = time.monotonic() + PAUSE_S
            while (left := until - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(30)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()].append(time.monotonic())
            if not self.has_begun.is_set() and all(self.acknowledged.values()):
                self.has_begun.set()
        else:
            self.failed += 1

    def longest_gap(self, begin: float, end: float) -> float:
        """The longest time without an acknowledgement of any one partition."""
        longest = 0.0
        for times in self.acknowledged.values():
            inside = [begin, *(at for at in times if begin < at < end), end]
            longest = max(longest, *(after - before for before, after in itertools.pairwise(inside)))
        return longest


async def measured(brokers: int, registration: str, seconds: float) -> dict[str, Any]:
    """One cluster from its start to its end."""
    config = {"registerbroker.enable": "true", "klamm.broker.registration": registration}
    cluster = LocalCluster(brokers, config=config, topics=[SeedTopic(TOPIC, brokers, 1)])
    await cluster.start()
    try:
        controller = cluster.controller_id
        leaders = {p: state.leader for p, state in cluster.brokers[0].metadata.topics[TOPIC].partitions.items()}
        writer = Writer(cluster.bootstrap_servers, sorted(p for p, leader in leaders.items() if leader != controller))
        try:
            await asyncio.to_thread(writer.has_begun.wait)
            began = time.monotonic()
            await asyncio.sleep(QUIET_S)
            killed = time.monotonic()
            await cluster.kill_broker(controller)
            other = next(node for node in cluster.brokers if node.id != controller)
            gone: float | None = None
            while time.monotonic() < killed + seconds:
                if gone is None and controller not in other.metadata.brokers:
                    gone = time.monotonic() - killed
                await asyncio.sleep(0.05)
            end = time.monotonic()
        finally:
            await asyncio.to_thread(writer.stop)
        return {
            "brokers": brokers, "registration": registration, "acknowledged": sum(map(len, writer.acknowledged.values())),
            "failed": writer.failed, "longest_gap_before_s": round(writer.longest_gap(began, killed), 2),
            "longest_gap_after_s": round(writer.longest_gap(killed, end), 2), "in_metadata_s": gone and round(gone, 1),
        }
    finally:
        await cluster.stop()


def main(arguments: list[str] | None = None) -> None:
    """Run and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--registration", choices=("controller", "zookeeper"), default="controller")
    parser.add_argument("--seconds", type=float, default=40)
    options = parser.parse_args(arguments)
    run(lambda: _print(options))


async def _print(options: argparse.Namespace) -> None:
    print(json.dumps(await measured(options.brokers, options.registration, options.seconds)))


if __name__ == "__main__":
    main()
